"""Folding rows keeps everything the sets depend on, for every regulariser at once."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.confidence.set import Batch, no_observations
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre, squared_exponential

KERNEL = KernelSum.uniform(legendre(6, scaling="sup"), weight=1.0)
WIDE = KernelSum.uniform(legendre(120, scaling="sup"), weight=1.0)
ALPHAS = np.geomspace(1e-4, 1e3, 9)


def batch(t, seed=0):
    rng = np.random.default_rng(seed)
    return Batch(rng.uniform(-1, 1, (t, 1)), rng.normal(size=t), rng.uniform(0.5, 2.0, t))


def pieces(whole, size):
    for start in range(0, len(whole.y), size):
        part = slice(start, start + size)
        yield Batch(whole.X[part], whole.y[part], whole.noise_std[part])


@pytest.mark.parametrize("size", [1, 3, 500])
def test_500_observations_folded_equal_the_plain_rows(size):
    whole = batch(500)
    folded = no_observations(KERNEL)
    for part in pieces(whole, size):
        folded = folded.append(part)
    assert len(folded.rows) <= 2 * 7
    F = KERNEL.features(whole.X) / whole.noise_std[:, None]
    y = whole.y / whole.noise_std
    spectrum = folded.spectrum()
    residual = y - F @ np.linalg.lstsq(F, y)[0]
    assert_allclose(np.sort(spectrum.values), np.linalg.eigvalsh(F.T @ F), rtol=1e-8)
    assert_allclose(spectrum.rest, residual @ residual, rtol=1e-8)
    for i, alpha in enumerate(ALPHAS):
        theta = np.linalg.solve(F.T @ F + alpha * np.eye(6), F.T @ y)
        misfit = np.sum((y - F @ theta) ** 2) + alpha * theta @ theta
        assert_allclose(spectrum.misfit(ALPHAS)[i], misfit, rtol=1e-8)


@pytest.mark.parametrize("t", [30, 100, 119, 121, 300])
def test_the_fast_eigenvalues_equal_the_accurate_ones(t):
    rows = no_observations(WIDE).append(batch(t))
    values, squares, rest = rows.eigen(1.0)
    accurate = rows.spectrum()
    for c in (1e-3, 0.1, 1.0):
        fit = rest + np.sum(squares / (1 + c * values))
        true_fit = accurate.rest + np.sum(accurate.targets**2 / (1 + c * accurate.values))
        assert_allclose(fit, true_fit, rtol=1e-5)
        assert_allclose(np.log1p(c * values).sum(), accurate.log_det(1 / c), rtol=1e-5)


def test_eigenvalues_below_rounding_are_not_squared_away():
    """At noise 1e-7 the fast way would lose all but the largest eigenvalues."""
    rng = np.random.default_rng(0)
    whole = Batch(rng.uniform(-1, 1, (60, 1)), rng.normal(size=60), np.full(60, 1e-7))
    rows = no_observations(WIDE).append(whole)
    assert_array_equal(rows.eigen(1.0)[0], rows.spectrum().values)


def test_the_kernel_without_features_still_counts_what_it_cannot_explain():
    empty = KernelSum(KERNEL.base, np.zeros(6))
    whole = batch(20)
    rows = no_observations(empty).append(whole)
    assert_allclose(rows.spectrum().rest, np.sum((whole.y / whole.noise_std) ** 2))


FEATURES = KernelSum(legendre(9, scaling="sup"), np.linspace(0.2, 1.0, 9))
GRAM = KernelSum.uniform(squared_exponential([0.3, 0.9], d0=1), weight=1.0)
Z = np.linspace(-1, 1, 11)[:, None]
REGULARIZERS = np.array([1e-3, 0.1, 1.0, 30.0])


def observe(kernel, t, seed=0):
    rng = np.random.default_rng(seed)
    batch = Batch(rng.uniform(-1, 1, (t, 1)), rng.normal(size=t), rng.uniform(0.1, 0.5, t))
    return no_observations(kernel).append(batch).spectrum(), batch


@pytest.mark.parametrize("kernel", [FEATURES, GRAM])
@pytest.mark.parametrize("t", [1, 5, 9, 40])
def test_mean_variance_and_log_det_are_those_of_the_posterior(kernel, t):
    spectrum, batch = observe(kernel, t)
    u, outside = spectrum.project(Z)
    for i, alpha in enumerate(REGULARIZERS):
        post = posterior(kernel, batch.X, batch.y, noise_var=alpha * batch.noise_std**2)
        mean = spectrum.mean_coefficients(REGULARIZERS)[i] @ u
        variance = spectrum.inverse(REGULARIZERS)[i] @ u**2 + outside / alpha
        assert_allclose(mean, post.mean(Z), atol=2e-6)
        assert_allclose(alpha * variance, post.var(Z), atol=1e-8)
        assert_allclose(spectrum.log_det(alpha) / 2, post.information_gain, rtol=1e-8)


@pytest.mark.parametrize("t", [3, 9, 40])
def test_misfit_is_the_minimum_of_the_ridge_objective(t):
    spectrum, batch = observe(FEATURES, t)
    F, y = FEATURES.features(batch.X) / batch.noise_std[:, None], batch.y / batch.noise_std
    for i, alpha in enumerate(REGULARIZERS):
        theta = np.linalg.solve(F.T @ F + alpha * np.eye(9), F.T @ y)
        expected = np.sum((y - F @ theta) ** 2) + alpha * theta @ theta
        assert_allclose(spectrum.misfit(REGULARIZERS)[i], expected, rtol=1e-8)
        assert_allclose(spectrum.squared_norms(REGULARIZERS)[i], theta @ theta, rtol=1e-8)


@pytest.mark.parametrize("kernel", [FEATURES, GRAM])
def test_nothing_observed_leaves_the_prior(kernel):
    u, outside = no_observations(kernel).spectrum().project(Z)
    assert u.shape == (0, len(Z))
    assert_allclose(outside, kernel.diag(Z))
