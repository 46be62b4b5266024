"""Negative control: bands that believe a hard selection fail where signals are half the noise."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from benchmarks import coverage_selection as bench

RUNS, NOMINAL = 24, 0.9
NAMES = [setting.name for setting in bench.SETTINGS]


@pytest.mark.parametrize(
    "name", ["sup, 20 kernels, 12 tasks, SNR .5", "one strong and three weak kernels, 16 tasks"]
)
def test_the_selection_alone_fails_at_half_the_noise_and_the_default_holds(name):
    setting = bench.SETTINGS[NAMES.index(name)]
    rules = ("selection", "default")
    found = [bench.run_once(setting, run, 5, rules).rules for run in range(RUNS)]
    covered = {rule: sum(run[rule].covered for run in found) for rule in rules}
    assert covered["selection"] < binom.ppf(1e-3, RUNS, NOMINAL)
    assert covered["default"] >= binom.ppf(1e-3, RUNS, NOMINAL)


def test_settings_have_names_of_their_own_and_floors():
    assert len(set(NAMES)) == len(NAMES) == 26
    assert set(bench.FLOORS) == set(NAMES)
