"""The quadrotor example in small: safe flights, and gains that get better."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from examples.quadrotor import DOMAIN, PEAK, Lesson, dangerous, extra_error, vehicles


@pytest.fixture(scope="module")
def flown():
    rng = np.random.default_rng(1)
    lesson, new = Lesson.learn(rng), vehicles(12, rng)
    return lesson, new, [lesson.tune(vehicle, rng) for vehicle in new]


def test_dangerous_flights_are_as_rare_as_promised(flown):
    _, new, runs = flown
    count = sum(dangerous(*pair) for pair in zip(new, runs, strict=True))
    assert count <= binom.ppf(1 - 1e-4, len(new), 0.1)


def test_gains_chosen_without_care_are_dangerous():
    """The negative control: gains at which past vehicles reach the limit on average."""
    past = vehicles(12, np.random.default_rng(2))
    average = np.mean([v.peak for v in past], axis=0)
    row = int(np.argmin(np.abs(average - PEAK)))
    assert sum(v.peak[row] > PEAK for v in past) > 3


def test_safe_opt_with_two_standard_deviations_is_dangerous():
    """The negative control of the benchmark: the rule of others from the same first flight."""
    from benchmarks.frontier_goals import quadrotor

    found = [quadrotor(1, seed) for seed in range(8)]
    assert sum(vehicle["SafeOpt rule, SE, beta 2"]["unsafe"] for vehicle in found) > 2
    assert quadrotor(1, 3) == found[3]  # same seed, same numbers


def test_the_start_set_is_neither_empty_nor_everything(flown):
    lesson, new, _ = flown
    inside = lesson.start.contains(DOMAIN.X)
    assert 0.1 < inside.mean() < 0.9
    unsafe = sum(bool((v.peak[inside] > PEAK).any()) for v in new)
    assert unsafe <= binom.ppf(1 - 1e-4, len(new), lesson.start.delta)


def test_flights_pay(flown):
    _, new, runs = flown
    after = {
        n: np.mean([extra_error(v, rows[:n]) for v, rows in zip(new, runs, strict=True)])
        for n in (1, 5, 20)
    }
    assert after[20] <= after[5] <= after[1]
    assert after[5] < 0.06
