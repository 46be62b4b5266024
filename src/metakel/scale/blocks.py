"""Tasks as stacks of arrays, with as few rows as the sums over them allow.

Two facts shrink the data and change no sum over tasks:

- The rows of a task may be rotated: the triangular factor of [Phi y] (as many rows as columns)
  stands for any number of points. It is the square root of the statistics Phi'Phi, Phi'y, y'y.
- Tasks on the same inputs may be rotated among themselves, since groups are tied by norms over all
  tasks: n of them stand for any number, with one Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso import Problem
from metakel.kernels import KernelDictionary
from metakel.learn.problem import Loss
from metakel.scale.evaluator import Index

MAX_PADDING = 0.25  # share of the rows of a block that may be padding
BLOCK_BYTES = 1 << 22  # size of the features of one block: several such fit in a cache


class TaskSource(Protocol):
    """Where the observations of some tasks come from, as often as they are needed."""

    @property
    def sizes(self) -> Index:
        """(m,) observations of each task."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether the observations take up memory in any case."""
        ...

    def read(self) -> Rows:
        """The observations; a `ShardError` names the file, the row and the reason."""
        ...


@dataclass(frozen=True, eq=False)
class Rows:
    """Observations of several tasks, one task after the other: a `TaskSource` in memory.

    Parameters
    ----------
    X : (N, d0) array
    y : (N,) array
    sizes : (m,) array
    """

    X: Array
    y: Array
    sizes: Index
    in_memory: ClassVar[bool] = True

    def read(self) -> Rows:
        return self

    @property
    def starts(self) -> Index:
        """(m,) first row of each task."""
        return np.cumsum(self.sizes) - self.sizes

    def __str__(self) -> str:
        return f"{self.sizes.size} tasks in memory"


@dataclass(frozen=True, eq=False)
class TaskBlock:
    """k tasks of similar size; rows beyond the size of a task repeat a point, with y = 0.

    Parameters
    ----------
    X : (k, n, d0) array, or (1, n, d0) where all tasks have the same inputs
    y : (k, n) array
    sizes : (k,) array
    count : int
        Number of tasks for which these k stand.
    """

    X: Array
    y: Array
    sizes: Index
    count: int

    @property
    def shared_inputs(self) -> bool:
        """Whether the tasks have the same inputs."""
        return len(self.X) < len(self.y) or self.count > len(self.y)

    @property
    def multiplicity(self) -> float:
        """Number of tasks for which each of the k stands."""
        return self.count / len(self.y)

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.y.nbytes

    def statistics_nbytes(self, base: KernelDictionary) -> float:
        """Size of the triangular factors of all columns; inf where there are none."""
        return len(self.y) * (base.dim + 1) ** 2 * 8 if base.finite else float("inf")

    def problem(self, base: KernelDictionary, loss: Loss) -> Problem:
        """Eq. 8 for these tasks; with ``loss="tasks"`` they weigh 1/n_s each."""
        weights = np.ones(len(self.y)) if loss == "points" else 1 / self.sizes
        if base.finite:
            made = self._from_features(base, weights)
        else:
            made = self._from_grams(base, weights)
        return replace(made, sizes=self.sizes, task_weights=weights)

    def _from_features(self, base: KernelDictionary, weights: Array) -> Problem:
        k, n = self.y.shape
        stacks = len(self.X)
        rows = base.features(self.X.reshape(stacks * n, -1)).T.reshape(base.dim, stacks, n)
        Phi = rows.transpose(1, 0, 2)  # (k, d, n)
        scale = np.sqrt(weights)[:, None] * (np.arange(n) < self.sizes[:, None])  # (k, n)
        if (scale != 1).any():
            Phi = Phi * scale[:, None, :]
        if len(Phi) < k:
            Phi = np.broadcast_to(Phi, (k, base.dim, n))
        return Problem.from_arrays(Phi.transpose(0, 2, 1), scale * self.y, base.groups)

    def _from_grams(self, base: KernelDictionary, weights: Array) -> Problem:
        grams, values = [], []
        shared = base.grams(self.X[0]) if self.shared_inputs else None
        for s, (n, weight) in enumerate(zip(self.sizes, weights, strict=True)):
            K = base.grams(self.X[s, :n]) if shared is None else shared
            grams.append(weight * K)
            values.append(np.sqrt(weight) * self.y[s, :n])
        return Problem.from_grams(grams, values)


