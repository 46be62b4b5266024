r"""Gaussian processes on a new task, updated one value at a time over fixed candidates.

In units of the scale s of the task: y = level + s (m(x) + h(x)) + noise, with
h ~ GP(0, k + level_variance). Everything is linear in s, so one Cholesky factor serves all scales.
With L L' the covariance of the observed values, w = L^{-1} (y - level, m) and V = L^{-1} k(X, Z),

    mean(z) = offset(z) + s slope(z),  offset = level + V'w_0,  slope = m - V'w_1,
    sd(z) = s sqrt(variance(z)).

Several processes are given the same values, and most of the arithmetic is done for all at once:
arrays have an axis of P processes first, then t observed points, N candidates or n other points.
Processes that differ in their noise only are of one family, and share what comes from the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.gp.task_gp import PointCache, TaskGP, TaskModel, TaskProcess

SMALLEST_VARIANCE = 1e-12
FIRST_CAPACITY = 64
JITTER = 1e-9  # of the variance; the same point may be pending twice


@dataclass(frozen=True, eq=False)
class Prediction:
    """At scale s: mean ``offset + s slope``, variance ``s^2 variance`` of the function, all (P, n).

    ``noise`` (P,) times s^2 is the variance that an observation has beyond that of the function.
    """

    offset: Array
    slope: Array
    variance: Array
    noise: Array

    def of(self, processes: NDArray[np.bool_]) -> Prediction:
        """Of some of the processes."""
        if processes.all():
            return self
        offset, slope, variance = (p[processes] for p in (self.offset, self.slope, self.variance))
        return Prediction(offset, slope, variance, self.noise[processes])

    def at(self, points: NDArray[np.intp]) -> Prediction:
        """At some of the points."""
        offset, slope, variance = (p[:, points] for p in (self.offset, self.slope, self.variance))
        return Prediction(offset, slope, variance, self.noise)


@dataclass(frozen=True, eq=False)
class PredictionGradient:
    """A `Prediction` at n points and its (P, n, d0) derivatives."""

    value: Prediction
    offset: Array
    slope: Array
    variance: Array


@dataclass(eq=False)
class _Factor:
    """Rows of L, V and w, of which the first ``used`` are written.

    Posteriors that grew from one another share a factor and read only their own first rows. Whoever
    would overwrite a row of another copies the factor first.
    """

    L: Array  # (P, capacity, capacity)
    V: Array  # (P, capacity, N)
    w: Array  # (P, 2, capacity)
    used: int = 0

    @classmethod
    def empty(cls, processes: int, candidates: int, capacity: int = FIRST_CAPACITY) -> _Factor:
        return cls(
            np.zeros((processes, capacity, capacity)),
            np.empty((processes, capacity, candidates)),
            np.empty((processes, 2, capacity)),
        )

    def with_room(self, t: int, count: int = 1) -> _Factor:
        """A factor whose rows from ``t`` on may be written, with the rows before them."""
        capacity = self.w.shape[2]
        if self.used == t and t + count <= capacity:
            return self
        if t + count > capacity:
            capacity = max(FIRST_CAPACITY, 2 * (t + count - 1))
        grown = _Factor.empty(len(self.w), self.V.shape[2], capacity)
        grown.L[:, :t, :t] = self.L[:, :t, :t]
        grown.V[:, :t], grown.w[:, :, :t], grown.used = self.V[:, :t], self.w[:, :, :t], t
        return grown


class IncrementalGP:
    """Posteriors of ``processes`` over candidates ``Z`` (N, d0), given the same values.

    `observe` and `with_fantasies` return a new one. One observation costs O(t N) for each process.
    """

    def __init__(
        self,
        processes: Sequence[TaskProcess],
        scale: TaskModel,
        Z: Array,
        caches: Sequence[PointCache] | None = None,
    ) -> None:
        self.processes, self.scale = tuple(processes), scale
        self.family = _families(self.processes)  # (P,) of each process
        first = np.unique(self.family, return_index=True)[1]
        self._kernels = [self.processes[i] for i in first]  # one process of each family
        self._Z = Z
        self._caches = [k.prepare(Z) for k in self._kernels] if caches is None else caches
        self._noise = np.array([process.noise for process in self.processes])
        self._offset = np.full((len(self.processes), len(Z)), scale.level)
        self._slope = np.array([cache.mean for cache in self._caches])[self.family]
        diag = np.array([cache.diag for cache in self._caches])
        self._variance = (diag + scale.level_variance)[self.family]
        self._factor = _Factor.empty(*self._offset.shape)
        # Caches of the observed points, for each family; joined when they are needed.
        self._seen: list[tuple[PointCache, ...]] = [() for _ in self._kernels]
        self._elsewhere: dict[bytes, Elsewhere] = {}
        self.t = 0  # observed points, fantasies last
        self._evidence = 0  # how many of them have a value
        self._log_pivots = np.zeros(len(self.processes))

    @property
    def prediction(self) -> Prediction:
        """At the candidates."""
        return Prediction(self._offset, self._slope, self._variance, self._noise)

    @property
    def log_likelihoods(self) -> Array:
        """(P, g) log densities of the observed values, one per scale of the grid."""
        scale, w = self.scale, self._factor.w[:, :, : self._evidence]
        squares = (w @ w.transpose(0, 2, 1))[:, :, :, None]  # (P, 2, 2, 1)
        logs: Array = squares[:, 0, 0] / scale.squares
        logs -= 2 * squares[:, 0, 1] / scale.scales
        logs += squares[:, 1, 1]
        logs /= -2
        logs -= self._evidence * scale.log_scales
        logs -= self._log_pivots[:, None]
        return logs

    def log_likelihoods_at(self, times: NDArray[np.intp]) -> Array:
        """(P, k, g) `log_likelihoods` as they were after so many values each."""
        n, scales = self._evidence, self.scale.scales
        wy, wm = self._factor.w[:, 0, :n], self._factor.w[:, 1, :n]
        pivots = np.log(np.diagonal(self._factor.L, axis1=1, axis2=2)[:, :n])
        sums = np.cumsum([wy * wy, wy * wm, wm * wm, pivots], axis=2)[:, :, times - 1, None]
        squares = sums[0] / self.scale.squares - 2 * sums[1] / scales + sums[2]
        return np.asarray(-squares / 2 - times[:, None] * self.scale.log_scales - sums[3])

    @property
    def likely_scales(self) -> Array:
        """(P,) the scales at which the observed values are likeliest, where the mean is 0."""
        wy = self._factor.w[:, 0, : self._evidence]
        return np.asarray(np.sqrt((wy * wy).sum(axis=1) / max(self._evidence, 1)))

    def with_scale(self, scale: TaskModel) -> IncrementalGP:
        """Without observations, for another model of level and scale."""
        return IncrementalGP(self.processes, scale, self._Z, self._caches)

    def observe(self, x: Array, y: float, candidate: int | None = None) -> IncrementalGP:
        """After one more value at ``x`` (d0,), which may be the candidate of this number."""
        t, scale = self.t, self.scale
        factor = self._factor.with_room(t)
        if candidate is None:
            points = [kernel.prepare(x[None]) for kernel in self._kernels]
            below = self._whitened(points)  # (P, t)
        else:
            points = [cache[candidate] for cache in self._caches]
            below = factor.V[:, :t, candidate].copy()
        row = factor.V[:, t]  # (P, N), written in place
        np.matmul(below[:, None], factor.V[:, :t], out=factor.V[:, t : t + 1])
        np.subtract(self._with_candidates(points)[self.family, 0], row, out=row)
        diag = np.array([p.diag[0] for p in points])[self.family]
        spent = np.einsum("pt,pt->p", below, below)
        pivot = np.sqrt(
            np.maximum(diag + scale.level_variance + self._noise - spent, SMALLEST_VARIANCE)
        )
        row /= pivot[:, None]
        known = (factor.w[:, :, :t] @ below[:, :, None])[:, :, 0]  # (P, 2)
        value = np.array([(y - scale.level, p.mean[0]) for p in points])[self.family]
        w = (value - known) / pivot[:, None]
        factor.L[:, t, :t], factor.L[:, t, t] = below, pivot
        factor.w[:, :, t], factor.used = w, t + 1
        after = self._after(points, factor)
        after._evidence = self._evidence + 1
        after._log_pivots = self._log_pivots + np.log(pivot)
        after._offset, after._slope = w[:, :1] * row, -w[:, 1:] * row
        after._offset += self._offset
        after._slope += self._slope
        after._variance = self._variance - row * row
        np.maximum(after._variance, SMALLEST_VARIANCE, out=after._variance)
        return after

    def _whitened(self, points: Sequence[PointCache]) -> Array:
        """(P, t) vectors L^{-1} k(X, x) for one point, as `Elsewhere.whiten` has them."""
        t, below = self.t, np.empty((len(self.processes), self.t))
        if not t:
            return below
        # LAPACK needs a copy of L. In room of one size, malloc keeps it: a little more every time
        # would be new pages every time, which cost more than the solution.
        L = np.empty(self._factor.L[0].size)[: t * t].reshape(t, t)
        K = [
            kernel.gram(self.seen(f), one) + self.scale.level_variance
            for f, (kernel, one) in enumerate(zip(self._kernels, points, strict=True))
        ]
        for i, f in enumerate(self.family):
            L[:] = self._factor.L[i, :t, :t]
            below[i] = _solve_lower(L, K[f])[:, 0]
        return below

    def observe_all(self, X: Array, y: Array) -> IncrementalGP:
        """After values ``y`` (k,) at all points ``X`` (k, d0), by one factorisation."""
        points = [kernel.prepare(X) for kernel in self._kernels]
        factor = self._extended(points, self._noise + SMALLEST_VARIANCE)
        t, new = self.t, slice(self.t, factor.used)
        rest = np.array([(y - self.scale.level, p.mean) for p in points])[self.family]  # (P, 2, k)
        rest -= factor.w[:, :, :t] @ factor.L[:, new, :t].transpose(0, 2, 1)
        for w, L, right in zip(factor.w, factor.L, rest, strict=True):
            w[:, new] = _solve_lower(L[new, new], right.T).T
        after = self._after_all(points, factor)
        after._evidence = self._evidence + len(y)
        pivots = np.diagonal(factor.L, axis1=1, axis2=2)[:, new]
        after._log_pivots = self._log_pivots + np.log(pivots).sum(axis=1)
        return after

    def with_fantasies(self, X: Array) -> IncrementalGP:
        """As if every point (k, d0) had shown its prediction minus one standard deviation.

        One after the other, and at every scale by itself: in whitened units the predictions are met
        exactly and the deviations are the same number for all scales. Fantasies are no evidence
        between processes or scales. They come after all values: the result takes no observation.
        """
        points = [kernel.prepare(X) for kernel in self._kernels]
        largest = np.array([p.diag.max() for p in points])[self.family] + self.scale.level_variance
        noise = self._noise + JITTER * largest
        factor = self._extended(points, noise)
        new = slice(self.t, factor.used)
        pivots = np.diagonal(factor.L, axis1=1, axis2=2)[:, new]
        factor.w[:, 0, new] = 0.0
        factor.w[:, 1, new] = np.sqrt(np.maximum(1 - noise[:, None] / pivots**2, 0.0))
        return self._after_all(points, factor)

    def _extended(self, points: Sequence[PointCache], noise: Array) -> _Factor:
        """A factor of its own with rows of L and V for k more points, those of w yet to be set."""
        t, k = self.t, len(points[0].mean)
        own = np.array([g.gram(p, p) for g, p in zip(self._kernels, points, strict=True)])
        below = self.elsewhere().whiten(points).transpose(0, 2, 1)  # (P, k, t)
        K = (own + self.scale.level_variance)[self.family] - below @ below.transpose(0, 2, 1)
        K[:, np.arange(k), np.arange(k)] += noise[:, None]
        factor = _Factor.empty(len(K), len(self._Z), max(FIRST_CAPACITY, 2 * (t + k)))
        factor.L[:, :t, :t], factor.V[:, :t] = self._factor.L[:, :t, :t], self._factor.V[:, :t]
        factor.w[:, :, :t], factor.used = self._factor.w[:, :, :t], t + k
        factor.L[:, t : t + k, :t], factor.L[:, t : t + k, t : t + k] = below, np.linalg.cholesky(K)
        rows = factor.V[:, t : t + k]  # (P, k, N), written in place: they are large
        rows[:] = self._with_candidates(points)[self.family]
        if t:
            rows -= below @ factor.V[:, :t]
        for row, L in zip(rows, factor.L, strict=True):
            row[:] = _solve_rows(L[t : t + k, t : t + k], row)
        return factor

    def _after_all(self, points: Sequence[PointCache], factor: _Factor) -> IncrementalGP:
        """With the predictions that follow from the last rows of the factor."""
        after, new = self._after(points, factor), slice(self.t, factor.used)
        change = factor.w[:, :, new] @ factor.V[:, new]  # (P, 2, N)
        after._offset, after._slope = self._offset + change[:, 0], self._slope - change[:, 1]
        spent = np.einsum("pkn,pkn->pn", factor.V[:, new], factor.V[:, new])
        after._variance = np.maximum(self._variance - spent, SMALLEST_VARIANCE)
        return after

    def _after(self, points: Sequence[PointCache], factor: _Factor) -> IncrementalGP:
        after = IncrementalGP.__new__(IncrementalGP)  # much faster than `copy`
        after.__dict__.update(self.__dict__)
        after.t, after._factor, after._elsewhere = factor.used, factor, {}
        after._seen = [(*seen, more) for seen, more in zip(self._seen, points, strict=True)]
        return after

    def _with_candidates(self, points: Sequence[PointCache]) -> Array:
        """(families, k, N) covariance of the function at the points and at the candidates."""
        K = np.array(
            [g.gram(*pair) for g, *pair in zip(self._kernels, points, self._caches, strict=True)]
        )
        K += self.scale.level_variance
        return K

    def elsewhere(self, processes: NDArray[np.bool_] | None = None) -> Elsewhere:
        """For points that are no candidates; of all processes, or of some."""
        chosen = np.ones(len(self.processes), dtype=bool) if processes is None else processes
        key = chosen.tobytes()
        if key not in self._elsewhere:
            self._elsewhere[key] = Elsewhere(self, chosen)
        return self._elsewhere[key]

    def seen(self, family: int) -> PointCache | None:
        """The observed points; None where there are none. A table is searched without them."""
        parts = self._seen[family]
        if len(parts) > 1:
            parts = self._seen[family] = (PointCache.joined(*parts),)
        return parts[0] if parts else None


class Elsewhere:
    """Posteriors of some of the processes of ``gp`` at points that need not be candidates."""

    def __init__(self, gp: IncrementalGP, chosen: NDArray[np.bool_]) -> None:
        t, factor, families = gp.t, gp._factor, gp.family[chosen].tolist()
        kept = sorted(set(families))
        self.scale, self.t = gp.scale, t
        self._family = np.array([kept.index(f) for f in families])  # (P,)
        self._kernels = [gp._kernels[f] for f in kept]
        self._seen = [gp.seen(f) for f in kept]
        self._noise = gp._noise[chosen]
        self._L, self._w = factor.L[chosen, :t, :t], factor.w[chosen, :, :t]

    def at(self, Z: Array) -> Prediction:
        """At points (n, d0)."""
        points = [kernel.prepare(Z) for kernel in self._kernels]
        return self._predict(points, self.whiten(points))

    def at_observed(self) -> Prediction:
        """At the points that were observed."""
        points = [seen for seen in self._seen if seen is not None]
        return self._predict(points, self.whiten(points))

    def whiten(self, points: Sequence[PointCache]) -> Array:
        """(P, t, n) matrices L^{-1} k(X, Z) for points that each family has prepared."""
        return self._solve(self._covariances(points))

    def _covariances(self, points: Sequence[PointCache]) -> list[Array]:
        """(t, n) of each family: observed points, and the function at ``points``."""
        found = []
        for kernel, seen, others in zip(self._kernels, self._seen, points, strict=True):
            if seen is None:
                found.append(np.empty((0, len(others.mean))))
            else:
                found.append(kernel.gram(seen, others))
                found[-1] += self.scale.level_variance
        return found

    def _solve(self, K: Sequence[Array]) -> Array:
        V = np.empty((len(self._L), *K[0].shape))
        if self.t:
            for i, family in enumerate(self._family):
                V[i] = _solve_lower(self._L[i], K[family])
        return V

    def _predict(self, points: Sequence[PointCache], V: Array) -> Prediction:
        scale, wV = self.scale, self._w @ V  # (P, 2, n)
        mean, diag = (np.array([getattr(p, n) for p in points]) for n in ("mean", "diag"))
        variance = (diag + scale.level_variance)[self._family] - np.einsum("ptn,ptn->pn", V, V)
        return Prediction(
            scale.level + wV[:, 0],
            mean[self._family] - wV[:, 1],
            np.maximum(variance, SMALLEST_VARIANCE),
            self._noise,
        )

    @cached_property
    def _weights(self) -> Array:
        """(P, 2, t) products L^{-T} w."""
        pairs = zip(self._L, self._w, strict=True)
        return np.array([_solve_lower(L, w.T, transposed=True).T for L, w in pairs])

    def gradient(self, Z: Array) -> PredictionGradient:
        """`at` with derivatives, at points (n, d0)."""
        points = [kernel.prepare(Z) for kernel in self._kernels]
        pairs = list(zip(self._kernels, points, strict=True))
        slopes = [kernel.derivatives(cache, Z) for kernel, cache in pairs]
        V = self.whiten(points)
        value = self._predict(points, V)
        mean = np.array([s.mean for s in slopes])[self._family]  # (P, n, d0)
        diag = np.array([s.diag for s in slopes])[self._family]
        if not self.t:
            return PredictionGradient(value, np.zeros_like(mean), mean, diag)
        offset, push = np.empty_like(mean), np.empty_like(mean)
        for f, (kernel, cache) in enumerate(pairs):
            seen = self._seen[f]
            assert seen is not None
            dK = kernel.gram_derivative(seen, cache, slopes[f])  # (t, n, d0)
            members = np.flatnonzero(self._family == f)
            # The derivative of L^{-1} K enters through L^{-T}.
            up = np.array([_solve_lower(self._L[i], V[i], transposed=True) for i in members])
            pulls = (self._weights[members] @ dK.reshape(self.t, -1)).reshape(-1, 2, *Z.shape)
            offset[members], push[members] = pulls[:, 0], np.einsum("ptn,tnd->pnd", up, dK)
            mean[members] -= pulls[:, 1]
        return PredictionGradient(value, offset, mean, diag - 2 * push)


def _families(processes: Sequence[TaskProcess]) -> NDArray[np.intp]:
    """(P,) numbers from 0 on; neighbours that differ in their noise only have the same."""
    numbers = [0]
    for one, other in pairwise(processes):
        alike = isinstance(one, TaskGP) and isinstance(other, TaskGP) and one.mu is other.mu
        numbers.append(numbers[-1] + (not alike))
    return np.array(numbers)


def _solve_lower(L: Array, right: Array, *, transposed: bool = False) -> Array:
    """L^{-1} or L^{-T} times ``right``, by LAPACK itself: a climb solves many small systems."""
    from scipy.linalg.lapack import dtrtrs

    # The rows of an array in C order are the columns of its transpose in Fortran order.
    solution, singular = dtrtrs(L.T, right, lower=0, trans=0 if transposed else 1)
    if singular:
        raise InputError(f"the covariance of the values is singular at pivot {singular}")
    return np.asarray(solution)


def _solve_rows(L: Array, right: Array) -> Array:
    """L^{-1} ``right`` for many columns in C order, which it overwrites."""
    from scipy.linalg.blas import dtrsm

    return np.asarray(dtrsm(1.0, L.T, right.T, side=1, overwrite_b=1)).T
