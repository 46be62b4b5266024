"""The posterior of Eq. 3 against scikit-learn and BoTorch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre, squared_exponential

Z = np.linspace(-1, 1, 25)[:, None]
LENGTHSCALE = 0.4
FEATURES = KernelSum(legendre(8, scaling="l2"), np.linspace(0.1, 0.8, 8))
SMOOTH = KernelSum.uniform(squared_exponential([LENGTHSCALE], d0=1), weight=1.3)


def data(t):
    rng = np.random.default_rng(t)
    return rng.uniform(-1, 1, (t, 1)), rng.normal(size=t), rng.uniform(0.05, 0.5, t)


@pytest.mark.parametrize("t", [1, 5, 40])
@pytest.mark.parametrize("name", ["features", "smooth"])
def test_scikit_learn_agrees(t, name):
    gp = pytest.importorskip("sklearn.gaussian_process")
    X, y, noise = data(t)
    if name == "features":
        ours, inner = FEATURES, gp.kernels.PairwiseKernel(metric="linear")
        read = FEATURES.features
    else:
        ours, inner = SMOOTH, 1.3 * gp.kernels.RBF(LENGTHSCALE)
        read = np.asarray
    theirs = gp.GaussianProcessRegressor(inner, alpha=noise, optimizer=None).fit(read(X), y)
    mean, cov = theirs.predict(read(Z), return_cov=True)
    post = posterior(ours, X, y, noise_var=noise)
    assert_allclose(post.mean(Z), mean, atol=1e-8)
    assert_allclose(post.cov(Z), cov, atol=1e-8)


@pytest.mark.parametrize("t", [1, 5, 40])
@pytest.mark.parametrize("name", ["features", "smooth"])
def test_botorch_agrees(t, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        botorch = pytest.importorskip("botorch")
        gpytorch = pytest.importorskip("gpytorch")
        X, y, noise = data(t)
        if name == "features":
            ours, inner, read = (
                FEATURES,
                gpytorch.kernels.LinearKernel().double(),
                FEATURES.features,
            )
            inner.variance = 1.0
        else:
            inner = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
            inner.outputscale = torch.tensor(1.3, dtype=torch.float64)  # a float would be cut to 32
            inner.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
            ours, read = SMOOTH, np.asarray
        model = botorch.models.SingleTaskGP(
            torch.tensor(np.ascontiguousarray(read(X))),
            torch.tensor(y)[:, None],
            torch.tensor(noise)[:, None],
            covar_module=inner,
            mean_module=gpytorch.means.ZeroMean(),
            outcome_transform=None,
        )
        theirs = model.posterior(torch.tensor(np.ascontiguousarray(read(Z))))
        mean = theirs.mean.detach().numpy()[:, 0]
        var = theirs.variance.detach().numpy()[:, 0]
    post = posterior(ours, X, y, noise_var=noise)
    assert_allclose(post.mean(Z), mean, atol=1e-8)
    assert_allclose(post.var(Z), var, atol=1e-8)
