"""The core needs numpy and scipy only, and is quick to import."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("matplotlib", "sklearn", "torch", "pandas", "optuna", "joblib", "typer", "dask", "cvxpy")


def test_importing_metakel_loads_no_extra_and_no_heavy_part_of_scipy():
    code = "import sys, metakel; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    for name in (*HEAVY, "scipy.optimize", "scipy.stats"):
        assert name not in loaded
