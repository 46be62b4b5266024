r"""A Gaussian process on a new task, updated one value at a time over fixed candidates.

In units of the scale s of the task: y = level + s (m(x) + h(x)) + noise, with
h ~ GP(0, k + level_variance). Everything is linear in s, so one Cholesky factor serves all scales.
With L L' the covariance of the observed values, wy = L^{-1}(y - level), wm = L^{-1} m and
V = L^{-1} k(X, Z),

    mean(z) = offset(z) + s slope(z),  offset = level + V'wy,  slope = m - V'wm,
    sd(z) = s sqrt(variance(z)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.gp.task_gp import PointCache, TaskModel, TaskProcess

SMALLEST_VARIANCE = 1e-12
FIRST_CAPACITY = 64
JITTER = 1e-9  # of the variance; the same point may be pending twice


@dataclass(frozen=True, eq=False)
class Prediction:
    """At scale s: mean ``offset + s slope``, variance ``s^2 variance`` of the function.

    ``noise`` times s^2 is the variance that an observation has beyond that of the function.
    """

    offset: Array
    slope: Array
    variance: Array
    noise: float

    def __getitem__(self, rows: NDArray[np.intp]) -> Prediction:
        return Prediction(self.offset[rows], self.slope[rows], self.variance[rows], self.noise)


@dataclass(frozen=True, eq=False)
class PredictionGradient:
    """A `Prediction` at n points and its (n, d0) derivatives."""

    value: Prediction
    offset: Array
    slope: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class CrossCovariance:
    """Points and the covariance (n, N) of the function there with the candidates.

    All processes that differ from ``gp`` in their noise only, and observed the same points, share
    it.
    """

    gp: IncrementalGP
    points: PointCache
    rows: Array

    @cached_property
    def observed(self) -> Array:
        """(t, n) covariance with the observed points."""
        return self.gp.covariance(self.points)

    @cached_property
    def own(self) -> Array:
        """(n, n) covariance among the points."""
        K = self.gp.process.gram(self.points, self.points)
        K += self.gp.scale.level_variance
        return K


@dataclass(eq=False)
class _Factor:
    """Rows of L, V, wy and wm, of which the first ``used`` are written.

    Processes that grew from one another share a factor and read only their own first rows. Whoever
    would overwrite a row of another copies the factor first.
    """

    L: Array
    V: Array
    wy: Array
    wm: Array
    used: int = 0

    @classmethod
    def empty(cls, candidates: int) -> _Factor:
        n = FIRST_CAPACITY
        return cls(np.zeros((n, n)), np.empty((n, candidates)), np.empty(n), np.empty(n))

    def with_room(self, t: int) -> _Factor:
        """A factor whose row ``t`` may be written, with the rows before it."""
        if self.used == t < len(self.wy):
            return self
        capacity = max(FIRST_CAPACITY, 2 * t if t == len(self.wy) else len(self.wy))
        grown = _Factor(
            np.zeros((capacity, capacity)),
            np.empty((capacity, self.V.shape[1])),
            np.empty(capacity),
            np.empty(capacity),
            t,
        )
        grown.L[:t, :t] = self.L[:t, :t]
        grown.V[:t], grown.wy[:t], grown.wm[:t] = self.V[:t], self.wy[:t], self.wm[:t]
        return grown


class IncrementalGP:
    """Posterior over candidates ``Z`` (N, d0); `observe` and `with_fantasies` return a new one.

    One observation costs O(t N).
    """

    def __init__(
        self, process: TaskProcess, scale: TaskModel, Z: Array, cache: PointCache | None = None
    ) -> None:
        self.process, self.scale = process, scale
        self._Z = Z
        self._cache = process.prepare(Z) if cache is None else cache
        self._offset = np.full(len(Z), scale.level)
        self._slope = self._cache.mean
        self._variance = self._cache.diag + scale.level_variance
        self._factor = _Factor.empty(len(Z))
        self._seen: tuple[PointCache, ...] = ()  # joined when they are needed
        self.t = 0  # observed points, fantasies last
        self._evidence = 0  # how many of them have a value
        self._log_pivots = 0.0

    @property
    def prediction(self) -> Prediction:
        """At the candidates."""
        return Prediction(self._offset, self._slope, self._variance, self.process.noise)

    @property
    def log_likelihoods(self) -> Array:
        """(g,) log density of the observed values, one per scale of the grid."""
        return np.asarray(log_likelihoods([self])[0])

    def log_likelihoods_at(self, times: NDArray[np.intp]) -> Array:
        """(k, g) `log_likelihoods` as they were after so many values each."""
        n, scales = self._evidence, self.scale.scales
        wy, wm = self._factor.wy[:n], self._factor.wm[:n]
        pivots = np.log(np.diag(self._factor.L)[:n])
        parts = np.cumsum([wy * wy, wy * wm, wm * wm, pivots], axis=1)[:, times - 1, None]
        squares = parts[0] / self.scale.squares - 2 * parts[1] / scales + parts[2]
        return np.asarray(-squares / 2 - times[:, None] * self.scale.log_scales - parts[3])

    @property
    def likely_scale(self) -> float:
        """The scale at which the observed values are likeliest, where the mean is 0."""
        wy = self._factor.wy[: self._evidence]
        return sqrt(float(wy @ wy) / max(self._evidence, 1))

    def with_process(self, process: TaskProcess) -> IncrementalGP:
        """Without observations, for a process that differs in its noise only."""
        return IncrementalGP(process, self.scale, self._Z, self._cache)

    def with_scale(self, scale: TaskModel) -> IncrementalGP:
        """Without observations, for another model of level and scale."""
        return IncrementalGP(self.process, scale, self._Z, self._cache)

    def cross_covariance(self, X: Array, candidate: int | None = None) -> CrossCovariance:
        """Of points (n, d0), or of one candidate, with the candidates; the same for any noise."""
        points = self.process.prepare(X) if candidate is None else self._cache[candidate]
        K = self.process.gram(points, self._cache)
        K += self.scale.level_variance
        return CrossCovariance(self, points, K)

    def observe(
        self, cross: CrossCovariance, y: float, candidate: int | None = None
    ) -> IncrementalGP:
        """After one more value at the one point of ``cross``; ``candidate`` is its number."""
        t, point = self.t, cross.points
        factor = self._factor.with_room(t)
        if candidate is None:
            below = self._whiten(cross.observed)[:, 0]
        else:
            below = factor.V[:t, candidate].copy()
        row = cross.rows[0] - below @ factor.V[:t]
        total = float(point.diag[0]) + self.scale.level_variance + self.process.noise
        pivot = sqrt(max(total - float(below @ below), SMALLEST_VARIANCE))
        row /= pivot
        wy = (y - self.scale.level - float(below @ factor.wy[:t])) / pivot
        wm = (float(point.mean[0]) - float(below @ factor.wm[:t])) / pivot
        factor.L[t, :t], factor.L[t, t], factor.V[t] = below, pivot, row
        factor.wy[t], factor.wm[t], factor.used = wy, wm, t + 1
        after = self._after(point, t + 1, factor)
        after._evidence = self._evidence + 1
        after._log_pivots = self._log_pivots + log(pivot)
        after._offset = self._offset + wy * row
        after._slope = self._slope - wm * row
        after._variance = np.maximum(self._variance - row * row, SMALLEST_VARIANCE)
        return after

    def observe_all(self, cross: CrossCovariance, y: Array) -> IncrementalGP:
        """After values ``y`` (k,) at all points of ``cross``, by one factorisation."""
        from scipy.linalg import cholesky, solve_triangular

        t, points, factor = self.t, cross.points, self._factor
        below = self._whiten(cross.observed)  # (t, k)
        K = cross.own - below.T @ below
        K[np.diag_indices_from(K)] += self.process.noise + SMALLEST_VARIANCE
        corner = cholesky(K, lower=True, check_finite=False)
        centred = np.column_stack([y - self.scale.level, points.mean])
        known = np.column_stack([factor.wy[:t], factor.wm[:t]])
        right = np.column_stack([cross.rows - below.T @ factor.V[:t], centred - below.T @ known])
        solved = solve_triangular(corner, right, lower=True, check_finite=False)
        rows, (wy, wm) = solved[:, :-2], solved[:, -2:].T
        grown = _Factor(
            np.block([[factor.L[:t, :t], np.zeros_like(below)], [below.T, corner]]),
            np.concatenate([factor.V[:t], rows]),
            np.append(factor.wy[:t], wy),
            np.append(factor.wm[:t], wm),
            t + len(y),
        )
        after = self._after(points, t + len(y), grown)
        after._evidence = self._evidence + len(y)
        after._log_pivots = self._log_pivots + float(np.log(np.diag(corner)).sum())
        after._offset = self._offset + wy @ rows
        after._slope = self._slope - wm @ rows
        spent = np.einsum("kn,kn->n", rows, rows)
        after._variance = np.maximum(self._variance - spent, SMALLEST_VARIANCE)
        return after

    def with_fantasies(self, cross: CrossCovariance) -> IncrementalGP:
        """As if every point had shown its prediction minus one standard deviation.

        One after the other, and at every scale by itself: in whitened units the predictions are met
        exactly and the deviations are the same number for all scales. Fantasies are no evidence
        between processes or scales. They come after all values: the result takes no observation.
        """
        from scipy.linalg import cholesky, solve_triangular

        t, points, factor = self.t, cross.points, self._factor
        below = self._whiten(cross.observed)  # (t, k)
        K = cross.own - below.T @ below
        noise = self.process.noise + JITTER * float(points.diag.max() + self.scale.level_variance)
        K[np.diag_indices_from(K)] += noise
        corner = cholesky(K, lower=True, check_finite=False)
        rows = solve_triangular(corner, cross.rows - below.T @ factor.V[:t], lower=True)  # (k, N)
        wm = np.sqrt(np.maximum(1 - noise / np.diag(corner) ** 2, 0.0))
        ahead = _Factor(
            np.block([[factor.L[:t, :t], np.zeros_like(below)], [below.T, corner]]),
            np.concatenate([factor.V[:t], rows]),
            np.append(factor.wy[:t], np.zeros_like(wm)),
            np.append(factor.wm[:t], wm),
            t + len(wm),
        )
        after = self._after(points, t + len(wm), ahead)
        after._slope = self._slope - wm @ rows
        spent = np.einsum("kn,kn->n", rows, rows)
        after._variance = np.maximum(self._variance - spent, SMALLEST_VARIANCE)
        return after

    def _after(self, points: PointCache, t: int, factor: _Factor) -> IncrementalGP:
        after = IncrementalGP.__new__(IncrementalGP)  # much faster than `copy`
        after.__dict__.update(self.__dict__)
        after.t, after._factor = t, factor
        after._seen = (*self._seen, points)
        return after

    @property
    def seen(self) -> PointCache | None:
        """The observed points; None where there are none. A table is searched without them."""
        parts = self._seen
        if len(parts) > 1:
            parts = self._seen = (PointCache.joined(*parts),)
        return parts[0] if parts else None

    def covariance(self, points: PointCache) -> Array:
        """(t, k) of the observed points and the function at ``points``; without noise."""
        seen = self.seen
        if seen is None:
            return np.empty((0, len(points.mean)))
        K = self.process.gram(seen, points)
        K += self.scale.level_variance
        return K

    def at(self, points: PointCache, K: Array | None = None) -> Prediction:
        """At points prepared by a process that differs in its noise at most.

        ``K`` is their `covariance`, which does not differ then.
        """
        return self._predict(points, self._whiten(self.covariance(points) if K is None else K))

    def _predict(self, points: PointCache, V: Array) -> Prediction:
        """Given the whitened covariance (t, k) of the observed points and these."""
        variance = points.diag + self.scale.level_variance - np.einsum("tk,tk->k", V, V)
        return Prediction(
            self.scale.level + self._factor.wy[: self.t] @ V,
            points.mean - self._factor.wm[: self.t] @ V,
            np.maximum(variance, SMALLEST_VARIANCE),
            self.process.noise,
        )

    def gradient_at(self, points: PointCache, Z: Array) -> PredictionGradient:
        """`at` with derivatives, at points (n, d0) and their cache."""
        return self.gradients_at(points, Z, [self])[0]

    def gradients_at(
        self, points: PointCache, Z: Array, relatives: Sequence[IncrementalGP]
    ) -> list[PredictionGradient]:
        """Of several that differ in their noise only, and so share the costly derivatives."""
        slopes = self.process.derivatives(points, Z)
        K, seen = self.covariance(points), self.seen
        # (t, n, d0)
        dK = None if seen is None else self.process.gram_derivative(seen, points, slopes)
        found = []
        for gp in relatives:
            V = gp._whiten(K)
            value = gp._predict(points, V)
            if dK is None:
                zero = np.zeros_like(Z)
                found.append(PredictionGradient(value, zero, slopes.mean, slopes.diag))
                continue
            # The derivative of L^{-1} K enters through L^{-T}: one solve for all right-hand sides.
            t, factor = gp.t, gp._factor
            right = np.column_stack([factor.wy[:t], factor.wm[:t], V])
            solved = _solve_lower(factor.L[:t, :t], right, transposed=True)
            offset, mean = np.tensordot(solved[:, :2].T, dK, axes=1)  # (n, d0) each
            push = np.einsum("tn,tnd->nd", solved[:, 2:], dK)
            found.append(
                PredictionGradient(value, offset, slopes.mean - mean, slopes.diag - 2 * push)
            )
        return found

    def _whiten(self, K: Array) -> Array:
        """(t, k) matrix L^{-1} K."""
        if self.t == 0:
            return K
        return _solve_lower(self._factor.L[: self.t, : self.t], K)


def log_likelihoods(processes: Sequence[IncrementalGP]) -> Array:
    """(processes, g) log densities of the same values, one per scale of the grid."""
    n, scale = processes[0]._evidence, processes[0].scale
    sums = []
    for gp in processes:
        wy, wm = gp._factor.wy[:n], gp._factor.wm[:n]
        sums.append((wy @ wy, wy @ wm, wm @ wm, gp._log_pivots))
    squares, mixed, means, pivots = np.array(sums).T[:, :, None]
    logs: Array = squares / scale.squares
    logs -= 2 * mixed / scale.scales
    logs += means
    logs /= -2
    logs -= n * scale.log_scales
    logs -= pivots
    return logs


def _solve_lower(L: Array, right: Array, *, transposed: bool = False) -> Array:
    """L^{-1} or L^{-T} times ``right``, by LAPACK itself: a climb solves many small systems."""
    from scipy.linalg.lapack import dtrtrs

    # The rows of an array in C order are the columns of its transpose in Fortran order.
    solution, singular = dtrtrs(L.T, right, lower=0, trans=0 if transposed else 1)
    if singular:
        raise InputError(f"the covariance of the values is singular at pivot {singular}")
    return np.asarray(solution)
