"""The posterior of a Gaussian process (Eq. 3), in feature form or in kernel form, and likelihoods.

Rows are divided by the noise standard deviation first, so that the noise has variance 1 below:
``F`` (t, d) whitened features, ``K = F F'`` (t, t) whitened kernel matrix, ``r`` (t,) whitened
values ``y``.

In likelihoods, ``C`` is the covariance of the observations: the kernel matrix plus noise on its
diagonal.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log, pi

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_points, as_values, check_generator, one_each
from metakel.errors import InputError
from metakel.kernels.base import Kernel
from metakel.kernels.stationary import TYPICAL_NOISE, Matern52ARD, typical_lengthscale
from metakel.kernels.sum import KernelSum

# Noise below this fraction of k(x, x) counts as none and needs the more accurate feature form.
TINY = 1e-12
EPS = float(np.finfo(np.float64).eps)
# A negative eigenvalue above this fraction of the largest is no rounding error, even in float32.
INDEFINITE = 1e-6


def posterior(
    kernel: Kernel, X: ArrayLike, y: ArrayLike, *, noise_var: float | ArrayLike
) -> Posterior:
    """Condition GP(0, k) on observations (Eq. 3).

    With at most t features, the feature form is used, which costs O(t d^2); otherwise the kernel
    form, which costs O(t^3). Both are exact for t = 0, repeated points and the empty kernel.

    Parameters
    ----------
    kernel : Kernel
    X : (t, d0) array
        Where the function was observed; t may be 0.
    y : (t,) array
        What was observed there.
    noise_var : float or (t,) array
        The regulariser of Eq. 3, one number or one for every observation; Theorem 5.1 uses
        ``1 + 2 / t``. It must be positive: without noise, a repeated point with two values has no
        posterior. For (almost) noiseless values give a small number. The feature form stays
        accurate down to 1e-12 of k(x, x), because it never forms the kernel matrix. Below that,
        rounding errors are amplified where values at (nearly) the same point contradict each
        other; a warning says so.
    """
    if not (callable(kernel) and hasattr(kernel, "diag")):
        found = type(kernel).__name__
        remedy = f"{found}.kernel" if hasattr(kernel, "kernel") else "KernelSum.uniform(base), say"
        raise InputError(f"posterior: kernel is a {found}; expected a kernel: {remedy}")
    points = as_points(X, "posterior")
    values = as_values(y, len(points), "posterior")
    noise = one_each("posterior: noise_var", noise_var, len(points))
    wrong = ~(np.isfinite(noise) & (noise > 0))
    if wrong.any():
        raise InputError(
            f"posterior: noise_var holds {noise[wrong][0]}; expected positive numbers (for "
            "noiseless values, something small such as 1e-10)"
        )
    noise_std = np.sqrt(noise)
    r = values / noise_std
    mapped = _with_features(kernel)
    F = None if mapped is None else mapped.features(points) / noise_std[:, None]
    variances = kernel.diag(points) if F is None else np.einsum("td,td->t", F, F) * noise
    if F is not None and (F.shape[1] <= len(F) or TINY * (variances / noise).max(initial=0) > 1):
        feature_form = True
        factor, weights, rounding = _regression(F, r)
        rounding *= np.sqrt(variances.max(initial=0))
    else:
        feature_form = False
        if F is None:
            factor = _factor_of_gram(kernel, points, noise_std)
        else:  # R'R = I + F F'
            factor = _triangular(np.concatenate([F.T, np.eye(len(F))]))
        weights = _solve(factor, _solve(factor, r, transposed=True)) / noise_std
        # Large weights of both signs cancel in the mean, their rounding errors do not.
        rounding = EPS * float(np.linalg.norm(weights)) * variances.max(initial=0)
    _warn_if_inaccurate(rounding, values, noise)
    return Posterior(kernel, points, values, noise, factor, weights, feature_form)


@dataclass(frozen=True, eq=False)
class Posterior:
    """GP(0, k) given t observations; made by `posterior`.

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
        The mean is phi(z)'weights, with weights of shape (d,), in feature form, and
        k(z, X)weights, with weights of shape (t,), in kernel form.
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
        r"""Realised :math:`\frac12 \log\det(I + \bar\sigma^{-2} K_t)`, the paper's gamma of X."""
        return float(np.log(np.abs(np.diag(self.factor))).sum())

    def mean(self, Z: ArrayLike) -> Array:
        """(k,) posterior means."""
        mapped = _with_features(self.kernel)
        if mapped is not None and self.feature_form:
            return np.asarray(mapped.features(Z) @ self.weights)
        return np.asarray(self.kernel(Z, self.X) @ self.weights)

    def var(self, Z: ArrayLike) -> Array:
        """(k,) posterior variances of the function, without the noise of an observation."""
        root = self._root(Z)
        if root is not None:
            return np.asarray(np.einsum("kr,kr->k", root, root))
        S = self._explained(Z)
        return np.asarray(np.maximum(self.kernel.diag(Z) - np.einsum("tk,tk->k", S, S), 0))

    def std(self, Z: ArrayLike) -> Array:
        """(k,) posterior standard deviations."""
        return np.sqrt(self.var(Z))

    def cov(self, Z: ArrayLike) -> Array:
        """(k, k) posterior covariance."""
        root = self._root(Z)
        if root is not None:
            return np.asarray(root @ root.T)
        S = self._explained(Z)
        return self.kernel(Z) - S.T @ S

    def sample(self, Z: ArrayLike, rng: np.random.Generator, size: int = 1) -> Array:
        """(size, k) functions drawn from the posterior, at the points ``Z``."""
        check_generator(rng)
        root = self._root(Z)
        if root is None:
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

    def _root(self, Z: ArrayLike) -> Array | None:
        """(k, r) matrix G with G G' the covariance: a sum of squares, so nothing cancels.

        None where the kernel has no finite feature map.
        """
        mapped = _with_features(self.kernel)
        if mapped is None:
            return None
        Phi = mapped.features(Z)
        if self.feature_form:
            return _solve(self.factor, Phi.T, transposed=True).T
        F = mapped.features(self.X) / np.sqrt(self.noise_var)[:, None]
        # The variance is the minimum over a of ||phi - F'a||^2 + ||a||^2, at (I + K)a = F phi.
        a = _solve(self.factor, _solve(self.factor, F @ Phi.T, transposed=True)).T  # (k, t)
        return np.concatenate([Phi - a @ F, a], axis=1)

    def _explained(self, Z: ArrayLike) -> Array:
        """(t, k) matrix S; the observations reduce the prior covariance by S'S."""
        cross = self.kernel(self.X, Z) / np.sqrt(self.noise_var)[:, None]
        return _solve(self.factor, cross, transposed=True)


