"""The posterior of a Gaussian process (Eq. 3), in feature form or in kernel form.

Rows are divided by the noise standard deviation first, so that below the noise has variance 1:
``F`` (t, d) whitened features, ``K = F F'`` (t, t) whitened kernel matrix, ``y`` (t,) whitened.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_points, as_values, check_generator
from metakel.errors import InputError, ShapeError
from metakel.kernels.base import Kernel
from metakel.kernels.sum import KernelSum

# Noise below this share of k(x, x) counts as none, and asks for the more careful form.
TINY = 1e-12
EPS = float(np.finfo(np.float64).eps)
# An eigenvalue this far below zero, over the largest, is no rounding error, not of float32 either.
INDEFINITE = 1e-6


def posterior(
    kernel: Kernel, X: ArrayLike, y: ArrayLike, *, noise_var: float | ArrayLike
) -> Posterior:
    """Condition GP(0, k) on observations (Eq. 3).

    The feature form costs O(t d^2) and is used when the kernel has at most t features, the
    kernel form O(t^3). Both are exact for t = 0, repeated points and the empty kernel.

    Parameters
    ----------
    kernel : Kernel
    X : (t, d0) array
        Where the function was observed; t may be 0.
    y : (t,) array
        What was observed there.
    noise_var : float or (t,) array
        The regulariser of Eq. 3, one number or one for every observation; Theorem 5.1 uses
        ``1 + 2 / t``. It must be positive: at 0 a repeated point with two values has no
        posterior. For (almost) noiseless values give a small number; down to 1e-12 of k(x, x) the
        feature form keeps its accuracy, because it never forms the kernel matrix. Below, values
        that contradict each other at (nearly) the same point move the mean by their difference
        times rounding errors over the noise: a warning says so.
    """
    _check_kernel(kernel)
    points = as_points(X, "posterior")
    values = as_values(y, len(points), "posterior")
    noise = _noise_vector(noise_var, len(points))
    whitened = values / np.sqrt(noise)
    if isinstance(kernel, KernelSum) and kernel.finite:
        F = kernel.features(points) / np.sqrt(noise)[:, None]
        signal = np.einsum("td,td->t", F, F).max(initial=0)
        if kernel.dim <= len(points) or signal * TINY > 1:
            return _from_features(kernel, points, values, noise, F, whitened)
        return _from_root(kernel, points, values, noise, F, whitened)
    return _from_gram(kernel, points, values, noise, whitened)


@dataclass(frozen=True, eq=False)
class Posterior:
    """GP(0, k) given t observations; make it with `posterior`.

    Parameters
    ----------
    kernel : Kernel
    X : (t, d0) array
    y : (t,) array
    noise_var : (t,) array
    factor : array
        Upper triangular R: in feature form R'R = I + F'F, of shape (d, d), in kernel form
        R'R = I + K, of shape (t, t).
    weights : array
        The mean is phi(z)'weights, of shape (d,), or k(z, X)weights, of shape (t,).
    feature_form : bool
    """

    kernel: Kernel
    X: Array
    y: Array
    noise_var: Array
    factor: Array = field(repr=False)
    weights: Array = field(repr=False)
    feature_form: bool

    @property
    def t(self) -> int:
        """How many observations there are."""
        return len(self.y)

    @property
    def information_gain(self) -> float:
        r"""Realised :math:`\log\det(I + \bar\sigma^{-2} K_t)`, twice the paper's gamma of X."""
        return float(2 * np.log(np.abs(np.diag(self.factor))).sum())

    def mean(self, Z: ArrayLike) -> Array:
        """(k,) posterior means."""
        if isinstance(self.kernel, KernelSum) and self.feature_form:
            return np.asarray(self.kernel.features(Z) @ self.weights)
        return np.asarray(self.kernel(Z, self.X) @ self.weights)

    def var(self, Z: ArrayLike) -> Array:
        """(k,) posterior variances of the function, without the noise of an observation."""
        if isinstance(self.kernel, KernelSum) and self.kernel.finite:
            root = self._root(self.kernel.features(Z))
            return np.asarray(np.einsum("kr,kr->k", root, root))
        spread = self._explained(Z)
        explained = np.einsum("tk,tk->k", spread, spread)
        return np.asarray(np.maximum(self.kernel.diag(Z) - explained, 0))

    def std(self, Z: ArrayLike) -> Array:
        """(k,) posterior standard deviations."""
        return np.sqrt(self.var(Z))

    def cov(self, Z: ArrayLike) -> Array:
        """(k, k) posterior covariance."""
        if isinstance(self.kernel, KernelSum) and self.kernel.finite:
            root = self._root(self.kernel.features(Z))
            return np.asarray(root @ root.T)
        spread = self._explained(Z)
        return self.kernel(Z) - spread.T @ spread

    def sample(self, Z: ArrayLike, rng: np.random.Generator, size: int = 1) -> Array:
        """(size, k) functions drawn from the posterior, at the points ``Z``."""
        check_generator(rng)
        if isinstance(self.kernel, KernelSum) and self.kernel.finite:
            root = self._root(self.kernel.features(Z))
        else:
            values, vectors = np.linalg.eigh(self.cov(Z))
            root = vectors * np.sqrt(np.maximum(values, 0))
        return self.mean(Z) + rng.standard_normal((size, root.shape[1])) @ root.T

    def __repr__(self) -> str:
        noise = f"{self.noise_var.min():.3g}" if self.t else "unused"
        if self.t and self.noise_var.max() > self.noise_var.min():
            noise += f" to {self.noise_var.max():.3g}"
        form = "feature" if self.feature_form else "kernel"
        return (
            f"Posterior({self.t} observations in {self.X.shape[1]}D, noise_var {noise}, "
            f"{form} form of {self.kernel!r})"
        )

    def _root(self, Phi: Array) -> Array:
        """(k, r) matrix G with G G' the covariance: a sum of squares, so nothing cancels."""
        if self.feature_form:
            return _solve_transposed(self.factor, Phi.T).T
        assert isinstance(self.kernel, KernelSum)
        F = self.kernel.features(self.X) / np.sqrt(self.noise_var)[:, None]
        # The variance is the minimum over a of ||phi - F'a||^2 + ||a||^2, at (I + K)a = F phi.
        spread = _solve_transposed(self.factor, F @ Phi.T)
        a = _solve(self.factor, spread).T  # (k, t)
        return np.concatenate([Phi - a @ F, a], axis=1)

    def _explained(self, Z: ArrayLike) -> Array:
        """(t, k) matrix S with S'S what the observations take away from the prior covariance."""
        cross = self.kernel(self.X, Z) / np.sqrt(self.noise_var)[:, None]
        return _solve_transposed(self.factor, cross)


