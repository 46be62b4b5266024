r"""Likelihoods of Gaussian processes: densities, their slopes, and the fit of hyper-parameters.

``C`` is the covariance of the observations, the kernel matrix plus noise on its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, pi

import numpy as np

from metakel._arrays import Array
from metakel.kernels.base import Kernel
from metakel.kernels.matern52 import TYPICAL_NOISE, Matern52ARD, typical_lengthscale

LOG_2PI = log(2 * pi)

# Maximum a posteriori fit of the Matern kernel. Spread of the log-normal priors: lengthscales
# within a factor of 5 of half the diagonal of the domain, signal near the variance 1 of
# standardised values, noise a thousandth of it, loosely.
LENGTH_SD, SIGNAL_SD, NOISE_SD = 1.6, 0.7, 2.5
SMALLEST_NOISE, LARGEST_NOISE = 1e-4, 1.0
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
    inverse, _ = dpotri(R, lower=0)
    inverse = np.triu(inverse)
    inverse += np.triu(inverse, 1).T
    alpha = inverse @ y
    value = float(y @ alpha) / 2 + float(np.log(R.diagonal()).sum())
    return value, (inverse - np.outer(alpha, alpha)) / 2


def fit_matern52(X: Sequence[Array], z: Sequence[Array]) -> Matern52ARD:
    """Maximum a posteriori lengthscales, signal and noise of one kernel for all tasks.

    Parameters
    ----------
    X : sequence of (n_s, d0) arrays
    z : sequence of (n_s,) arrays
        Values, standardised in every task.
    """
    from scipy.optimize import minimize

    d0 = X[0].shape[1]
    stacks = _stacks(X, z)
    centre = np.append(np.full(d0, log(typical_lengthscale(d0))), [0.0, log(TYPICAL_NOISE)])
    spread = np.append(np.full(d0, LENGTH_SD), [SIGNAL_SD, NOISE_SD])

    def objective(theta: Array) -> tuple[float, Array]:
        value, slope = 0.0, np.zeros(d0 + 2)
        for squares, values in stacks:
            part, part_slope = _matern52_objective(theta, squares, values)
            value, slope = value + part, slope + part_slope
        off = (theta - centre) / spread
        return value + float(off @ off) / 2, slope + off / spread

    bounds = [
        *[(c - 3.5, c + 3.5) for c in centre[:d0]],
        (log(0.05), log(20.0)),
        (log(SMALLEST_NOISE), log(LARGEST_NOISE)),
    ]
    start = centre.copy()
    start[-1] = log(1e-2)
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": STEPS, "maxfun": 2 * STEPS},
    )
    theta = np.asarray(found.x)
    return Matern52ARD(np.exp(theta[:d0]), float(np.exp(theta[-2])), float(np.exp(theta[-1])))


def _stacks(X: Sequence[Array], z: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Tasks of one size together: squared differences (tasks * n * n, d0), values (tasks, n)."""
    sizes = np.array([len(values) for values in z])
    stacks = []
    for n in np.unique(sizes):
        chosen = np.flatnonzero(sizes == n).tolist()
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
