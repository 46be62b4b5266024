"""Several hypotheses in one mixture: what they cost, and what they notice."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from worlds import failures_allowed

from gpucb import gpucb
from metakel import candidates
from metakel.confidence import DMM, ConfidenceSequence
from metakel.confidence.fallback import WATCHED
from metakel.errors import InputError
from metakel.kernels import KernelSum, legendre

BASE = legendre(12, scaling="l2")
TABLE = np.linspace(-1, 1, 61)[:, None]
SIGMA, NORM, DELTA = 0.02, 4.0, 0.1
OPTIONS = {"noise_std": SIGMA, "norm_bound": NORM, "delta": DELTA}


def kernel(active):
    return KernelSum.uniform(BASE, active=active)


ALL = kernel(range(BASE.p))
WATCH = DMM(watch_kernels=True)


def told(sequence, theta, rng, n):
    X = rng.uniform(-1, 1, (n, 1))
    sequence.tell(X, BASE.features(X) @ theta + SIGMA * rng.standard_normal(n))
    return sequence


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"full": ALL}, 1 / 2),
        ({"method": WATCH}, 1 / 2),
        ({"full": kernel([1, 3]), "method": WATCH}, 1 / 2),
    ],
)
def test_not_knowing_the_kernel_costs_at_most_two_log_one_over_its_share(options, share):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (15, 1)), rng.normal(size=15)
    first = kernel([1, 3])
    alone = ConfidenceSequence(first, full=first, **OPTIONS)
    several = ConfidenceSequence(first, **OPTIONS, **options)
    for sequence in (alone, several):
        sequence.tell(X, y)
    assert several.radius**2 <= alone.radius**2 + 2 * log(1 / share) + 1e-9


def test_a_neighbor_in_the_mixture_costs_no_more_than_its_own_share():
    """So that a part of that base kernel is noticed almost as if only it had been in doubt."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (15, 1)), rng.normal(size=15)
    watching = ConfidenceSequence(kernel([1, 3]), method=WATCH, **OPTIONS)
    neighbor = kernel([1, 3, 7])
    alone = ConfidenceSequence(neighbor, full=neighbor, **OPTIONS)
    for sequence in (watching, alone):
        sequence.tell(X, y)
    price = 2 * log((BASE.p - 2) / WATCHED)
    assert watching.radius**2 <= alone.radius**2 + price + 1e-9


def alarms(runs, *, probes, missing, watch_kernels=True, box=False):
    """How often the alarm is set under GP-UCB; a part of ten times the noise may be missing."""
    from metakel import box as interval

    rung = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 7])
        used = np.sort(rng.choice(BASE.p, 4, replace=False))
        theta = np.zeros(BASE.p)
        theta[used] = rng.normal(size=4)
        theta[used[0]] = 10 * SIGMA * rng.choice([-1, 1])
        optimizer = gpucb(
            kernel(used[missing:]),
            interval([(-1, 1)]) if box else candidates(TABLE),
            rng=rng,
            probes=probes,
            method=DMM(watch_kernels=watch_kernels),
            **OPTIONS | {"norm_bound": 5.0},
        )
        for _ in range(14):
            x = optimizer.ask()
            y = BASE.features(x[None])[0] @ theta + SIGMA * rng.standard_normal()
            optimizer.tell(x, y)
        rung += optimizer.alarm is not None
    return rung


def test_probes_make_the_alarm_hear_a_missing_kernel_under_gp_ucb():
    assert alarms(25, probes=8, missing=1) >= 20
    assert alarms(5, probes=8, missing=1, box=True) >= 4


def test_without_probes_gp_ucb_hardly_hears_it():
    """Negative control: the optimizer looks where its kernel fits."""
    assert alarms(25, probes=0, missing=1) <= 15


def test_probes_and_neighbors_cause_no_false_alarms():
    assert alarms(40, probes=8, missing=0) <= failures_allowed(40, DELTA)


def test_probes_are_spread_and_then_gp_ucb_goes_on():
    """They depend on the points alone, whatever the values are; other points do not."""
    chosen = []
    for sign in (1.0, -1.0):
        optimizer = gpucb(
            kernel([1, 3]), candidates(TABLE), rng=np.random.default_rng(0), probes=4, **OPTIONS
        )
        points = []
        for _ in range(9):
            points.append(optimizer.ask())
            optimizer.tell(points[-1], sign * float(points[-1][0]))
        chosen.append(np.concatenate(points))
    np.testing.assert_array_equal(chosen[0][:5], chosen[1][:5])
    assert len(np.unique(chosen[0][:5])) == 5
    assert (chosen[0][5:] != chosen[1][5:]).any()


def test_an_optimizer_with_probes_and_neighbors_is_stored_exactly():
    from metakel.optimize import Optimizer

    optimizer = gpucb(
        kernel([1, 3]),
        candidates(TABLE),
        rng=np.random.default_rng(0),
        probes=3,
        full=ALL,
        method=WATCH,
        **OPTIONS,
    )
    for y in (0.1, -0.3):
        optimizer.tell(optimizer.ask(), y)
    again = Optimizer.from_dict(optimizer.to_dict())
    for _ in range(3):
        x = optimizer.ask()
        np.testing.assert_array_equal(x, again.ask())
        optimizer.tell(x, 0.2)
        again.tell(x, 0.2)
    assert again.model.certified.radius == optimizer.model.certified.radius


def test_probes_need_an_alarm():
    with pytest.raises(InputError, match="no alarm to hear them"):
        gpucb(
            kernel([1]),
            candidates(TABLE),
            rng=np.random.default_rng(0),
            noise_std=1,
            nu=2,
            probes=4,
        )
