"""The core needs numpy and scipy only, and is quick to import."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import metakel

HEAVY = ("matplotlib", "sklearn", "torch", "pandas", "optuna", "joblib", "typer", "dask", "cvxpy")


def loaded_by(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_importing_metakel_waits_for_nothing():
    loaded = loaded_by("import metakel")
    assert not {"numpy", "scipy", "metakel.optimize"} & set(loaded)


def test_the_core_loads_no_extra_and_no_heavy_part_of_scipy():
    loaded = loaded_by("from metakel import *")
    assert "metakel.tuner" in loaded
    for name in (*HEAVY, "scipy.optimize", "scipy.stats"):
        assert name not in loaded


def test_type_checkers_and_python_see_the_same_names():
    tree = ast.parse(Path(metakel.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert set(seen) == {*metakel.__all__, "plots"}
    for name, package in seen.items():
        found = getattr(metakel, name)
        assert found is getattr(importlib.import_module(package), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'learn_pior'"):
        _ = metakel.learn_pior
    assert {"learn_prior", "plots", "__version__"} <= set(dir(metakel))
