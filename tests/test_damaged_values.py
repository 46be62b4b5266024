"""Values in files and tables that a fuzzer found: refused in words of ours."""

from __future__ import annotations

import json

import numpy as np
import pytest

import metakel as mk
from metakel.errors import InputError
from metakel.gp.processes import LevelAndScale


def test_a_negative_order_in_a_kernel_file(tmp_path):
    path = tmp_path / "kernel.json"
    mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2")).save(path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["base"]["families"][0]["orders"][2] = [-7]
    path.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(InputError, match="order -7; expected 0 or more"):
        mk.KernelSum.load(path)


@pytest.mark.parametrize("spread", [1e9, 1e300, 0.0])
def test_scales_of_tasks_that_differ_beyond_all_measure(spread):
    with pytest.raises(InputError, match="spread is"):
        LevelAndScale(level=0.0, level_variance=1.0, scale=1.0, spread=spread)


def test_outputs_whose_squares_a_float_cannot_hold():
    values = np.random.default_rng(0).standard_normal(12)
    table = {"task": ["a"] * 6 + ["b"] * 6, "x": np.linspace(0, 1, 12), "score": 1e300 * values}
    history = mk.History.from_frame(table, task="task", output="score", minimize=False)
    with pytest.raises(InputError, match=r"expected at most 1e\+150, .*; divide all by a power"):
        mk.learn_prior(history, certify="none")


def test_outputs_whose_medians_are_zero():
    tasks = ["a"] * 6 + ["b"] * 6
    values = [0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 40.0, 80.0]
    table = {"task": tasks, "x": np.linspace(0, 1, 12).tolist(), "score": values}
    assert mk.History.from_frame(table, task="task", output="score", minimize=False).total == 12
