"""A sum of base kernels as a kernel of scikit-learn's Gaussian processes."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from metakel._arrays import Array
from metakel.kernels import KernelSum
from metakel.kernels.stationary import Fourier, Stationary
from metakel.kernels.sum import as_kernel, same_kernels

Bounds = tuple[float, float] | Literal["fixed"]


class SklearnKernel(Kernel):  # type: ignore[misc]  # scikit-learn has no types
    r"""The kernel :math:`s \sum_j \eta_j k_j` (Eqs. 5 and 9) for `GaussianProcessRegressor`.

    It can be added, multiplied and exponentiated like scikit-learn's own kernels. Points must lie
    in the domain of the base kernels, [-1, 1] for Legendre polynomials: scale the inputs with a
    `MinMaxScaler` if they do not.

    Parameters
    ----------
    kernel : KernelSum
        Usually ``learn_kernel(...).kernel``.
    scale : float
        The factor s, a hyperparameter: a learned kernel with weights 1 knows *which* functions
        are plausible, not how large they are. No `ConstantKernel` is needed.
    scale_bounds : pair of float, or "fixed"
        Bounds for tuning the factor; "fixed" leaves the kernel as it is.
    """

    def __init__(
        self, kernel: KernelSum, scale: float = 1.0, scale_bounds: Bounds = (1e-5, 1e5)
    ) -> None:
        self.kernel = kernel
        self.scale = scale
        self.scale_bounds = scale_bounds

    @property
    def hyperparameter_scale(self) -> Hyperparameter:
        """The only hyperparameter; theta is its logarithm."""
        return Hyperparameter("scale", "numeric", self.scale_bounds)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Any:
        """(n, k) Gram matrix of ``X`` against ``Y`` (against itself when ``Y`` is None).

        With ``eval_gradient`` also its derivatives in theta, (n, n, 1), or (n, n, 0) if the scale
        is fixed.
        """
        points = np.atleast_2d(X)
        others = None if Y is None else np.atleast_2d(Y)
        K = self.scale * as_kernel("kernel", self.kernel)(points, others)
        if not eval_gradient:
            return K
        if Y is not None:
            raise ValueError("Gradient can only be evaluated when Y is None.")
        free = 0 if self.hyperparameter_scale.fixed else 1
        return K, np.repeat(K[:, :, None], free, axis=2)  # d(s K) / d log s = s K

    def diag(self, X: ArrayLike) -> Array:
        """(n,) values k(x, x)."""
        return np.asarray(self.scale * as_kernel("kernel", self.kernel).diag(np.atleast_2d(X)))

    def is_stationary(self) -> bool:
        """Whether every active base kernel depends on x - z alone."""
        kernel = as_kernel("kernel", self.kernel)
        active = kernel.base.select(kernel.active.tolist())
        return all(isinstance(family, Fourier | Stationary) for family in active.families)

    def __sklearn_clone__(self) -> Self:
        # A KernelSum never changes, and a Gaussian process clones its kernel at every step.
        return type(self)(self.kernel, self.scale, self.scale_bounds)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, SklearnKernel):
            return False
        if self.scale != other.scale or np.any(self.scale_bounds != other.scale_bounds):
            return False
        one, two = self.kernel, other.kernel
        return one is two or (np.array_equal(one.eta, two.eta) and same_kernels(one.base, two.base))

    def __repr__(self) -> str:
        return f"SklearnKernel({self.kernel!r}, scale={self.scale:.3g})"
