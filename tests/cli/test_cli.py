from __future__ import annotations

import sys

import pytest

from metakel.cli import main
from metakel.paper import FIGURES


def metakel(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["metakel", *arguments])
    main()


def test_list_names_every_figure(monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        metakel(monkeypatch, "paper", "list")
    assert not stop.value.code
    shown = capsys.readouterr().out
    assert all(name in shown for name in FIGURES)


def test_a_figure_and_its_gallery(monkeypatch, capsys, tmp_path):
    out, docs = str(tmp_path / "out"), str(tmp_path / "docs")
    options = ("--quick", "--runs", "3", "--seed", "5", "--jobs", "1", "--out", out)
    with pytest.raises(SystemExit) as stop:
        metakel(monkeypatch, "paper", "fig8", *options, "--reading", "signed")
    assert not stop.value.code
    assert "fig8, signed reading" in capsys.readouterr().out
    assert (tmp_path / "out" / "quick" / "fig8" / "signed" / "figure.png").exists()
    with pytest.raises(SystemExit):
        metakel(monkeypatch, "paper", "gallery", "--quick", "--out", out, "--docs", docs)
    assert "quick size" in (tmp_path / "docs" / "paper.md").read_text()


def test_missing_packages_are_named_with_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "metakel.paper.commands", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"metakel\[paper\]"):
        metakel(monkeypatch, "paper", "list")


def test_errors_are_messages_and_not_traces(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="metakel: reading is 'free'"):
        metakel(monkeypatch, "paper", "fig8", "--reading", "free", "--out", str(tmp_path))
    with pytest.raises(SystemExit, match=r"metakel: there is no file.*5882230"):
        metakel(
            monkeypatch,
            *("paper", "fig6-right", "--quick", "--jobs", "1"),
            *("--out", str(tmp_path), "--table", str(tmp_path / "absent.csv")),
        )
