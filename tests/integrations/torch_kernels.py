"""Kernels of every family, as NumPy knows them, for the tests of their torch forms."""

from __future__ import annotations

import numpy as np

import metakel as mk
from metakel.gp.processes import LearnedProcess, LevelAndScale
from metakel.kernels.nystrom import basis_at
from metakel.kernels.stationary import Matern52ARD
from metakel.priors.confidence import prior_kernel


def shape_in(d0: int) -> LearnedProcess:
    """A mean and three principal functions over twelve landmarks."""
    rng = np.random.default_rng(d0)
    shared = Matern52ARD(np.linspace(0.5, 0.9, d0), 1.2, 1e-3)
    basis = basis_at(shared, rng.uniform(-1, 1, (12, d0)))
    directions = np.linalg.qr(rng.standard_normal((basis.r, 3)))[0]
    return LearnedProcess(
        basis, rng.standard_normal(basis.r), directions, np.array([2, 1, 0.5]), 0.1
    )


MODEL = LevelAndScale(level=3.0, level_variance=0.4, scale=2.0, spread=0.5)


def weighted(base: mk.kernels.KernelDictionary) -> mk.KernelSum:
    """Uneven weights, every third of them zero."""
    return mk.KernelSum(base, np.arange(base.p) % 3 / base.p)


def fourier(d0: int) -> mk.kernels.KernelDictionary:
    return mk.kernels.random_fourier(9, d0, lengthscales=[0.5, 1.0], rng=np.random.default_rng(1))


def stationary(d0: int) -> mk.kernels.KernelDictionary:
    """All inputs, one of them, and a lengthscale for each."""
    scales = np.linspace(0.4, 0.8, d0).tolist()
    return (
        mk.kernels.squared_exponential([0.3, 0.6, scales], d0=d0)
        + mk.kernels.matern(2.5, [0.5, 0.9, scales], d0=d0)
        + mk.kernels.matern(1.5, [0.4, 0.5, 0.7], columns=(d0 - 1,), d0=d0)
    )


FAMILIES = {
    "legendre sup": lambda d0: weighted(mk.kernels.tensor_product(d0, 3, scaling="sup")),
    "legendre l2": lambda d0: weighted(
        mk.kernels.tensor_product(d0, 4, scaling="l2", include_constant=True)
    ),
    "cosines": lambda d0: weighted(mk.kernels.tensor_product(d0, 4, basis="cosine", scaling="l2")),
    "fourier": lambda d0: weighted(fourier(d0)),
    "stationary": lambda d0: weighted(stationary(d0)),
    "mixed": lambda d0: weighted(
        stationary(d0) + fourier(d0) + mk.kernels.tensor_product(d0, 2, scaling="l2")
    ),
    "prior": lambda d0: prior_kernel(shape_in(d0), MODEL),
}


def own_features(X):
    return np.column_stack([X[:, 0], X[:, -1] ** 2])


def own_gram(X, Z):
    return np.exp(-np.abs(X[:, None, 0] - Z[None, :, 0]))


OWN = {
    "own features": mk.KernelSum.uniform(
        mk.kernels.from_features(own_features, 2, name="mine"), weight=1.5
    ),
    "own gram": mk.KernelSum.uniform(mk.kernels.from_gram(own_gram, name="mine"), weight=1.5),
}
