"""Stopping rules see the past only, and what they cost is counted as stated."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.certificate_stopping import (
    BUDGET,
    PATIENCE,
    Sequence,
    by_certificate,
    first,
    no_improvement,
)


def sequence(values, certificates):
    values = np.asarray(values, dtype=float)
    rows = np.arange(len(values))
    found = {0.1: np.asarray(certificates, dtype=float)}
    return Sequence(None, values[:, None], values, rows, found, 0, tolerance=0.1)


def test_first_is_the_first_time_or_all():
    assert first(np.array([False, True, True])) == 2
    assert first(np.zeros(5, dtype=bool)) == 5


@pytest.mark.parametrize("best_at", [0, 3, 7])
def test_no_improvement_waits_so_long_after_the_best_value(best_at):
    values = np.zeros(BUDGET)
    values[:best_at] = np.arange(best_at) - 10.0
    values[best_at] = 1.0
    assert no_improvement(sequence(values, np.ones(BUDGET))) == best_at + PATIENCE + 1


def test_a_certificate_stops_when_it_is_at_most_the_tolerance_and_never_without_one():
    values = [0.0, 0.95, 0.2, 1.0]
    assert by_certificate(0.1)(sequence(values, [0.5, 0.1, 0.05, 0.0])) == 2
    assert by_certificate(0.1)(sequence(values, [np.inf] * 4)) == 4
    np.testing.assert_allclose(sequence(values, [1] * 4).regret, [1.0, 0.05, 0.05, 0.0])
