"""The example says that one process and a Dask cluster agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "scale.py"


def test_the_example_learns_the_same_here_and_on_dask():
    for package in ("dask", "distributed", "pyarrow"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, EXAMPLE, "300"], capture_output=True, text=True, check=True, timeout=120
    )
    assert "3 of 50 base kernels learned from 300 tasks: P3, P10, P31" in done.stdout
    assert float(done.stdout.splitlines()[-1].rsplit(" ", 1)[1]) < 1e-10
    assert len(EXAMPLE.read_text().splitlines()) <= 40
