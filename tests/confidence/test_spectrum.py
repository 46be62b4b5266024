"""The eigenbasis gives ridge regression for every regulariser at once."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.confidence.observations import Batch, no_observations
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre, squared_exponential

FEATURES = KernelSum(legendre(9, scaling="sup"), np.linspace(0.2, 1.0, 9))
GRAM = KernelSum.uniform(squared_exponential([0.3, 0.9], d0=1), weight=1.0)
Z = np.linspace(-1, 1, 11)[:, None]
ALPHAS = np.array([1e-3, 0.1, 1.0, 30.0])


def observe(kernel, t, seed=0):
    rng = np.random.default_rng(seed)
    batch = Batch(rng.uniform(-1, 1, (t, 1)), rng.normal(size=t), rng.uniform(0.1, 0.5, t))
    return no_observations(kernel).append(batch).spectrum(), batch


@pytest.mark.parametrize("kernel", [FEATURES, GRAM])
@pytest.mark.parametrize("t", [1, 5, 9, 40])
def test_mean_variance_and_log_det_are_those_of_the_posterior(kernel, t):
    spectrum, batch = observe(kernel, t)
    u, outside = spectrum.project(Z)
    for i, alpha in enumerate(ALPHAS):
        post = posterior(kernel, batch.X, batch.y, noise_var=alpha * batch.noise_std**2)
        mean = spectrum.mean_coefficients(ALPHAS)[i] @ u
        variance = spectrum.inverse(ALPHAS)[i] @ u**2 + outside / alpha
        assert_allclose(mean, post.mean(Z), atol=2e-6)
        assert_allclose(alpha * variance, post.var(Z), atol=1e-8)
        assert_allclose(spectrum.log_det(alpha) / 2, post.information_gain, rtol=1e-8)


@pytest.mark.parametrize("t", [3, 9, 40])
def test_misfit_is_the_minimum_of_the_ridge_objective(t):
    spectrum, batch = observe(FEATURES, t)
    F, y = FEATURES.features(batch.X) / batch.noise_std[:, None], batch.y / batch.noise_std
    for i, alpha in enumerate(ALPHAS):
        theta = np.linalg.solve(F.T @ F + alpha * np.eye(9), F.T @ y)
        expected = np.sum((y - F @ theta) ** 2) + alpha * theta @ theta
        assert_allclose(spectrum.misfit(ALPHAS)[i], expected, rtol=1e-8)
        assert_allclose(spectrum.squared_norms(ALPHAS)[i], theta @ theta, rtol=1e-8)


@pytest.mark.parametrize("kernel", [FEATURES, GRAM])
def test_nothing_observed_leaves_the_prior(kernel):
    u, outside = no_observations(kernel).spectrum().project(Z)
    assert u.shape == (0, len(Z))
    assert_allclose(outside, kernel.diag(Z))
