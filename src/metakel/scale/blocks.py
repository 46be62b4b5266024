"""Some tasks as one stack of arrays, and what can be taken out of them without loss.

Two facts shrink the data and change no sum over tasks:

- The rows of a task may be rotated: the triangular factor of [Phi y] (as many rows as columns)
  stands for any number of points. It is the square root of the statistics Phi'Phi, Phi'y, y'y.
- Tasks on the same inputs may be rotated among themselves, since groups are tied by norms over all
  tasks: n of them stand for any number, with one Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso import Problem
from metakel.kernels import KernelDictionary

Loss = Literal["points", "tasks"]
Sizes = NDArray[np.intp]
PADDING = 0.25  # rows that padding may add to a task
BLOCK_BYTES = 1 << 24  # features of one block


@dataclass(frozen=True, eq=False)
class Block:
    """k tasks of (nearly) one size; rows beyond the size of a task repeat a point, with y = 0.

    Parameters
    ----------
    X : (k, n, d0) array, or (1, n, d0) where all tasks have the same inputs
    y : (k, n) array
    sizes : (k,) array
    count : int
        How many tasks stand behind the k.
    """

    X: Array
    y: Array
    sizes: Sizes
    count: int

    @property
    def shared(self) -> bool:
        """Whether the tasks are on the same inputs."""
        return len(self.X) < len(self.y) or self.count > len(self.y)

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.y.nbytes

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
        shared = base.grams(self.X[0]) if self.shared else None
        for s, (n, weight) in enumerate(zip(self.sizes, weights, strict=True)):
            K = base.grams(self.X[s, :n]) if shared is None else shared
            grams.append(weight * K)
            values.append(np.sqrt(weight) * self.y[s, :n])
        return Problem.from_grams(grams, values)


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
        factor = _triangle(joined.transpose(0, 2, 1)).transpose(0, 2, 1)
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


def _triangle(A: Array) -> Array:
    """R of the QR factorisation of the last two axes."""
    factor: Array = np.linalg.qr(A, mode="r")  # type: ignore[assignment]
    return factor


@dataclass(frozen=True, eq=False)
class Rows:
    """Observations of several tasks, one task after the other.

    Parameters
    ----------
    X : (N, d0) array
    y : (N,) array
    sizes : (m,) array
    """

    X: Array
    y: Array
    sizes: Sizes

    @property
    def starts(self) -> Sizes:
        """(m,) first row of each task."""
        return np.cumsum(self.sizes) - self.sizes


def blocks_of(rows: Rows, tasks: Sizes, width: int) -> list[Block]:
    """These tasks by similar size; ``width`` is how many numbers a point becomes."""
    order = tasks[np.argsort(-rows.sizes[tasks], kind="stable")]
    sizes = rows.sizes[order]
    out, first = [], 0
    for i in range(1, order.size + 1):
        n = int(sizes[first])
        full = (i - first + 1) * n * width * 8 > BLOCK_BYTES
        if i == order.size or full or sizes[i] < (1 - PADDING) * n:
            out.append(_stacked(rows, order[first:i]))
            first = i
    return out


def _stacked(rows: Rows, tasks: Sizes) -> Block:
    sizes = rows.sizes[tasks]
    places = np.arange(int(sizes.max()))
    inside = places < sizes[:, None]  # (k, n)
    index = rows.starts[tasks][:, None] + np.where(inside, places, 0)
    return Block(rows.X[index], rows.y[index] * inside, sizes, tasks.size)


def merged(X: Array, values: Array, count: int) -> Block:
    """Tasks with values (k, n) on the same inputs X (n, d0), as at most n of them."""
    k, n = values.shape
    y = _triangle(values) if k > n else values
    return Block(X[None], y, np.full(len(y), n), count)
