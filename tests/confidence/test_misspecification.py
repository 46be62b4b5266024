"""A norm bound that is small against the noise: the alarm sees it, at the same level."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from worlds import World, covered, failures_allowed

from metakel.confidence import DMM, ConfidenceSequence
from metakel.errors import InputError
from metakel.kernels import KernelSum, legendre, squared_exponential

DELTA = 0.1
LINE = np.linspace(-1, 1, 30)
MAPPED = KernelSum.uniform(legendre(3, scaling="l2"), weight=1.0)
LEARNED = KernelSum.uniform(legendre(12, scaling="l2"), active=[0, 2])
GRAM = KernelSum.uniform(squared_exponential([1.0], d0=1), weight=1.0)


def told(kernel, unit, **options):
    """The line 1e4 x in these units, twenty times the noise."""
    settings = {"noise_std": 500.0 * unit, "norm_bound": 3.0, **options}
    sequence = ConfidenceSequence(kernel, **settings)
    for x in LINE:
        sequence.tell([x], [1e4 * unit * x])
    return sequence


@pytest.mark.parametrize("unit", [1.0, 10.0, 100.0, 1e6])
@pytest.mark.parametrize("kernel", [MAPPED, LEARNED], ids=["all", "some"])
def test_values_of_twenty_sigma_contradict_a_bound_far_below_the_noise(kernel, unit):
    sequence = told(kernel, unit)
    assert sequence.alarm is not None
    assert sequence.alarms[0].time <= 2
    assert sequence.hypothesis.norm_bound == np.inf
    assert covered(sequence, 1e4 * unit * LINE, LINE[:, None])
    lower, upper = sequence.interval(LINE)
    mean = sequence.mean(LINE)
    assert ((lower <= mean) & (mean <= upper)).all()


def test_kernels_without_features_notice_too():
    assert told(GRAM, 1.0).alarm is not None


def test_a_bound_that_grows_is_doubled_past_the_noise():
    sequence = told(MAPPED, 100.0, norm_bound=lambda t: 3.0 + log(1 + t))
    assert covered(sequence, 1e6 * LINE, LINE[:, None])


def test_without_misspecification_scales_there_is_no_alarm():
    """Negative control: the guesses up to the bound alone."""
    assert told(MAPPED, 1.0, method=DMM(misspecification_weight=0.0, noise_weight=0)).alarm is None
    assert told(MAPPED, 1.0, method=DMM([3.0], noise_weight=0)).alarm is None


def test_where_the_bound_holds_the_set_loses_f_in_at_most_delta_of_the_runs():
    runs, lost, rung = 300, 0, 0
    for run in range(runs):
        bound = (0.01, 0.3, 3.0)[run % 3]
        world = World.draw(
            np.random.default_rng(run), d=2, norm=bound, rademacher=bool(run % 2), p=3
        )
        sequence = ConfidenceSequence(world.kernel, noise_std=1.0, norm_bound=bound, delta=DELTA)
        gap = 0.0
        missed = False
        for size in (1, 1, 2, 4, 8, 16):
            X = world.rng.uniform(-1, 1, (size, 1))
            y = world.observe(X)
            sequence.tell(X, y)
            gap += float(((y - world.f(X)) ** 2).sum())
            missed |= sqrt(gap) > sequence.radius
        lost += missed
        rung += sequence.alarm is not None
    assert rung <= lost <= failures_allowed(runs, DELTA)


@pytest.mark.parametrize("weight", [-0.1, 1.0, "much"])
def test_a_weight_is_below_one(weight):
    with pytest.raises(InputError, match="misspecification_weight is"):
        told(MAPPED, 1.0, method=DMM(misspecification_weight=weight))