def _with_features(kernel: Kernel) -> KernelSum | None:
    """The kernel itself, if it has a finite feature map."""
    return kernel if isinstance(kernel, KernelSum) and kernel.finite else None


def _regression(F: Array, r: Array) -> tuple[Array, Array, float]:
    """Factor R'R = I + F'F, ridge regression weights (I + F'F)^{-1} F'r, and their error."""
    d = F.shape[1]
    if not d:
        return np.zeros((0, 0)), np.zeros(0), 0.0
    # One orthogonal reduction of [F r; I 0], which does not square F.
    reduced = _triangular(np.block([[F, r[:, None]], [np.eye(d), np.zeros((d, 1))]]))
    factor = reduced[:d, :d]
    weights, sizes = _solve(factor, reduced[:d, d]), np.abs(np.diag(factor))
    # The residual times the squared condition of R.
    error = EPS * np.linalg.norm(r - F @ weights) * sizes.max() / sizes.min() ** 2
    return factor, weights, float(error)


def _factor_of_gram(kernel: Kernel, X: Array, noise_std: Array) -> Array:
    """Factor R'R = I + K."""
    scale = 1 / noise_std
    K = kernel(X) * scale[:, None] * scale
    identity = np.eye(len(K))
    try:
        return np.asarray(np.linalg.cholesky(identity + K).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(K)
        if values[0] < -INDEFINITE * values[-1]:
            _raise_indefinite(kernel, X)
        # Rounding in K exceeds the noise (1 here): only the part of K above it is known.
        root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        return _triangular(np.concatenate([root, identity]))


def _raise_indefinite(kernel: Kernel, X: Array) -> None:
    """Name the terms at fault: a sum has negative eigenvalues only if a term has."""
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


def _warn_if_inaccurate(rounding: float, residuals: Array, noise: Array) -> None:
    """Warn where rounding moves the mean by more than 0.1 % of the largest residual."""
    largest = np.abs(residuals).max(initial=0)
    if rounding > 1e-3 * largest:
        warnings.warn(
            f"posterior: noise_var {noise.min():.3g} is so small that rounding moves the mean by "
            f"about {rounding:.2g}, where values are up to {largest:.2g}, because some values "
            "contradict others (at nearly the same point, say); expected noise_var of "
            f"{noise.min() * rounding / (1e-3 * largest):.0e} or more",
            stacklevel=3,
        )


def _triangular(rows: Array) -> Array:
    """Upper triangular R with R'R = rows'rows."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _solve(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    from scipy.linalg import solve_triangular  # a quarter of a second to import

    found = solve_triangular(factor, right, trans="T" if transposed else "N", check_finite=False)
    return np.asarray(found)


LOG_2PI = log(2 * pi)

# Maximum a posteriori fit of the Matern kernel. Spread of the log-normal priors: lengthscales
# within a factor of 5 of half the diagonal of the domain, signal near the variance 1 of
# standardised values, noise a thousandth of it, loosely.
LENGTH_SD, SIGNAL_SD, NOISE_SD = 1.6, 0.7, 2.5
# A longer log length scale than the typical one by more than this would make a parameter a straight
# line over its whole range, also in the residual: a search would sit on an edge and learn nothing.
LONGEST = 1.5
SIGNALS, NOISES = (0.05, 20.0), (1e-4, 1.0)
LEVEL_VARIANCE = 0.1
STEPS = 15
NOT_POSITIVE_DEFINITE = 1e25  # objective where rounding leaves no Cholesky factor


def log_density(C: Array, y: Array) -> Array:
    """Log density of N(0, C) at y (..., n), for one covariance (n, n) or a stack (..., n, n)."""
    root = np.linalg.cholesky(C)
    white = np.linalg.solve(root, np.broadcast_to(y, C.shape[:-1])[..., None])[..., 0]
    log_root = np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.asarray(-np.square(white).sum(axis=-1) / 2 - log_root - y.shape[-1] * LOG_2PI / 2)


def white_noise_log_density(y: Array) -> float:
    """Log density of N(0, I) at y (n,)."""
    return float(-np.square(y).sum() / 2 - len(y) * LOG_2PI / 2)


def log_evidence(kernel: Kernel, X: Array, y: Array, *, noise_var: float) -> float:
    """Log density of the values y (n,) at X (n, d0) under GP(0, k) plus noise."""
    return float(log_density(kernel(X) + noise_var * np.eye(len(y)), y))


def negative_log_likelihood(C: Array, y: Array) -> tuple[float, Array]:
    r"""Minus the log density of N(0, C) at y without its constant, and its slope in C.

    .. math:: \tfrac12 y^T C^{-1} y + \tfrac12 \log\det C, \qquad
              \tfrac12 (C^{-1} - C^{-1} y y^T C^{-1})

    Raises ``LinAlgError`` where C is not positive definite.
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    R, info = dpotrf(C, lower=0, overwrite_a=0)
    if info:
        raise np.linalg.LinAlgError("the covariance is not positive definite")
    inverse, _ = dpotri(R, lower=0)  # below the diagonal are the zeros of R
    inverse = inverse + inverse.T
    inverse.flat[:: len(y) + 1] /= 2
    alpha = inverse @ y
    value = float(y @ alpha) / 2 + float(np.log(R.diagonal()).sum())
    return value, (inverse - np.outer(alpha, alpha)) / 2


def fit_matern52(X: Sequence[Array], z: Sequence[Array]) -> Matern52ARD:
    """Maximum a posteriori lengthscales, signal and noise of one kernel for all tasks.

    From points (n_s, d0) and values (n_s,) of every task, standardised.
    """
    from scipy.optimize import minimize

    d0 = X[0].shape[1]
    stacks = _stacks(X, z)
    center = np.append(np.full(d0, log(typical_lengthscale(d0))), [0.0, log(TYPICAL_NOISE)])
    spread = np.append(np.full(d0, LENGTH_SD), [SIGNAL_SD, NOISE_SD])

    def objective(theta: Array) -> tuple[float, Array]:
        value, slope = 0.0, np.zeros(d0 + 2)
        for squares, values in stacks:
            part, part_slope = _matern52_objective(theta, squares, values)
            value, slope = value + part, slope + part_slope
        off = (theta - center) / spread
        return value + float(off @ off) / 2, slope + off / spread

    bounds = [(c - 3.5, c + LONGEST) for c in center[:d0]]
    bounds += [(log(low), log(high)) for low, high in (SIGNALS, NOISES)]
    start = center.copy()
    start[-1] = log(1e-2)
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": STEPS, "maxfun": 2 * STEPS},
    )
    *lengthscales, signal, noise = np.exp(found.x)
    return Matern52ARD(np.array(lengthscales), float(signal), float(noise))


