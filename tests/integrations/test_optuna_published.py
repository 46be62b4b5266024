"""What is handed out: the OptunaHub package, the example, and the error without Optuna."""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from metakel.integrations.optuna import MetaKelSampler

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "optunahub" / "package" / "samplers" / "metakel"
EXAMPLE = ROOT / "examples" / "optuna_transfer.py"


def load(name: str) -> ModuleType:
    """A package of the registry, loaded from its folder as OptunaHub does."""
    folder = ROOT / "optunahub" / "package" / name
    spec = importlib.util.spec_from_file_location(f"registry.{name}", folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_optunahub_package_is_complete_and_offers_the_sampler():
    found = {path.name for path in PACKAGE.iterdir()}
    assert {"__init__.py", "README.md", "LICENSE", "example.py", "requirements.txt"} <= found
    module = load("samplers/metakel")
    assert module.__all__ == ["MetaKelSampler"]
    assert module.MetaKelSampler is MetaKelSampler
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_its_readme_says_what_the_registry_asks_for():
    head = (PACKAGE / "README.md").read_text().split("---")[1]
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    assert set(fields) == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert "sampler" in fields["tags"]


def test_its_example_runs(monkeypatch, capsys):
    registry = ModuleType("optunahub")
    registry.load_module = load
    monkeypatch.setitem(sys.modules, "optunahub", registry)
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    runpy.run_path(str(PACKAGE / "example.py"))
    optuna.logging.set_verbosity(before)
    assert float(capsys.readouterr().out.split()[1].rstrip(",")) < 0.05


def test_the_example_of_the_repository_beats_a_cold_start():
    done = subprocess.run(
        [sys.executable, EXAMPLE, "6"], capture_output=True, text=True, check=True, timeout=120
    )
    ours, theirs = (float(line.rsplit(" ", 1)[1]) for line in done.stdout.splitlines())
    assert ours < theirs
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def test_without_optuna_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in [n for n in sys.modules if n.startswith("metakel.integrations.optuna")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="pip install 'optuna>=5'"):
        importlib.import_module("metakel.integrations.optuna")
