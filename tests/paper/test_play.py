from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gpucb import gpucb
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre, squared_exponential
from metakel.search import candidates
from reproduction.play import OnGrid, play
from reproduction.synthetic import coefficients, norm_in, true_kernel

BASE = legendre(12, scaling="l2")
Z = np.linspace(-1, 1, 61)[:, None]
KERNELS = {
    "few features": true_kernel(BASE, sparsity=3, rng=np.random.default_rng(0)),
    "many features": KernelSum.uniform(BASE),
    "no features": KernelSum(squared_exponential(0.3), np.ones(1)),
}


def streams():
    return {"noise": np.random.default_rng(1), "ties": np.random.default_rng(2)}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("t", [0, 1, 8, 40])
@pytest.mark.parametrize("keep", [True, False])
def test_posterior_is_that_of_the_library(kernel, t, keep):
    rng = np.random.default_rng(t)
    where, y = rng.integers(len(Z), size=t), rng.standard_normal(t)
    mean, std = OnGrid(kernel, Z, keep).posterior(where, y, 0.3)
    expected = posterior(kernel, Z[where], y, noise_var=0.3)
    assert_allclose(mean, expected.mean(Z), atol=1e-9)
    assert_allclose(std, expected.std(Z), atol=1e-8)


def test_plays_like_gpucb():
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(-1, 1, size=(40, 1)), axis=0)  # no symmetry, hence no ties
    kernel = KERNELS["few features"]
    f = kernel.features(X) @ coefficients(kernel, norm=10, rng=rng, signs="both")
    T = 15
    nu, noise_var = np.full(T, 3.0), 1 + 2 / np.arange(1, T + 1)
    game = play(OnGrid(kernel, X), f, nu=nu, noise_var=noise_var, noise_std=0.0, **streams())
    optimizer = gpucb(
        kernel,
        candidates(X),
        rng=np.random.default_rng(0),
        noise_std=0.01,
        nu=3.0,
        noise_var=lambda t: 1 + 2 / t,
    )
    for i in range(T):
        assert_array_equal(optimizer.ask(), X[game.queries[i]])
        optimizer.tell(X[game.queries[i]], game.y[i])


def test_without_noise_the_error_is_within_norm_times_deviation():
    """Property G, deterministic part: any regulariser, any time, any point."""
    rng = np.random.default_rng(5)
    true, full = KERNELS["few features"], KERNELS["many features"]
    beta = coefficients(true, norm=10, rng=rng, signs="both")
    f = true.features(Z) @ beta
    for kernel in (true, full):
        norm = norm_in(kernel, true, beta)
        for noise_var in (1e-4, 0.1, 3.0):
            for t in (0, 1, 5, 30):
                where = rng.integers(len(Z), size=t)
                mean, std = OnGrid(kernel, Z).posterior(where, f[where], noise_var)
                assert (np.abs(f - mean) <= norm * std + 1e-7).all()


def test_regrets_by_hand():
    kernel = KERNELS["many features"]
    f = np.cos(3 * Z[:, 0])
    nu, noise_var = np.full(12, 2.0), np.full(12, 0.1)
    game = play(OnGrid(kernel, Z), f, nu=nu, noise_var=noise_var, noise_std=0.1, **streams())
    regrets = game.regrets()
    gaps = f.max() - f[game.queries]
    assert_allclose(regrets["reg"], np.cumsum(gaps))
    assert_allclose(regrets["simple"], [gaps[: i + 1].min() for i in range(12)])
    assert_allclose(regrets["mu"][0], f.max())
    assert (np.diff(regrets["arg"]) >= 0).all()
