"""Negative control: bands that believe a hard selection fail where signals are like the noise."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from benchmarks import coverage_selection as bench

RUNS, NOMINAL = 12, 0.9


def test_hard_selection_by_the_whole_lambda_fails_at_a_signal_like_the_noise(monkeypatch):
    """Coefficients 0.1 used by 85 % of the tasks, noise 0.1: a ratio of 0.9. Defaults hold."""
    chosen = {name: bench.RULES[name] for name in ("0.1", "default")}
    monkeypatch.setattr(bench, "RULES", chosen | {"hard": bench.RULES["hard"]})
    found = [bench.run_once(bench.SETTINGS[0], run, seed=5) for run in range(RUNS)]
    covered = {name: sum(run[name].covered for run in found) for name in chosen}
    assert covered["0.1"] < binom.ppf(1e-3, RUNS, NOMINAL)
    assert covered["default"] >= binom.ppf(1e-3, RUNS, NOMINAL)
    assert np.mean([run["default"].certificate for run in found]) == 1
