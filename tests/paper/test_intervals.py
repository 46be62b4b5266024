from __future__ import annotations

import numpy as np
import pytest

from reproduction.figure import rate, ratio, shown


def covered(seed, clusters):
    """Whether the interval of one sample of 30 clusters of 4 covers the true ratio 1/2."""
    rng = np.random.default_rng(seed)
    shared, own = rng.exponential(size=30).repeat(4), rng.exponential(size=120)
    found = ratio("x", shared, 1 + own, np.arange(30).repeat(4) if clusters else None)
    return found["x low"] <= 0.5 <= found["x high"]


def test_intervals_cover_at_their_level_if_they_know_what_was_drawn_together():
    rate = np.mean([covered(seed, clusters=True) for seed in range(40)])
    assert rate >= 0.8  # nominal 0.95
    ignorant = np.mean([covered(seed, clusters=False) for seed in range(40)])
    assert ignorant < 0.8


def test_paired_instances_that_differ_by_a_factor_leave_no_doubt():
    under = np.random.default_rng(0).exponential(size=30)
    found = ratio("x", 0.7 * under, under)
    assert found["x"] == pytest.approx(0.7)
    assert found["x low"] == pytest.approx(found["x high"])
    assert found == ratio("x", 0.7 * under, under)


def test_nothing_over_nothing_is_no_number():
    assert shown(ratio("x", [0.0, 0.0], [0.0, 0.0]), "x") == "–"
    found = ratio("x", [0.0, 1.0], [0.0, 2.0])
    assert (found["x"], found["x low"], found["x high"]) == (0.5, 0.5, 0.5)


def test_interval_of_a_rate_solves_the_normal_approximation_at_its_ends():
    found = rate("x", [True] * 27 + [False] * 3)
    for end in (found["x low"], found["x high"]):
        assert abs(0.9 - end) / np.sqrt(end * (1 - end) / 30) == pytest.approx(1.96, abs=1e-3)
    assert rate("x", np.ones(100))["x low"] < 0.97 < rate("x", np.ones(300))["x low"]


def test_shown():
    assert shown({"x": float("nan")}, "x") == "–"
    assert shown({"x": 0.12345}, "x") == "0.123"
    assert shown({"x": 0.5, "x low": 0.41, "x high": 0.62}, "x") == "0.5 (0.41 to 0.62)"
