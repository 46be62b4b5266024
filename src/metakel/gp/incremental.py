r"""One belief about the new task, updated value by value over a fixed set of candidates.

In units of the scale s: y = level + s (m(x) + h(x)) + noise, h ~ GP(0, k + level_variance).
Everything is linear in s, so one Cholesky factor serves all scales: with L L' the covariance of
the values told, wy = L^{-1}(y - level), wm = L^{-1} m and V = L^{-1} k(X, Z),

    mean(z) = base(z) + s tilt(z),   base = level + V'wy,   tilt = m - V'wm,   sd(z) = s sqrt(var).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.task_gp import PointCache, Shape
from metakel.gp.task_scale import TaskModel

SMALLEST_VARIANCE = 1e-12
FIRST_CAPACITY = 64
JITTER = 1e-9  # of the variance; the same point may be supposed twice


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a belief says of points: at scale s, mean base + s tilt and variance s^2 variance.

    ``noise`` times s^2 is the variance of a value beyond that of the function.
    """

    base: Array
    tilt: Array
    variance: Array
    noise: float

    def __getitem__(self, rows: NDArray[np.intp]) -> Prediction:
        return Prediction(self.base[rows], self.tilt[rows], self.variance[rows], self.noise)


@dataclass(frozen=True, eq=False)
class CrossCovariance:
    """A point, and ``row`` (N,) its covariance with the candidates, level included.

    Or several points, with a row for each.
    """

    point: PointCache
    row: Array


