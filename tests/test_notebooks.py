"""The example notebooks run from top to bottom, and everything that they show is a box."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_is_one_for_every_kind_of_user():
    assert {path.stem for path in NOTEBOOKS} == {"optuna_user", "laboratory"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("optuna")
    source = Path(__file__).parents[1] / "src"
    paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    stored = [cell for cell in notebook.cells if cell.get("outputs")]
    assert not stored, "notebooks are kept without outputs"
    nbclient.NotebookClient(
        notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [
        set(output["data"])
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    assert len(shown) >= 5
    assert all(kinds & {"text/html", "image/png"} for kinds in shown)
    errors = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stderr" and "TqdmWarning" not in output["text"]  # no ipywidgets
    ]
    assert errors == [], "a notebook warns"
