"""The demonstration runs, tells the truth and leaves its picture."""

from __future__ import annotations

from metakel import demo


def test_the_demo_recovers_the_hidden_kernel_and_saves_its_picture(tmp_path, capsys):
    demo.main(["--seed", "1", "--out", str(tmp_path / "new" / "folder")])
    said = capsys.readouterr().out
    assert "recovered exactly" in said
    assert "NOT" not in said
    assert (tmp_path / "new" / "folder" / "learned-kernel.png").stat().st_size > 10_000
