"""The command line in this process, and a prior that it learned from a stranger's table."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from strangers_table import OUTPUT, TASK, awkward_table

from metakel import History, learn_prior
from metakel.cli import main


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def metakel(monkeypatch, capsys, tmp_path):
    """Run ``metakel ...`` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["metakel", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        code = stop.value.code
        if isinstance(code, str):  # Python prints it and exits with 1
            return Result(1, out, f"{err}{code}\n")
        return Result(code or 0, out, err)

    return run


@pytest.fixture
def history(tmp_path) -> Path:
    path = tmp_path / "past runs.csv"
    path.write_text(awkward_table(), encoding="utf-8-sig")
    return path


@pytest.fixture(scope="session")
def learned(tmp_path_factory) -> bytes:
    """The prior that ``metakel learn`` saves, learned once."""
    folder = tmp_path_factory.mktemp("learned")
    table, saved = folder / "past.csv", folder / "prior.json"
    table.write_text(awkward_table(), encoding="utf-8-sig")
    learn_prior(History.from_csv(table, task=TASK, output=OUTPUT)).save(saved)
    return saved.read_bytes()


@pytest.fixture
def prior(metakel, learned) -> Path:
    """In the folder where the command runs."""
    path = Path("prior.json")
    path.write_bytes(learned)
    return path
