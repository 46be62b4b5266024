r"""One triangular factor: Gaussian processes on a new task, at every time of its run.

In units of the scale s of the task: y = level + s (m(x) + h(x)) + noise, with
h ~ GP(0, k + level_variance). Everything is linear in s, so one Cholesky factor serves all scales.
With L L' the covariance of the observed values, w = L^{-1} (y - level, m) and V = L^{-1} k(X, Z),

    mean(z) = offset(z) + s slope(z),  offset = level + V'w_0,  slope = m - V'w_1,
    sd(z) = s sqrt(variance(z)).

The first t rows of L, V and w are those of the first t values alone. So one factor holds what was
believed after every value, and only ever grows: `appended` adds rows, `leading` takes some away.

Several processes are given the same values, and most of the arithmetic is done for all at once:
arrays have an axis of P processes first, then t observed points, N candidates or n other points.
Processes that differ in their noise only are of one family, and share what comes from the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.gp.processes import LevelAndScale, PointCache, TaskProcess

SMALLEST_VARIANCE = 1e-12
CAPACITY = 64
AT_ONCE = 64  # more values than these are factorised together, which is faster
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

    def after(self, change: Array, spent: Array) -> Prediction:
        """With (P, 2, n) more of whitened values times covariance, and (P, n) less variance."""
        variance = np.maximum(self.variance - spent, SMALLEST_VARIANCE)
        offset, slope = self.offset + change[:, 0], self.slope - change[:, 1]
        return Prediction(offset, slope, variance, self.noise)

    def of(self, processes: NDArray[np.bool_]) -> Prediction:
        """Of some of the processes."""
        if processes.all():
            return self
        parts = (self.offset, self.slope, self.variance, self.noise)
        return Prediction(*(part[processes] for part in parts))

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
class _Buffer:
    """Rows of L, V and w, of which the first ``used`` are written.

    Factors that grew from one another share them and read only their own first rows. Whoever would
    overwrite a row of another copies them first.
    """

    L: Array  # (P, capacity, capacity)
    V: Array  # (P, capacity, N)
    w: Array  # (P, 2, capacity)
    used: int = 0

    @classmethod
    def empty(cls, processes: int, candidates: int, capacity: int = CAPACITY) -> _Buffer:
        return cls(
            np.zeros((processes, capacity, capacity)),
            np.empty((processes, capacity, candidates)),
            np.empty((processes, 2, capacity)),
        )

    def with_room(self, t: int, count: int) -> _Buffer:
        """Rows that may be written from ``t`` on, with those before them."""
        capacity = self.w.shape[2]
        if self.used == t and t + count <= capacity:
            return self
        if t + count > capacity:
            capacity = max(CAPACITY, 2 * (t + count))
        grown = _Buffer.empty(len(self.w), self.V.shape[2], capacity)
        grown.L[:, :t, :t] = self.L[:, :t, :t]
        grown.V[:, :t], grown.w[:, :, :t], grown.used = self.V[:, :t], self.w[:, :, :t], t
        return grown


@dataclass(frozen=True, eq=False)
class Frame:
    """What does not change while values come in."""

    processes: tuple[TaskProcess, ...]
    task: LevelAndScale
    Z: Array  # (N, d0) candidates

    @cached_property
    def family(self) -> NDArray[np.intp]:
        """(P,) of each process, from 0 on; neighbours that differ in their noise only have one."""
        others = (not one.shares_kernel(other) for one, other in pairwise(self.processes))
        return np.cumsum([0, *others])

    @cached_property
    def kernels(self) -> list[TaskProcess]:
        """One process of each family."""
        first = np.unique(self.family, return_index=True)[1]
        return [self.processes[i] for i in first]

    @cached_property
    def caches(self) -> list[PointCache]:
        """The candidates, for each family."""
        return [kernel.prepare(self.Z) for kernel in self.kernels]

    @cached_property
    def noise(self) -> Array:
        """(P,) variances in units of the squared scale."""
        return np.array([process.noise for process in self.processes])

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        raw, width = (self.Z + 0.0).tobytes(), self.Z.itemsize * self.Z.shape[1]
        rows = range(len(self.Z))
        return {raw[i * width : (i + 1) * width]: i for i in reversed(rows)}

    def candidate(self, x: Array) -> int | None:
        """Which candidate ``x`` (d0,) is, to the last bit; of equal ones the first."""
        return self._numbers.get((x + 0.0).tobytes())

    @cached_property
    def prediction(self) -> Prediction:
        """At the candidates, before any value."""
        mean, diag = (np.array([getattr(c, n) for c in self.caches]) for n in ("mean", "diag"))
        offset = np.full((len(self.processes), len(self.Z)), self.task.level)
        variance = (diag + self.task.level_variance)[self.family]
        return Prediction(offset, mean[self.family], variance, self.noise)


@dataclass(frozen=True, eq=False)
class Factor:
    """Posteriors of all processes of a frame, given the same values; `of` makes an empty one."""

    frame: Frame
    X: Array  # (t, d0) where the values were observed; fantasies come last
    y: Array  # (t,) the values; fantasies have none
    prediction: Prediction  # at the candidates
    _rows: _Buffer
    _parts: tuple[tuple[PointCache, ...], ...]  # of the observed points, for each family
    _cross: dict[bytes, CrossPosterior] = field(default_factory=dict)

    @classmethod
    def of(cls, processes: Sequence[TaskProcess], task: LevelAndScale, Z: Array) -> Factor:
        """Without observations, over candidates ``Z`` (N, d0)."""
        return cls.within(Frame(tuple(processes), task, Z))

    @classmethod
    def within(cls, frame: Frame) -> Factor:
        """Without observations."""
        rows = _Buffer.empty(len(frame.processes), len(frame.Z))
        nowhere = np.zeros((0, frame.Z.shape[1]))
        parts: tuple[tuple[PointCache, ...], ...] = tuple(() for _ in frame.kernels)
        return cls(frame, nowhere, np.zeros(0), frame.prediction, rows, parts)

    @property
    def task(self) -> LevelAndScale:
        """Level and scale of the task."""
        return self.frame.task

    @property
    def t(self) -> int:
        """Number of rows: values, then fantasies."""
        return len(self.X)

    @property
    def L(self) -> Array:
        """(P, t, t) factor of the covariance."""
        return self._rows.L[:, : self.t, : self.t]

    @property
    def V(self) -> Array:
        """(P, t, N) whitened covariance with the candidates."""
        return self._rows.V[:, : self.t]

    @property
    def w(self) -> Array:
        """(P, 2, t) whitened values and means."""
        return self._rows.w[:, :, : self.t]

    # How it grows

    def given(self, X: Array, y: Array, together: int = 0) -> Factor:
        """Given these values (t, d0) and (t,): rows that are the same stay, others are appended.

        Of the first ``together`` values all rows stay or none.
        """
        kept = common_rows(self.X, self.y, X, y)
        if kept < together:
            selected = Factor.within(self.frame).at_once(X[:together], y[:together])
            return selected._one_by_one(X[together:], y[together:])
        return self.leading(kept).appended(X[kept:], y[kept:])

    def leading(self, t: int) -> Factor:
        """The factor of the first ``t`` values."""
        if t == self.t:
            return self
        prediction = self.frame.prediction
        for i in range(t):  # in the order in which it grew, so that it is the same to the bit
            row, w = self.V[:, i], self.w[:, :, i]
            prediction = prediction.after(w[:, :, None] * row[:, None], row * row)
        parts = tuple(() if seen is None or not t else (seen.first(t),) for seen in self.seen)
        return replace(
            self, X=self.X[:t], y=self.y[:t], prediction=prediction, _parts=parts, _cross={}
        )

    def appended(self, X: Array, y: Array) -> Factor:
        """After values ``y`` (k,) at more points ``X`` (k, d0)."""
        return self.at_once(X, y) if len(y) > AT_ONCE else self._one_by_one(X, y)

    def _one_by_one(self, X: Array, y: Array) -> Factor:
        factor = self
        for x, value in zip(X, y, strict=True):
            factor = factor._one_more(x, float(value))
        return factor

    def _one_more(self, x: Array, y: float) -> Factor:
        t, frame, task = self.t, self.frame, self.task
        candidate, rows = frame.candidate(x), self._rows.with_room(t, 1)
        if candidate is None:
            points = [kernel.prepare(x[None]) for kernel in frame.kernels]
            below = self._whitened(points)  # (P, t)
        else:
            points = [cache[candidate] for cache in frame.caches]
            below = rows.V[:, :t, candidate].copy()
        row = rows.V[:, t]  # (P, N), written in place
        np.matmul(below[:, None], rows.V[:, :t], out=rows.V[:, t : t + 1])
        np.subtract(self._with_candidates(points)[frame.family, 0], row, out=row)
        diag = np.array([p.diag[0] for p in points])[frame.family]
        spent = np.einsum("pt,pt->p", below, below)
        pivot = np.sqrt(
            np.maximum(diag + task.level_variance + frame.noise - spent, SMALLEST_VARIANCE)
        )
        row /= pivot[:, None]
        known = (rows.w[:, :, :t] @ below[:, :, None])[:, :, 0]  # (P, 2)
        value = np.array([(y - task.level, p.mean[0]) for p in points])[frame.family]
        w = (value - known) / pivot[:, None]
        rows.L[:, t, :t], rows.L[:, t, t] = below, pivot
        rows.w[:, :, t], rows.used = w, t + 1
        prediction = self.prediction.after(w[:, :, None] * row[:, None], row * row)
        return self._grown(x[None], np.array([y]), points, rows, prediction)

    def _whitened(self, points: Sequence[PointCache]) -> Array:
        """(P, t) vectors L^{-1} k(X, x) for one point, as `CrossPosterior.whiten` has them."""
        t, frame = self.t, self.frame
        below = np.empty((len(frame.processes), t))
        if not t:
            return below
        # LAPACK needs a copy of L. In room of one size, malloc keeps it: a little more every time
        # would be new pages every time, which cost more than the solution.
        L = np.empty(self._rows.L[0].size)[: t * t].reshape(t, t)
        K = [
            kernel.gram(seen, one) + self.task.level_variance
            for kernel, seen, one in zip(frame.kernels, self.seen, points, strict=True)
            if seen is not None
        ]
        for i, f in enumerate(frame.family):
            L[:] = self._rows.L[i, :t, :t]
            below[i] = _solve_lower(L, K[f])[:, 0]
        return below

    def at_once(self, X: Array, y: Array) -> Factor:
        """`appended` by one factorisation."""
        frame = self.frame
        points = [kernel.prepare(X) for kernel in frame.kernels]
        try:
            below, own, V = self._block(points, frame.noise)
        except np.linalg.LinAlgError:  # many values at one point, and hardly any noise
            return self._one_by_one(X, y)
        t, k = self.t, len(X)
        rows = _Buffer.empty(len(V), len(frame.Z), max(CAPACITY, 2 * (t + k)))
        rows.L[:, :t, :t], rows.V[:, :t], rows.w[:, :, :t] = self.L, self.V, self.w
        new, rows.used = slice(t, t + k), t + k
        rows.L[:, new, :t], rows.L[:, new, new], rows.V[:, new] = below, own, V
        rest = np.array([(y - self.task.level, p.mean) for p in points])[frame.family]  # (P, 2, k)
        rest -= rows.w[:, :, :t] @ below.transpose(0, 2, 1)
        for w, L, right in zip(rows.w, own, rest, strict=True):
            w[:, new] = _solve_lower(L, right.T).T
        return self._with_rows(X, y, points, rows, V)

    def with_fantasies(self, X: Array) -> Factor:
        """As if every point (k, d0) had shown its prediction minus one standard deviation.

        One after the other, and at every scale by itself: in whitened units the predictions are met
        exactly and the deviations are the same number for all scales. Fantasies are no evidence
        between processes or scales. They come after all values: the result takes no observation,
        and has no `V`.
        """
        frame, t, k = self.frame, self.t, len(X)
        points = [kernel.prepare(X) for kernel in frame.kernels]
        largest = np.array([p.diag.max() for p in points])[frame.family] + self.task.level_variance
        noise = frame.noise + JITTER * largest
        below, own, V = self._block(points, noise)
        rows, new = _Buffer.empty(len(V), 0, t + k), slice(t, t + k)
        rows.L[:, :t, :t], rows.L[:, new, :t], rows.L[:, new, new] = self.L, below, own
        pivots = np.diagonal(own, axis1=1, axis2=2)
        rows.w[:, :, :t], rows.w[:, 0, new], rows.used = self.w, 0.0, t + k
        rows.w[:, 1, new] = np.sqrt(np.maximum(1 - noise[:, None] / pivots**2, 0.0))
        return self._with_rows(X, np.full(k, np.nan), points, rows, V)

    def _block(self, points: Sequence[PointCache], noise: Array) -> tuple[Array, Array, Array]:
        """More rows of L, (P, k, t) and (P, k, k), and of V, (P, k, N), for k points."""
        k, frame = len(points[0].mean), self.frame
        own = np.array([g.gram(p, p) for g, p in zip(frame.kernels, points, strict=True)])
        below = self.elsewhere().whiten(points).transpose(0, 2, 1)
        K = (own + self.task.level_variance)[frame.family] - below @ below.transpose(0, 2, 1)
        K[:, np.arange(k), np.arange(k)] += noise[:, None]
        factors: Array = np.linalg.cholesky(K).astype(np.float64, copy=False)
        V = self._with_candidates(points)[frame.family]
        if self.t:
            V -= below @ self.V
        for row, L in zip(V, factors, strict=True):
            row[:] = _solve_rows(L, row)
        return below, factors, V

    def _with_rows(
        self, X: Array, y: Array, points: Sequence[PointCache], rows: _Buffer, V: Array
    ) -> Factor:
        """With the predictions that follow from the last rows, whose V is (P, k, N)."""
        spent = np.einsum("pkn,pkn->pn", V, V)
        prediction = self.prediction.after(rows.w[:, :, self.t : rows.used] @ V, spent)
        return self._grown(X, y, points, rows, prediction)

    def _grown(
        self,
        X: Array,
        y: Array,
        points: Sequence[PointCache],
        rows: _Buffer,
        prediction: Prediction,
    ) -> Factor:
        joined = self.__dict__.get("seen")  # once they were needed in one piece
        parts = self._parts if joined is None or not self.t else tuple((s,) for s in joined)
        return Factor(
            self.frame,
            np.concatenate([self.X, X]),
            np.concatenate([self.y, y]),
            prediction,
            rows,
            tuple((*some, more) for some, more in zip(parts, points, strict=True)),
        )

    def _with_candidates(self, points: Sequence[PointCache]) -> Array:
        """(families, k, N) covariance of the function at the points and at the candidates."""
        pairs = zip(self.frame.kernels, points, self.frame.caches, strict=True)
        K = np.array([kernel.gram(*pair) for kernel, *pair in pairs])
        K += self.task.level_variance
        return K

    # What it knows

    @cached_property
    def values(self) -> int:
        """Number of rows that are values."""
        return self.t - int(np.isnan(self.y).sum())

    @cached_property
    def _sums(self) -> Array:
        """(4, P, t + 1) sums of w_0^2, w_0 w_1, w_1^2 and log pivots over the first values."""
        n = self.values
        wy, wm = self._rows.w[:, 0, :n], self._rows.w[:, 1, :n]
        pivots = np.log(np.diagonal(self._rows.L, axis1=1, axis2=2)[:, :n])
        sums = np.zeros((4, len(wy), n + 1))
        np.cumsum([wy * wy, wy * wm, wm * wm, pivots], axis=2, out=sums[:, :, 1:])
        return sums

    def evidence(self, times: Sequence[int] | NDArray[np.intp]) -> Array:
        """(P, k, g) log densities of the first values, as many as ``times`` (k,) say, by scale."""
        task, counts = self.task, np.asarray(times, dtype=np.intp)
        sums = self._sums[:, :, counts, None]
        squares = sums[0] / task.squares - 2 * sums[1] / task.scales + sums[2]
        return np.asarray(-squares / 2 - counts[:, None] * task.log_scales - sums[3])

    @property
    def log_likelihoods(self) -> Array:
        """(P, g) log densities of all values, one per scale of the grid."""
        return self.evidence([self.values])[:, 0]

    @property
    def likely_scales(self) -> Array:
        """(P,) the scales at which the observed values are likeliest, where the mean is 0."""
        return np.asarray(np.sqrt(self._sums[0, :, -1] / max(self.values, 1)))

    @cached_property
    def seen(self) -> list[PointCache | None]:
        """The observed points, for each family; None where there are none."""
        return [PointCache.joined(*parts) if parts else None for parts in self._parts]

    def elsewhere(self, processes: NDArray[np.bool_] | None = None) -> CrossPosterior:
        """For points that are no candidates; of all processes, or of some."""
        chosen = np.ones(len(self.frame.processes), dtype=bool) if processes is None else processes
        key = chosen.tobytes()
        if key not in self._cross:
            self._cross[key] = CrossPosterior.of(self, chosen)
        return self._cross[key]


def common_rows(X: Array, y: Array, Z: Array, z: Array) -> int:
    """How many values (t, d0), (t,) two runs begin with in common."""
    t = min(len(y), len(z))
    # Most often all of the shorter one is shared, to the bit; bytes are compared fastest.
    if X[:t].tobytes() == Z[:t].tobytes() and y[:t].tobytes() == z[:t].tobytes():
        return t
    same = (X[:t] == Z[:t]).all(axis=1) & (y[:t] == z[:t])
    return t if same.all() else int(np.argmin(same))


@dataclass(frozen=True, eq=False)
class CrossPosterior:
    """Posteriors of some of the processes of a factor, at points that need not be candidates."""

    task: LevelAndScale
    t: int
    _family: NDArray[np.intp]  # (P,)
    _kernels: list[TaskProcess]
    _seen: list[PointCache | None]
    _noise: Array
    _L: Array
    _w: Array

    @classmethod
    def of(cls, factor: Factor, chosen: NDArray[np.bool_]) -> CrossPosterior:
        """Of the processes that are chosen."""
        frame = factor.frame
        families = frame.family[chosen].tolist()
        kept = sorted(set(families))
        return cls(
            factor.task,
            factor.t,
            np.array([kept.index(f) for f in families]),
            [frame.kernels[f] for f in kept],
            [factor.seen[f] for f in kept],
            frame.noise[chosen],
            factor.L[chosen],
            factor.w[chosen],
        )

    def at(self, Z: Array) -> Prediction:
        """At points (n, d0)."""
        points = [kernel.prepare(Z) for kernel in self._kernels]
        return self._predict(points, self.whiten(points))

    def covariance(self, Z: Array, A: Array) -> Array:
        """(n, m) of the function at points (n, d0) and (m, d0): first process, at scale 1."""
        k = int(self._family[0])
        left, right = ([kernel.prepare(X) for kernel in self._kernels] for X in (Z, A))
        K = self._kernels[k].gram(left[k], right[k]) + self.task.level_variance
        return np.asarray(K - self.whiten(left)[0].T @ self.whiten(right)[0])

    def whiten(self, points: Sequence[PointCache]) -> Array:
        """(P, t, n) matrices L^{-1} k(X, Z) for points that each family has prepared."""
        V = np.empty((len(self._L), self.t, len(points[0].mean)))
        for f, (kernel, seen, others) in enumerate(
            zip(self._kernels, self._seen, points, strict=True)
        ):
            if seen is not None:
                K = kernel.gram(seen, others)
                K += self.task.level_variance
                for i in np.flatnonzero(self._family == f):
                    V[i] = _solve_lower(self._L[i], K)
        return V

    def _predict(self, points: Sequence[PointCache], V: Array) -> Prediction:
        task, wV = self.task, self._w @ V  # (P, 2, n)
        mean, diag = (np.array([getattr(p, n) for p in points]) for n in ("mean", "diag"))
        variance = (diag + task.level_variance)[self._family] - np.einsum("ptn,ptn->pn", V, V)
        return Prediction(
            task.level + wV[:, 0],
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
