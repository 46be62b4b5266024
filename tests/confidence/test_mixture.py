"""The radius of the mixture martingale."""

from __future__ import annotations

from math import log

import numpy as np
from numpy.testing import assert_allclose
from worlds import failures_allowed

from metakel.confidence.radius import (
    log_evidence,
    log_weights,
    scales_below,
    scales_between,
    squared_radius,
)


def test_evidence_is_the_gaussian_marginal_without_its_constant():
    rng = np.random.default_rng(0)
    F, y = rng.normal(size=(7, 4)), rng.normal(size=7)
    values, vectors = np.linalg.eigh(F @ F.T)
    scales = np.array([0.1, 1.0, 5.0])
    found = log_evidence(np.maximum(values, 0), (vectors.T @ y) ** 2, 0.0, scales)
    for i, scale in enumerate(scales):
        cov = np.eye(7) + scale**2 * F @ F.T
        expected = -0.5 * y @ np.linalg.solve(cov, y) - 0.5 * np.linalg.slogdet(cov)[1]
        assert_allclose(found[i], expected, rtol=1e-10)


def test_one_scale_gives_the_closed_form():
    evidence = np.array([-3.2])
    assert_allclose(squared_radius([evidence], 0.1), 6.4 + 2 * log(10))


def test_not_knowing_the_kernel_costs_at_most_two_log_two():
    rng = np.random.default_rng(1)
    own, other = rng.normal(size=8), rng.normal(size=8) - 5
    alone, both = squared_radius([own], 0.1), squared_radius([own, other], 0.1)
    assert alone < both <= alone + 2 * log(2)


def test_weights_add_up_to_one_and_misspecification_scales_get_their_part():
    for beyond, share in ((0, 0.0), (0, 0.3), (1, 0.01), (4, 0.3)):
        weights = np.exp(log_weights(8, beyond, share))
        assert len(weights) == 8 + beyond
        assert_allclose(weights.sum(), 1)
        assert_allclose(weights[8:].sum(), share if beyond else 0)


def test_weights_enter_the_radius_as_their_logarithm():
    evidence = np.array([-1.0, -50.0])
    even = squared_radius([evidence], 0.1)
    uneven = squared_radius([evidence], 0.1, [np.log([0.125, 0.875])])
    assert_allclose(uneven - even, 2 * log(4))


def test_radius_survives_evidence_far_out_of_range():
    assert_allclose(squared_radius([np.array([-1e6])], 0.5), 2e6 + 2 * log(2))


def test_smaller_delta_gives_a_larger_radius_by_the_logarithm():
    evidence = np.array([-1.0, -2.0])
    gap = squared_radius([evidence], 0.01) - squared_radius([evidence], 0.1)
    assert_allclose(gap, 2 * log(10))


def test_default_scales_halve_from_the_bound_and_ranges_are_covered():
    assert_allclose(scales_below(8.0), 8.0 / 2 ** np.arange(8))
    wide = scales_between(1e-3, 1e3)
    assert_allclose(wide[[0, -1]], [1e-3, 1e3])
    assert (wide[1:] / wide[:-1] <= 2 + 1e-12).all()


def test_the_fit_of_f_exceeds_the_radius_in_at_most_delta_of_the_runs_at_any_time():
    """Ville's inequality, all t <= 200 at once, for one constant feature and any size of f."""
    rng = np.random.default_rng(2)
    runs, horizon, delta, scales = 1000, 200, 0.1, scales_below(2.0)
    noise = rng.standard_normal((runs, horizon))
    f = rng.choice([0.0, 0.5, 2.0, 10.0], runs)[:, None]
    t = np.arange(1, horizon + 1)
    sums = np.cumsum(f + noise, axis=1)
    squares = np.cumsum((f + noise) ** 2, axis=1)
    truth = np.cumsum(noise**2, axis=1)
    mixed = np.zeros((runs, horizon))
    for scale in scales:
        fit = squares - sums**2 / (t + scale**-2.0)
        mixed += np.exp(-0.5 * (fit - truth)) / np.sqrt(1 + scale**2 * t) / len(scales)
    # ||f - y||^2 <= R^2 is the same as: the mixture of likelihood ratios is at most 1 / delta.
    missed = (mixed > 1 / delta).any(axis=1).sum()
    assert missed <= failures_allowed(runs, delta)
    # The same numbers through the library, at the last time of the first run.
    evidence = log_evidence(
        np.array([horizon]),
        np.array([sums[0, -1] ** 2 / horizon]),
        squares[0, -1] - sums[0, -1] ** 2 / horizon,
        scales,
    )
    expected = 2 * log(1 / delta) + truth[0, -1] - 2 * np.log(mixed[0, -1])
    assert_allclose(squared_radius([evidence], delta), expected, rtol=1e-9)