def _stacks(X: Sequence[Array], z: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Tasks of one size together: squared differences (tasks * n * n, d0), values (tasks, n)."""
    stacks = []
    for n in sorted({len(values) for values in z}):
        chosen = [s for s, values in enumerate(z) if len(values) == n]
        points = np.array([X[s] for s in chosen])  # (tasks, n, d0)
        gaps = points[:, :, None, :] - points[:, None, :, :]
        stacks.append(((gaps**2).reshape(-1, points.shape[2]), np.array([z[s] for s in chosen])))
    return stacks


def _matern52_objective(theta: Array, squares: Array, z: Array) -> tuple[float, Array]:
    """Negative log likelihood of values (tasks, n), and its slope.

    ``theta`` (d0 + 2,) holds the logarithms of lengthscales, signal and noise.
    """
    tasks, n = z.shape
    weights = np.exp(-2 * theta[:-2])
    signal, noise = np.exp(theta[-2:])
    r = np.sqrt(5 * (squares @ weights))
    decay = signal * np.exp(-r)
    fall = decay * (1 + r)  # minus the slope of k in the squared scaled distance, times 6 / 5
    K = (fall + decay * r * r / 3).reshape(tasks, n, n)
    value, slope_in_K = 0.0, np.empty((tasks, n, n))
    for s in range(tasks):
        C = K[s] + LEVEL_VARIANCE
        C.flat[:: n + 1] += noise
        try:
            part, slope_in_K[s] = negative_log_likelihood(C, z[s])
        except np.linalg.LinAlgError:
            return NOT_POSITIVE_DEFINITE, np.zeros(len(theta))
        value += part
    pull = slope_in_K.reshape(-1)
    slope = np.empty(len(theta))
    slope[:-2] = ((pull * fall) @ squares) * weights * (5 / 3)
    slope[-2] = float(pull @ K.reshape(-1))
    slope[-1] = noise * float(np.einsum("snn->", slope_in_K))
    return value, slope
