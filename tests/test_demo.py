"""The demonstration shows, on tasks it never saw, that the history helped, and by how much."""

from __future__ import annotations

import re
from pathlib import Path

from metakel import demo

ROOT = Path(__file__).resolve().parents[1]


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
    assert all(mine < other for mine, other in zip(ours, cold, strict=True))
    assert all(mine < other for mine, other in zip(ours, random, strict=True))
    _quoted(said)
    assert "with probability 0.8" in said
    assert (out / "demo.png").stat().st_size > 20_000
    assert "Certificate" in (out / "report.html").read_text(encoding="utf-8")
    assert len((out / "run.jsonl").read_text().splitlines()) >= 61


def _quoted(said):
    """README and first page of the documentation say what the demo says."""
    needed = said.partition("until the others are as near")[2]
    cold, random = (re.search(rf"{way} +(.*)", needed)[1].split() for way in demo.WAYS[1:])
    after = dict(zip(demo.SHOWN, zip(cold, random, strict=True), strict=True))
    never = f">{demo.EVALUATIONS}"
    assert after[20] == (never, never)
    claim = f"as a cold GP-UCB is after {after[5][0]} and random search after {after[5][1]}."
    for page in ("README.md", "docs/index.md"):
        assert claim in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_without_matplotlib_only_the_picture_is_missing(monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert "pip install matplotlib" in demo.draw(*[None] * 5)
