"""Every example is short, runs as it is, and prints what it found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# Run in a size for tests, with more to check: tests/scale/test_example.py, tests/test_quadrotor.py.
ELSEWHERE = {"scale.py", "quadrotor.py"}
LONG = {"ax_node.py": 45, "cart_pole.py": 50, "quadrotor.py": 180}


def test_there_is_one_for_every_host():
    hosts = {"optuna_transfer", "sklearn_regression", "botorch_loop", "ax_node"}
    assert {*hosts, "own_base_kernels"} <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_fits_on_a_page(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LONG.get(path.name, 40)
    assert text.startswith('"""')


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.name not in ELSEWHERE], ids=lambda path: path.name
)
def test_an_example_runs_and_prints_a_result(path, tmp_path):
    for package in re.findall(r"^(?:import|from) (ax|botorch|torch)\b", path.read_text(), re.M):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_broken_example_would_be_noticed(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import metakel as mk\nmk.no_such_thing()\n")
    with pytest.raises(AssertionError, match="no_such_thing"):
        test_an_example_runs_and_prints_a_result(broken, tmp_path)
