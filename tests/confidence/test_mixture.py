"""The radius of the mixture martingale."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from numpy.testing import assert_allclose
from worlds import failures_allowed

from metakel.confidence import DMM, ConfidenceSequence
from metakel.confidence.methods import (
    TILT_SHARES,
    TILTS,
    log_evidence,
    log_mixture,
    log_weights,
    scales_below,
    scales_between,
    squared_radius,
)
from metakel.kernels import KernelSum, legendre


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


def equally(*evidences):
    """Kernels and scales of equal weights."""
    return [(e, log_weights(len(e), 0, 0.0), 1 / len(evidences)) for e in evidences]


def test_one_scale_gives_the_closed_form():
    evidence = np.array([-3.2])
    assert_allclose(squared_radius(log_mixture(equally(evidence)), 0.1), 6.4 + 2 * log(10))


def test_not_knowing_the_kernel_costs_at_most_two_log_two():
    rng = np.random.default_rng(1)
    own, other = rng.normal(size=8), rng.normal(size=8) - 5
    alone, both = (
        squared_radius(log_mixture(equally(own)), 0.1),
        squared_radius(log_mixture(equally(own, other)), 0.1),
    )
    assert alone < both <= alone + 2 * log(2)


def test_weights_add_up_to_one_and_misspecification_scales_get_their_part():
    for beyond, share in ((0, 0.0), (0, 0.3), (1, 0.01), (4, 0.3)):
        weights = np.exp(log_weights(8, beyond, share))
        assert len(weights) == 8 + beyond
        assert_allclose(weights.sum(), 1)
        assert_allclose(weights[8:].sum(), share if beyond else 0)


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
    assert_allclose(squared_radius(log_mixture(equally(evidence)), delta), expected, rtol=1e-9)


WEIGHT = DMM().noise_weight


def test_the_tilts_are_a_mixture_of_supermartingales_fixed_in_advance():
    assert_allclose(TILT_SHARES.sum(), 1)
    assert ((TILTS > 0) & (TILTS < 0.5)).all()


@pytest.mark.parametrize("noise", ["gaussian", "signs", "uniform"])
def test_the_moments_behind_the_chi_square_supermartingale(noise):
    """E exp(a e^2 + b e) <= (1 - 2a)^(-1/2) exp(b^2 / (2 (1 - 2a))), by integration."""
    x, w = np.polynomial.legendre.leggauss(400)
    values, density = {
        "gaussian": (15 * x, 15 * w * np.exp(-((15 * x) ** 2) / 2) / np.sqrt(2 * np.pi)),
        "signs": (np.array([-1.0, 1.0]), np.array([0.5, 0.5])),
        "uniform": (np.sqrt(3) * x, w / 2),
    }[noise]
    for a in TILTS:
        for b in (0.0, 0.3, -1.0, 2.0):
            mean = float(density @ np.exp(a * values**2 + b * values))
            bound = np.exp(b**2 / (2 * (1 - 2 * a))) / np.sqrt(1 - 2 * a)
            assert mean <= bound * (1 + 1e-9)


def test_the_radius_solves_the_equation_and_costs_at_most_its_share():
    rng = np.random.default_rng(0)
    for _ in range(200):
        mixed, t = -float(rng.exponential(30)), int(rng.integers(0, 300))
        delta = float(rng.uniform(0.001, 0.1))
        alone = squared_radius(mixed, delta)
        R = squared_radius(mixed, delta, t=t, noise_weight=WEIGHT)
        parts = WEIGHT * TILT_SHARES @ (np.exp(TILTS * R) * (1 - 2 * TILTS) ** (t / 2))
        assert_allclose((1 - WEIGHT) * np.exp(R / 2 + mixed) + parts, 1 / delta, rtol=1e-9)
        assert alone + 2 * log(1 / (1 - WEIGHT)) + 1e-9 >= R
        assert np.sqrt(R) <= 1.005 * np.sqrt(alone)


def test_the_radius_survives_extremes():
    for mixed, t in ((-1e9, 10**6), (-1e-9, 10**6), (-1e9, 1), (0.0, 0)):
        R = squared_radius(mixed, 0.1, t=t, noise_weight=WEIGHT)
        assert np.isfinite(R)
        assert R > 0


@pytest.mark.parametrize("noise", ["gaussian", "signs", "uniform"])
def test_with_adaptive_points_the_fit_of_f_exceeds_the_radius_in_at_most_delta_of_runs(noise):
    """The next point depends on the sign of the last value; f has three features of any size."""
    draw = {
        "gaussian": lambda rng: rng.standard_normal(40),
        "signs": lambda rng: rng.choice([-1.0, 1.0], 40),
        "uniform": lambda rng: rng.uniform(-np.sqrt(3), np.sqrt(3), 40),
    }[noise]
    runs, delta, missed = 50, 0.2, 0
    kernel = KernelSum.uniform(legendre(3, scaling="l2"), weight=1.0)
    for run in range(runs):
        rng = np.random.default_rng(run)
        theta, e = rng.choice([0.3, 3.0, 30.0]) * rng.standard_normal(3), draw(rng)
        bound = float(np.linalg.norm(theta))
        sequence = ConfidenceSequence(kernel, noise_std=1.0, norm_bound=bound, delta=delta)
        x, squares, wrong = 0.5, 0.0, False
        for t in range(40):
            y = float(kernel.features(np.array([[x]]))[0] @ theta) + e[t]
            sequence.tell(x, y)
            squares += e[t] ** 2
            wrong |= squares > sequence.radius**2
            x = float(np.clip(-0.9 * np.sign(y) * abs(x) + 0.1, -1, 1))
        missed += wrong
    assert missed <= failures_allowed(runs, delta)


def test_intervals_of_many_features_are_narrower_and_never_wider_by_half_a_per_cent():
    Z = np.linspace(-1, 1, 21)[:, None]
    base, ratios = legendre(16, scaling="l2"), {}
    for features, size in ((10, 10.0), (4, 10.0), (4, 1.0), (1, 0.1)):
        kernel = KernelSum.uniform(base, active=range(features))
        for seed in range(6):
            rng = np.random.default_rng(seed)
            theta = size * rng.standard_normal(features)
            known = {"noise_std": 1.0, "norm_bound": 5 * float(np.linalg.norm(theta))}
            now = ConfidenceSequence(kernel, **known)
            before = ConfidenceSequence(kernel, method=DMM(noise_weight=0), **known)
            for t in range(1, 31):
                x = rng.uniform(-1, 1)
                y = float(kernel.features(np.array([[x]]))[0] @ theta) + rng.standard_normal()
                for sequence in (now, before):
                    sequence.tell(x, y)
                assert now.radius <= 1.005 * before.radius
                if t in (4, 15, 25):
                    lower, upper = now.current.interval(Z)
                    low, high = before.current.interval(Z)
                    ratio = np.mean(upper - lower) / np.mean(high - low)
                    ratios.setdefault((features, size, t), []).append(ratio)
    mean = {key: float(np.mean(found)) for key, found in ratios.items()}
    assert max(mean.values()) <= 1.005
    assert mean[10, 10.0, 15] <= 0.8
    assert mean[10, 10.0, 25] <= 0.75
    assert mean[4, 10.0, 15] <= 0.97


def test_understated_noise_sets_the_alarm_and_right_noise_does_not():
    """Without the supermartingale it hardly ever did."""
    heard, before, false, runs = 0, 0, 0, 20
    kernel = KernelSum.uniform(legendre(4, scaling="l2"), weight=1.0)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        theta = rng.standard_normal(4)
        bound = 2 * float(np.linalg.norm(theta))
        X = rng.uniform(-1, 1, (50, 1))
        y = kernel.features(X) @ theta + rng.standard_normal(50)
        for noise_std, method in ((0.5, DMM()), (0.5, DMM(noise_weight=0)), (1.0, DMM())):
            sequence = ConfidenceSequence(
                kernel, noise_std=noise_std, norm_bound=bound, method=method
            )
            for x, value in zip(X, y, strict=True):
                sequence.tell(x, value)
            if noise_std == 1.0:
                false += sequence.alarm is not None
            elif method.noise_weight:
                heard += sequence.alarm is not None
                assert sequence.hypothesis is None or sequence.alarm is not None
            else:
                before += sequence.alarm is not None
    assert heard >= 0.95 * runs
    assert before <= 0.7 * runs
    assert false <= failures_allowed(runs, 0.1)