def split_by_inputs(rows: Rows, grids: dict[bytes, TaskBlock]) -> Index:
    """The tasks whose inputs few others have; the other tasks are merged into ``grids``.

    ``grids`` has one block per set of inputs, by the bytes of these inputs.
    """
    same: dict[bytes, list[int]] = {}
    starts = rows.starts
    for s, (start, n) in enumerate(zip(starts.tolist(), rows.sizes.tolist(), strict=True)):
        same.setdefault(rows.X[start : start + n].tobytes(), []).append(s)
    alone: list[int] = []
    for key, tasks in same.items():
        n = int(rows.sizes[tasks[0]])
        if key not in grids and len(tasks) <= n:
            alone += tasks
            continue
        values = rows.y[starts[tasks][:, None] + np.arange(n)]
        X, count = rows.X[starts[tasks[0]] : starts[tasks[0]] + n], len(tasks)
        if key in grids:
            values = np.concatenate([grids[key].y, values])
            count += grids[key].count
        grids[key] = _merged(X, values, count)
    return np.sort(np.array(alone, dtype=np.intp))


def _merged(X: Array, values: Array, count: int) -> TaskBlock:
    """Tasks with values (k, n) on the same inputs X (n, d0), as at most n tasks."""
    k, n = values.shape
    y = _qr(values) if k > n else values
    return TaskBlock(X[None], y, np.full(len(y), n), count)


def stack(rows: Rows, tasks: Index, base: KernelDictionary) -> list[TaskBlock]:
    """Blocks of tasks of similar size, with at most `BLOCK_BYTES` of features each."""
    width = base.dim if base.finite else base.p * int(rows.sizes.max())  # numbers per point
    order = tasks[np.argsort(-rows.sizes[tasks], kind="stable")]
    sizes = rows.sizes[order]
    blocks, first = [], 0
    for i in range(1, order.size + 1):
        n = int(sizes[first])
        full = (i - first + 1) * n * width * 8 > BLOCK_BYTES
        if i == order.size or full or sizes[i] < (1 - MAX_PADDING) * n:
            blocks.append(_stacked(rows, order[first:i]))
            first = i
    return blocks


def _stacked(rows: Rows, tasks: Index) -> TaskBlock:
    sizes = rows.sizes[tasks]
    places = np.arange(int(sizes.max()))
    inside = places < sizes[:, None]  # (k, n)
    index = rows.starts[tasks][:, None] + np.where(inside, places, 0)
    return TaskBlock(rows.X[index], rows.y[index] * inside, sizes, tasks.size)


def compressed(problem: Problem, *, exact: bool) -> Problem:
    """The same problem on the triangular factors of [Phi y], where those have fewer rows.

    Without ``exact`` they come from the Gram matrices (four times as fast), which a certificate
    should not rest on.
    """
    if problem.kernel_mode:
        return problem
    (batch,) = problem.batches
    assert batch.Phi is not None
    k, d, n = batch.Phi.shape
    if n <= d + 1:
        return problem
    joined = np.concatenate([batch.Phi, batch.y[:, None, :]], axis=1)  # (k, d + 1, n)
    factor = None if exact else _cholesky(joined)
    if factor is None:
        factor = _qr(joined.transpose(0, 2, 1)).transpose(0, 2, 1)
    # factor: (k, d + 1, d + 1), one row per column of [Phi y]
    small = replace(
        batch, Phi=np.ascontiguousarray(factor[:, :d]), y=np.ascontiguousarray(factor[:, d])
    )
    return replace(problem, batches=(small,))


def _cholesky(joined: Array) -> Array | None:
    try:
        return np.linalg.cholesky(np.matmul(joined, joined.transpose(0, 2, 1))).astype(
            np.float64, copy=False
        )
    except np.linalg.LinAlgError:  # dependent columns
        return None


def _qr(A: Array) -> Array:
    """R of the QR factorisation of the last two axes."""
    factor: Array = np.linalg.qr(A, mode="r")  # type: ignore[assignment]
    return factor


def restricted(problem: Problem, groups: Index) -> Problem:
    """The problem of these groups only, for one batch of features."""
    (batch,) = problem.batches
    assert batch.Phi is not None
    Phi = np.concatenate([batch.Phi[:, problem.columns(int(j))] for j in groups], axis=1)
    ends = np.cumsum([0, *(problem.dims[j] or 0 for j in groups)]).tolist()
    cuts = [slice(a, b) for a, b in pairwise(ends)]
    made = Problem.from_arrays(Phi.transpose(0, 2, 1), batch.y, cuts)
    return replace(made, sizes=problem.sizes, task_weights=problem.task_weights)


def nbytes(problem: Problem) -> int:
    """Size of the arrays of a problem."""
    return sum(a.nbytes for b in problem.batches for a in (b.Phi, b.K, b.y) if a is not None)