class Belief:
    """GP belief over candidates ``Z`` (N, d0); `tell` costs O(t N)."""

    def __init__(
        self, shape: Shape, model: TaskModel, Z: Array, candidates: PointCache | None = None
    ) -> None:
        self.shape, self.model = shape, model
        self._Z = Z
        self._candidates = shape.prepare(Z) if candidates is None else candidates
        self._base = np.full(len(Z), model.level)
        self._tilt = self._candidates.mean.copy()
        self._variance = self._candidates.diag + model.level_variance
        self._V = np.empty((FIRST_CAPACITY, len(Z)))
        self._L = np.zeros((FIRST_CAPACITY, FIRST_CAPACITY))
        self._wy, self._wm = np.empty(FIRST_CAPACITY), np.empty(FIRST_CAPACITY)
        self._told: list[PointCache] = []
        self.t = 0  # how many points were told, the supposed ones last
        self._evidence = 0  # how many of them with a value
        self._log_pivots = 0.0

    @property
    def terms(self) -> Prediction:
        """At the candidates."""
        return Prediction(self._base, self._tilt, self._variance, self.shape.noise)

    @property
    def log_likelihoods(self) -> Array:
        """(15,) log density of the values told, one per scale of the grid."""
        n = self._evidence
        wy, wm = self._wy[:n], self._wm[:n]
        scales = self.model.scales
        squares = wy @ wy / scales**2 - 2 * (wy @ wm) / scales + wm @ wm
        return np.asarray(-squares / 2 - n * np.log(scales) - self._log_pivots)

    @property
    def likely_scale(self) -> float:
        """The scale at which the values told are likeliest, where the mean is 0."""
        wy = self._wy[: self._evidence]
        return sqrt(float(wy @ wy) / max(self._evidence, 1))

    def with_shape(self, shape: Shape) -> Belief:
        """A belief told nothing yet, whose shape differs in the noise only."""
        return Belief(shape, self.model, self._Z, self._candidates)

    def fork(self) -> Belief:
        """A copy to be told what if, without a trace here; of use until this one is told again.

        Both write their next rows into the same arrays, and read only the rows they were told.
        """
        fork = copy(self)
        fork._told = list(self._told)
        return fork

    def tell(self, x: Array, y: float, candidate: int | None = None) -> None:
        """Take in one value at point x (d0,); ``candidate`` is its row where it is one."""
        self.take(self.look(x, candidate), y, candidate)

    def look(self, x: Array, candidate: int | None = None) -> CrossCovariance:
        """A point and its covariance with the candidates; the same whatever the noise."""
        known = None if candidate is None else self._candidates[candidate]
        point = self.shape.prepare(x[None]) if known is None else known
        return CrossCovariance(point, self._with_candidates(point)[0])

    def look_at(self, X: Array) -> CrossCovariance:
        """Several points (k, d0) and their covariance (k, N) with the candidates."""
        points = self.shape.prepare(X)
        return CrossCovariance(points, self._with_candidates(points))

    def _with_candidates(self, points: PointCache) -> Array:
        K = self.shape.gram(points, self._candidates)
        K += self.model.level_variance
        return K

    def take(self, looked: CrossCovariance, y: float, candidate: int | None = None) -> None:
        """Take in one value at a point that was looked at."""
        t, point = self.t, looked.point
        if t == len(self._wy):
            self._grow()
        if candidate is None:
            below = self._whiten(self.covariance(point))[:, 0]
        else:
            below = self._V[:t, candidate].copy()
        row = looked.row - below @ self._V[:t]
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
        self.t += 1
        self._evidence += 1

    def supposing(self, looked: CrossCovariance) -> Belief:
        """A belief that takes every point as its prediction, one standard deviation below.

        One after the other, and at every scale by itself: in whitened units the predictions are
        met exactly and the deviations are the same number for all scales. What is supposed is no
        evidence between beliefs or scales. It comes after all values: the new belief takes none.
        """
        from scipy.linalg import cholesky, solve_triangular

        t, points = self.t, looked.point
        below = self._whiten(self.covariance(points))  # (t, k)
        K = self.shape.gram(points, points) + self.model.level_variance - below.T @ below
        noise = self.shape.noise + JITTER * float(points.diag.max() + self.model.level_variance)
        K[np.diag_indices_from(K)] += noise
        corner = cholesky(K, lower=True, check_finite=False)
        rows = solve_triangular(corner, looked.row - below.T @ self._V[:t], lower=True)  # (k, N)
        wm = np.sqrt(np.maximum(1 - noise / np.diag(corner) ** 2, 0.0))
        after = self.fork()
        after._L = np.block([[self._L[:t, :t], np.zeros_like(below)], [below.T, corner]])
        after._V = np.concatenate([self._V[:t], rows])
        after._wy = np.append(self._wy[:t], np.zeros_like(wm))
        after._wm = np.append(self._wm[:t], wm)
        after._tilt = self._tilt - wm @ rows
        spent = np.einsum("kn,kn->n", rows, rows)
        after._variance = np.maximum(self._variance - spent, SMALLEST_VARIANCE)
        after._told.append(points)
        after.t = t + len(wm)
        return after

    def at(self, Z: Array) -> Prediction:
        """At any points (k, d0)."""
        return self.at_prepared(self.shape.prepare(Z))

    def covariance(self, points: PointCache) -> Array:
        """(t, k) of the values told and the function at the points; without noise."""
        if self.t == 0:
            return np.empty((0, len(points.mean)))
        return self.shape.gram(self._joined(), points) + self.model.level_variance

    def at_prepared(self, points: PointCache, K: Array | None = None) -> Prediction:
        """At points that were prepared by a shape that differs in the noise at most.

        ``K`` is their `covariance`, which does not differ then.
        """
        V = self._whiten(self.covariance(points) if K is None else K)
        variance = points.diag + self.model.level_variance - np.einsum("tk,tk->k", V, V)
        return Prediction(
            self.model.level + self._wy[: self.t] @ V,
            points.mean - self._wm[: self.t] @ V,
            np.maximum(variance, SMALLEST_VARIANCE),
            self.shape.noise,
        )

    def _whiten(self, K: Array) -> Array:
        """(t, k) matrix L^{-1} K."""
        from scipy.linalg import solve_triangular

        if self.t == 0:
            return K
        L = self._L[: self.t, : self.t]
        return np.asarray(solve_triangular(L, K, lower=True, check_finite=False))

    def _joined(self) -> PointCache:
        """All points told; what was joined before is kept."""
        if len(self._told) > 1:
            parts = ("scaled", "norms", "phi", "mean", "diag")
            columns = ([getattr(point, name) for point in self._told] for name in parts)
            self._told = [PointCache(*map(np.concatenate, columns))]
        return self._told[0]

    def _grow(self) -> None:
        t = self.t
        self._V = np.concatenate([self._V, np.empty_like(self._V)])
        self._wy, self._wm = np.append(self._wy, np.empty(t)), np.append(self._wm, np.empty(t))
        L = np.zeros((2 * t, 2 * t))
        L[:t, :t] = self._L
        self._L = L