def _from_features(
    kernel: Kernel, X: Array, y: Array, noise: Array, F: Array, whitened: Array
) -> Posterior:
    d = F.shape[1]
    # One orthogonal reduction of [F y; I 0]: R'R = I + F'F without squaring F.
    stacked = np.zeros((len(F) + d, d + 1))
    stacked[: len(F), :d] = F
    stacked[: len(F), d] = whitened
    stacked[len(F) + np.arange(d), np.arange(d)] = 1
    reduced = _triangular(stacked)
    factor = reduced[:d, :d]
    weights = _solve(factor, reduced[:d, d]) if d else np.zeros(0)
    if d:
        # Least squares multiplies rounding by the residual times the squared condition.
        sizes = np.abs(np.diag(factor))
        left = np.linalg.norm(whitened - F @ weights) * sizes.max() / sizes.min() ** 2
        largest = np.sqrt(np.einsum("td,td->t", F, F) * noise).max(initial=0)
        _warn_if_lost(EPS * left * largest, y, noise)
    return Posterior(kernel, X, y, noise, factor, weights, feature_form=True)


def _from_root(
    kernel: Kernel, X: Array, y: Array, noise: Array, F: Array, whitened: Array
) -> Posterior:
    t = len(F)
    factor = _triangular(np.concatenate([F.T, np.eye(t)]))  # R'R = I + F F'
    return _in_kernel_form(kernel, X, y, noise, factor[:t], whitened)


