"""The stationary kernel that all past tasks share: Matern-5/2 with one lengthscale per input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array

# Spread of the log-normal priors: lengthscales within a factor of 5 of half the diagonal of the
# domain, signal near the variance 1 of standardised values, noise a thousandth of it, loosely.
LENGTH_SD, SIGNAL_SD, NOISE_SD = 1.6, 0.7, 2.5
TYPICAL_NOISE = 1e-3
SMALLEST_NOISE, LARGEST_NOISE = 1e-4, 1.0
LEVEL_VARIANCE = 0.1
STEPS = 15


def typical_lengthscale(d0: int) -> float:
    """Lengthscale on [-1, 1]^d0 when nothing is known; distances grow like the root of d0."""
    return 0.5 * sqrt(d0)


@dataclass(frozen=True, eq=False)
class Matern52ARD:
    r"""Matern-5/2 kernel :math:`s^2 (1 + \sqrt5 r + \tfrac53 r^2) e^{-\sqrt5 r}` and its noise.

    Parameters
    ----------
    lengthscales : (d0,) array
    signal : float
        Variance s^2 of the standardised values of a task.
    noise : float
        Variance of what the kernel does not explain, in the same units.
    """

    lengthscales: Array
    signal: float
    noise: float

    @classmethod
    def typical(cls, d0: int) -> Matern52ARD:
        """The kernel of a cold start: nothing learned."""
        return cls(np.full(d0, typical_lengthscale(d0)), 1.0, TYPICAL_NOISE)

    def __call__(self, X: Array, Z: Array) -> Array:
        """(n, k) values k(x, z)."""
        return self.of_scaled(*self.scale(X), *self.scale(Z))

    def scale(self, X: Array) -> tuple[Array, Array]:
        """(n, d0) points in units of the lengthscales, and their (n,) squared norms."""
        scaled = X / self.lengthscales
        return scaled, np.einsum("nd,nd->n", scaled, scaled)

    def of_scaled(self, left: Array, left_norms: Array, right: Array, right_norms: Array) -> Array:
        """(n, k) values k(x, z) of points that were scaled before."""
        squares = (-2 * left) @ right.T
        squares += left_norms[:, None]
        squares += right_norms
        K = _profile(squares)
        K *= self.signal
        return K

    def slope(self, X: Array, Z: Array, i: int) -> Array:
        """(n, k) derivatives of k(x, z) in input i of x."""
        gaps = (X[:, None, :] - Z[None, :, :]) / self.lengthscales
        r = np.sqrt(5 * np.einsum("nkd,nkd->nk", gaps, gaps))
        fall = self.signal * 5 / 3 * (1 + r) * np.exp(-r)
        return np.asarray(-fall * gaps[:, :, i] / self.lengthscales[i])

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {
            "lengthscales": self.lengthscales.tolist(),
            "signal": self.signal,
            "noise": self.noise,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Matern52ARD:
        """Inverse of `to_dict`."""
        lengthscales = np.array(data["lengthscales"], dtype=np.float64)
        return cls(lengthscales, float(data["signal"]), float(data["noise"]))


def _profile(squares: Array) -> Array:
    """Matern-5/2 of squared scaled distances, which it overwrites."""
    np.maximum(squares, 0, out=squares)
    squares *= 5
    r = np.sqrt(squares)
    squares /= 3
    squares += r
    squares += 1
    np.negative(r, out=r)
    squares *= np.exp(r, out=r)
    return squares


def fit_shared(X: Sequence[Array], z: Sequence[Array]) -> Matern52ARD:
    """Maximum a posteriori fit to all tasks together.

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
            part, part_slope = _negative_log_likelihood(theta, squares, values)
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


def _negative_log_likelihood(theta: Array, squares: Array, z: Array) -> tuple[float, Array]:
    """Of (tasks, n) values of one size under the kernel, with its slope in theta."""
    from scipy.linalg.lapack import dpotrf, dpotri

    tasks, n = z.shape
    weights = np.exp(-2 * theta[:-2])
    signal, noise = np.exp(theta[-2:])
    r = np.sqrt(5 * (squares @ weights))
    decay = signal * np.exp(-r)
    fall = decay * (1 + r)  # minus the slope of k in the squared scaled distance, times 6 / 5
    K = (fall + decay * r * r / 3).reshape(tasks, n, n)
    value = 0.0
    D = np.empty((tasks, n, n))  # inverse minus alpha alpha', twice the slope in K
    for s in range(tasks):
        C = K[s] + LEVEL_VARIANCE
        C.flat[:: n + 1] += noise
        R, info = dpotrf(C, lower=0, overwrite_a=0)
        if info:
            return 1e25, np.zeros(len(theta))
        inverse, _ = dpotri(R, lower=0)
        inverse = np.triu(inverse)
        inverse += np.triu(inverse, 1).T
        alpha = inverse @ z[s]
        value += float(z[s] @ alpha) / 2 + float(np.log(R.diagonal()).sum())
        D[s] = inverse - np.outer(alpha, alpha)
    pull = D.reshape(-1)
    slope = np.empty(len(theta))
    slope[:-2] = ((pull * fall) @ squares) * weights * (5 / 6)
    slope[-2] = float(pull @ K.reshape(-1)) / 2
    slope[-1] = noise * float(np.einsum("snn->", D)) / 2
    return value, slope
