from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paper_extra import needs_paper

import metakel
from metakel.cli import main
from reproduction import FIGURES

ROOT = Path(__file__).parents[2]


def run_command(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["metakel", *arguments])
    main()


@needs_paper
def test_list_names_every_figure(monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        run_command(monkeypatch, "paper", "list")
    assert not stop.value.code
    shown = capsys.readouterr().out
    assert all(name in shown for name in FIGURES)


@needs_paper
def test_a_figure_and_its_gallery(monkeypatch, capsys, tmp_path):
    out, docs = str(tmp_path / "out"), str(tmp_path / "docs")
    options = ("--quick", "--runs", "3", "--seed", "5", "--jobs", "1", "--out", out)
    with pytest.raises(SystemExit) as stop:
        run_command(monkeypatch, "paper", "fig8", *options, "--reading", "signed")
    assert not stop.value.code
    assert "fig8, signed reading" in capsys.readouterr().out
    assert (tmp_path / "out" / "quick" / "fig8" / "signed" / "figure.png").exists()
    with pytest.raises(SystemExit):
        run_command(monkeypatch, "paper", "gallery", "--quick", "--out", out, "--docs", docs)
    assert "quick size" in (tmp_path / "docs" / "paper.md").read_text()


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "reproduction.commands", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match="pip install typer rich threadpoolctl"):
        run_command(monkeypatch, "paper", "list")


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As from a wheel: no clone around the package, and none in the current folder."""
    monkeypatch.setattr(metakel, "__file__", str(tmp_path / "lib" / "python" / "metakel" / "x.py"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("installed")
def test_without_a_clone_the_figures_say_where_they_are(monkeypatch):
    with pytest.raises(SystemExit) as stop:
        run_command(monkeypatch, "paper", "fig4", "--quick")
    assert re.match(
        r'metakel: .*git clone.*pip install -e "\.\[paper\]".*paper all', stop.value.code
    )


@needs_paper
@pytest.mark.usefixtures("installed")
def test_a_clone_in_the_current_folder_is_used(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stop:
        run_command(monkeypatch, "paper", "list")
    assert not stop.value.code
    assert "fig4" in capsys.readouterr().out


@needs_paper
def test_worker_processes_find_the_figures_of_a_clone(tmp_path):
    command = [sys.executable, "-m", "metakel", "paper", "fig8", "--quick", "--jobs", "2"]
    folder = {**os.environ, "PYTHONPATH": str(Path(metakel.__file__).parents[1])}
    subprocess.run([*command, "--out", "out"], cwd=tmp_path, env=folder, check=True)
    assert (tmp_path / "out" / "quick" / "fig8" / "resolved" / "figure.png").exists()


@needs_paper
def test_errors_are_messages_and_not_traces(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="metakel: reading is 'free'"):
        run_command(monkeypatch, "paper", "fig8", "--reading", "free", "--out", str(tmp_path))
    with pytest.raises(SystemExit, match=r"metakel: there is no file.*5882230"):
        run_command(
            monkeypatch,
            *("paper", "fig6-right", "--quick", "--jobs", "1"),
            *("--out", str(tmp_path), "--table", str(tmp_path / "absent.csv")),
        )
