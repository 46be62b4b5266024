"""Folding rows keeps everything the confidence sets depend on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.confidence.observations import Batch, no_observations
from metakel.kernels import KernelSum, legendre

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
