"""The stationary kernel that all past tasks share: Matern-5/2 with one lengthscale per input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array

TYPICAL_NOISE = 1e-3  # of the variance of standardised values


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

    def slopes_of_scaled(self, left: Array, right: Array) -> Array:
        """(n, k, d0) derivatives of k(x, z) in z, of points in units of the lengthscales."""
        gaps = right[None, :, :] - left[:, None, :]
        r = np.sqrt(5 * np.einsum("nkd,nkd->nk", gaps, gaps))
        fall = (self.signal * 5 / 3) * (1 + r) * np.exp(-r)
        gaps *= -fall[:, :, None]
        gaps /= self.lengthscales
        return gaps

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