def _from_gram(kernel: Kernel, X: Array, y: Array, noise: Array, whitened: Array) -> Posterior:
    scale = 1 / np.sqrt(noise)
    K = kernel(X) * scale[:, None] * scale
    t = len(K)
    try:
        factor: Array = np.asarray(np.linalg.cholesky(np.eye(t) + K).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(K)
        if values[0] < -INDEFINITE * values[-1]:
            _raise_indefinite(kernel, X)
        # Rounding in K exceeds the noise (1 here): only the part of K above it is known.
        root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        factor = _triangular(np.concatenate([root, np.eye(t)]))
    return _in_kernel_form(kernel, X, y, noise, factor, whitened)


def _raise_indefinite(kernel: Kernel, X: Array) -> None:
    """Say which of the kernels is none: a sum has negative eigenvalues only if a term has."""
    named = [(repr(kernel), kernel(X))]
    if isinstance(kernel, KernelSum):
        terms = kernel.base.select(kernel.active.tolist())
        named = list(zip(map(repr, terms.names), terms.grams(X), strict=True))
    found = []
    for name, K in named:
        values = np.linalg.eigvalsh(K)
        if values[0] < -INDEFINITE * max(values[-1], 0.0):
            found.append(f"{name} has eigenvalues from {values[0]:.3g} to {values[-1]:.3g}")
    raise InputError(
        "posterior: the kernel is not positive semi-definite; at these points "
        f"{' and '.join(found) or 'it has negative eigenvalues'}; expected none below 0"
    )


def _check_kernel(kernel: object) -> None:
    if callable(kernel) and hasattr(kernel, "diag"):
        return
    found = type(kernel).__name__
    remedy = f"{found}.kernel" if hasattr(kernel, "kernel") else "KernelSum.uniform(base), say"
    raise InputError(f"posterior: kernel is a {found}; expected a kernel: {remedy}")


def _in_kernel_form(
    kernel: Kernel, X: Array, y: Array, noise: Array, factor: Array, whitened: Array
) -> Posterior:
    inner = _solve_transposed(factor, whitened)
    weights = _solve(factor, inner) / np.sqrt(noise)
    # Weights that are large and of either sign cancel in the mean, their rounding does not.
    _warn_if_lost(EPS * float(np.linalg.norm(weights)) * kernel.diag(X).max(initial=0), y, noise)
    return Posterior(kernel, X, y, noise, factor, weights, feature_form=False)


def _warn_if_lost(error: float, y: Array, noise: Array) -> None:
    """Say so where rounding moves the mean by ``error``, which the values do not allow for."""
    size = np.abs(y).max(initial=0)
    if error > 1e-3 * size:
        warnings.warn(
            f"posterior: noise_var {noise.min():.3g} is so small that rounding moves the mean by "
            f"about {error:.2g}, where values are up to {size:.2g}, because some values contradict "
            "others (at nearly the same point, say); expected noise_var of "
            f"{noise.min() * error / (1e-3 * size):.0e} or more",
            stacklevel=4,
        )


def _triangular(rows: Array) -> Array:
    """Upper triangular R with R'R = rows'rows."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _solve(factor: Array, right: Array) -> Array:
    from scipy.linalg import solve_triangular  # a quarter of a second to import

    return np.asarray(solve_triangular(factor, right, check_finite=False))


def _solve_transposed(factor: Array, right: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, right, trans="T", check_finite=False))


def _noise_vector(noise_var: float | ArrayLike, t: int) -> Array:
    noise = np.array(noise_var, dtype=np.float64)
    if noise.ndim == 0:
        noise = np.full(t, float(noise))
    if noise.shape != (t,):
        raise ShapeError(
            f"posterior: noise_var has shape {noise.shape}; expected one number or ({t},), "
            "one for every observation"
        )
    if not (np.isfinite(noise).all() and (noise > 0).all()):
        raise InputError(
            f"posterior: noise_var holds {noise[~(np.isfinite(noise) & (noise > 0))][0]}; expected "
            "positive numbers (for noiseless values, something small such as 1e-10)"
        )
    return noise
