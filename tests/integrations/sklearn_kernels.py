"""Learned kernels to put through scikit-learn's tests, and the tests to put them through."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from types import ModuleType

import numpy as np
from sklearn.gaussian_process.kernels import RBF, Kernel, WhiteKernel

import metakel as mk
from metakel.integrations.sklearn import SklearnKernel


def sinusoids(X: np.ndarray) -> np.ndarray:
    """A feature map of one's own, at module level so that it can be pickled."""
    return np.column_stack([np.sin(X[:, 0]), np.cos(2 * X[:, 0])])


def bridge(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """A kernel of one's own without features: the product of minima, for points above -5."""
    return np.prod(np.minimum(X[:, None] + 5, Z[None] + 5) / 10, axis=2)


def weighted(base: mk.kernels.KernelDictionary) -> mk.KernelSum:
    """Unequal weights, one of them zero."""
    return mk.KernelSum(base, np.append(0.0, np.linspace(0.3, 1.2, base.p - 1)))


WAVES = mk.kernels.random_fourier(12, 2, lengthscales=[0.5, 2.0], rng=np.random.default_rng(0))
SMOOTH = mk.kernels.squared_exponential([0.7, 1.5], d0=2) + mk.kernels.matern(
    1.5, [1.0], columns="each", d0=2
)
COSINES = mk.kernels.tensor_product(2, 4, basis="cosine", scaling="l2")
OWN = mk.kernels.from_features(sinusoids, 2, name="sinusoids", d0=2) + mk.kernels.from_gram(
    bridge, name="bridge", d0=2
)

KERNELS: dict[str, Kernel] = {
    "waves": SklearnKernel(weighted(WAVES), 2.0),
    "smooth": SklearnKernel(weighted(SMOOTH), 0.5, (0.1, 100.0)),
    "cosines": SklearnKernel(weighted(COSINES)),
    "own": SklearnKernel(mk.KernelSum(OWN, np.array([0.5, 2.0]))),
    "empty": SklearnKernel(mk.KernelSum(WAVES, np.zeros(12))),
    "fixed": SklearnKernel(weighted(WAVES), 3.0, "fixed"),
    "sum": SklearnKernel(weighted(COSINES)) + RBF(2.0),
    "product": SklearnKernel(weighted(WAVES)) * SklearnKernel(weighted(SMOOTH)),
    "constant times": 3.0 * SklearnKernel(weighted(SMOOTH)),
    "power": SklearnKernel(weighted(COSINES), 0.1) ** 2,
    "white": SklearnKernel(weighted(WAVES)) + WhiteKernel(0.5),
}
BASIC = ("waves", "smooth", "cosines", "own", "empty")


def host_tests(module: ModuleType) -> list[Callable[[Kernel], None]]:
    """Functions of a test module whose only argument is a kernel, whatever it is run with there."""
    return [
        test
        for name, test in vars(module).items()
        if name.startswith("test_") and list(signature(test).parameters) == ["kernel"]
    ]
