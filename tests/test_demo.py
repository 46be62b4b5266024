"""The demonstration shows, on tasks it never saw, that the history helped, and by how much."""

from __future__ import annotations

import re

from metakel import demo


def test_the_demo_shows_what_the_history_was_worth(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    demo.main(["--out", str(out)])
    said = capsys.readouterr().out
    after = said.partition("mean over all")[2]
    rows = {
        way: [float(v) for v in re.search(rf"{way} +([\d. ]+)", after)[1].split()]
        for way in demo.WAYS
    }
    ours, cold, random = (rows[way] for way in demo.WAYS)
    assert len(ours) == len(demo.SHOWN)
    assert ours[3] < 0.5 * cold[3]  # after 5 evaluations
    assert ours[3] < 0.5 * random[3]
    assert ours[-1] <= cold[-1] + 0.002
    assert "with probability 0.8" in said
    assert (out / "demo.png").stat().st_size > 20_000
    assert "Certificate" in (out / "report.html").read_text(encoding="utf-8")
    assert len((out / "run.jsonl").read_text().splitlines()) >= 61
