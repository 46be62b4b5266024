"""Densities of Gaussian processes against scipy, slopes against differences, the Matern fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from metakel.gp import posterior
from metakel.gp.posterior import (
    _matern52_objective,
    _stacks,
    fit_matern52,
    log_density,
    log_evidence,
    negative_log_likelihood,
    white_noise_log_density,
)
from metakel.kernels import KernelSum, matern

RNG = np.random.default_rng(0)
KERNEL = KernelSum.uniform(matern(2.5, [0.5], d0=2))


def covariances(count=3, n=6):
    A = RNG.standard_normal((count, n, n))
    return A @ A.transpose(0, 2, 1) + np.eye(n)


def test_densities_are_those_of_scipy_alone_and_in_stacks():
    C, y = covariances(), RNG.standard_normal(6)
    expected = [multivariate_normal(np.zeros(6), each).logpdf(y) for each in C]
    assert_allclose(log_density(C, y), expected)
    assert_allclose(log_density(C[0], y), expected[0])
    assert_allclose(log_density(C, np.array([y, y, y])), expected)
    assert_allclose(white_noise_log_density(y), log_density(np.eye(6), y))


def test_the_evidence_is_the_product_of_predictions_by_the_posterior():
    X, y = RNG.uniform(-1, 1, (5, 2)), RNG.standard_normal(5)
    total = 0.0
    for i in range(5):
        known = posterior(KERNEL, X[:i], y[:i], noise_var=0.1)
        variance = known.var(X[i : i + 1])[0] + 0.1
        off = y[i] - known.mean(X[i : i + 1])[0]
        total -= off**2 / variance / 2 + np.log(2 * np.pi * variance) / 2
    assert_allclose(log_evidence(KERNEL, X, y, noise_var=0.1), total)


def test_the_slope_in_the_covariance_is_a_difference():
    (C,), y = covariances(1), RNG.standard_normal(6)
    value, slope = negative_log_likelihood(C, y)
    assert_allclose(-value - 3 * np.log(2 * np.pi), log_density(C, y))
    step = np.outer(y, y) * 1e-5
    up, down = (negative_log_likelihood(C + s, y)[0] for s in (step, -step))
    assert_allclose(np.sum(slope * step), (up - down) / 2, rtol=1e-6)
    assert_allclose(slope, slope.T, atol=1e-14)


def test_a_covariance_that_is_none_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        negative_log_likelihood(-np.eye(3), np.ones(3))


def test_the_slope_of_the_likelihood_is_its_difference():
    X = [RNG.uniform(-1, 1, (9, 2)) for _ in range(3)]
    ((squares, z),) = _stacks(X, [RNG.standard_normal(9) for _ in range(3)])
    theta = np.log([0.5, 1.5, 0.8, 0.05])
    _, slope = _matern52_objective(theta, squares, z)
    for i, step in enumerate(1e-5 * np.eye(4)):
        up, down = (_matern52_objective(theta + s, squares, z)[0] for s in (step, -step))
        assert_allclose(slope[i], (up - down) / 2e-5, rtol=1e-5)


def test_the_fit_finds_which_input_matters_and_the_noise():
    rng = np.random.default_rng(1)
    X = [rng.uniform(-1, 1, (40, 2)) for _ in range(6)]
    z = [np.sin(4 * x[:, 0] + i) * 1.4 + 0.2 * rng.standard_normal(40) for i, x in enumerate(X)]
    found = fit_matern52(X, z)
    assert found.lengthscales[0] < 1 < 3 < found.lengthscales[1]
    assert 0.02 < found.noise < 0.08


def test_tasks_of_different_sizes_are_fitted_together():
    rng = np.random.default_rng(2)
    X = [rng.uniform(-1, 1, (n, 1)) for n in (1, 5, 9, 9)]
    found = fit_matern52(X, [np.sin(3 * x[:, 0]) for x in X])
    assert np.isfinite([*found.lengthscales, found.signal, found.noise]).all()
