r"""One belief about the new task, updated value by value over a fixed set of candidates.

In units of the scale s: y = level + s (m(x) + h(x)) + noise, h ~ GP(0, k + level_variance).
Everything is linear in s, so one Cholesky factor serves all scales: with L L' the covariance of
the values told, wy = L^{-1}(y - level), wm = L^{-1} m and V = L^{-1} k(X, Z),

    mean(z) = base(z) + s tilt(z),   base = level + V'wy,   tilt = m - V'wm,   sd(z) = s sqrt(var).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel.prior.shape import Prepared, Shape
from metakel.prior.task_model import TaskModel
from metakel.tasks import Array

SMALLEST_VARIANCE = 1e-12
FIRST_CAPACITY = 64


@dataclass(frozen=True, eq=False)
class Terms:
    """What a belief says of points: at scale s, mean base + s tilt and variance s^2 variance.

    ``noise`` times s^2 is the variance of a value beyond that of the function.
    """

    base: Array
    tilt: Array
    variance: Array
    noise: float

    def __getitem__(self, rows: NDArray[np.intp]) -> Terms:
        return Terms(self.base[rows], self.tilt[rows], self.variance[rows], self.noise)


class Belief:
    """GP belief over candidates ``Z`` (N, d0); `tell` costs O(t N)."""

    def __init__(self, shape: Shape, model: TaskModel, Z: Array) -> None:
        self.shape, self.model = shape, model
        self._candidates = shape.prepare(Z)
        self._base = np.full(len(Z), model.level)
        self._tilt = self._candidates.mean.copy()
        self._variance = self._candidates.diag + model.level_variance
        self._V = np.empty((FIRST_CAPACITY, len(Z)))
        self._L = np.zeros((FIRST_CAPACITY, FIRST_CAPACITY))
        self._wy, self._wm = np.empty(FIRST_CAPACITY), np.empty(FIRST_CAPACITY)
        self._told: list[Prepared] = []
        self._log_pivots = 0.0

    @property
    def t(self) -> int:
        """How many values were told."""
        return len(self._told)

    @property
    def terms(self) -> Terms:
        """At the candidates."""
        return Terms(self._base, self._tilt, self._variance, self.shape.noise)

    @property
    def log_likelihoods(self) -> Array:
        """(15,) log density of the values told, one per scale of the grid."""
        wy, wm = self._wy[: self.t], self._wm[: self.t]
        scales = self.model.scales
        squares = wy @ wy / scales**2 - 2 * (wy @ wm) / scales + wm @ wm
        return np.asarray(-squares / 2 - self.t * np.log(scales) - self._log_pivots)

    def tell(self, x: Array, y: float, candidate: int | None = None) -> None:
        """Take in one value at point x (d0,); ``candidate`` is its row where it is one."""
        t = self.t
        if t == len(self._wy):
            self._grow()
        if candidate is None:
            point = self.shape.prepare(x[None])
            below = self._whiten(point)[:, 0]
        else:
            point = self._candidates[candidate]
            below = self._V[:t, candidate].copy()
        row = self.shape.gram(point, self._candidates)[0]
        row += self.model.level_variance
        if t:
            row -= below @ self._V[:t]
        total = float(point.diag[0]) + self.model.level_variance + self.shape.noise
        pivot = sqrt(max(total - float(below @ below), SMALLEST_VARIANCE))
        row /= pivot
        self._L[t, :t], self._L[t, t], self._V[t] = below, pivot, row
        wy = (y - self.model.level - float(below @ self._wy[:t])) / pivot
        wm = (float(point.mean[0]) - float(below @ self._wm[:t])) / pivot
        self._wy[t], self._wm[t] = wy, wm
        self._log_pivots += log(pivot)
        self._base = self._base + wy * row
        self._tilt = self._tilt - wm * row
        self._variance = np.maximum(self._variance - row * row, SMALLEST_VARIANCE)
        self._told.append(point)

    def at(self, Z: Array) -> Terms:
        """At any points (k, d0)."""
        points = self.shape.prepare(Z)
        V = self._whiten(points)
        variance = points.diag + self.model.level_variance - np.einsum("tk,tk->k", V, V)
        return Terms(
            self.model.level + self._wy[: self.t] @ V,
            points.mean - self._wm[: self.t] @ V,
            np.maximum(variance, SMALLEST_VARIANCE),
            self.shape.noise,
        )

    def _whiten(self, points: Prepared) -> Array:
        """(t, k) matrix L^{-1} k(X, Z)."""
        from scipy.linalg import solve_triangular

        t = self.t
        if t == 0:
            return np.empty((0, len(points.mean)))
        parts = ("scaled", "norms", "phi", "mean", "diag")
        told = Prepared(*(np.concatenate([getattr(p, name) for p in self._told]) for name in parts))
        K = self.shape.gram(told, points) + self.model.level_variance
        return np.asarray(solve_triangular(self._L[:t, :t], K, lower=True))

    def _grow(self) -> None:
        t = self.t
        self._V = np.concatenate([self._V, np.empty_like(self._V)])
        self._wy, self._wm = np.append(self._wy, np.empty(t)), np.append(self._wm, np.empty(t))
        L = np.zeros((2 * t, 2 * t))
        L[:t, :t] = self._L
        self._L = L
