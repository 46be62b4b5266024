r"""The Meta-KeL problem in arrays (Eqs. 7, 8, A.2 and A.3): the data and the objective.

Notation, with shapes
---------------------
m tasks, task s with n_s observations, N in all; p groups, group j of d_j columns, d in all.

=========  ==============  ===========================================================
Phi        (m, d, n)       features of a batch of tasks, one row per feature
K          (p, m, n, n)    or one Gram matrix per group and task instead
y          (m, n)          observations
beta       (m, d)          coefficients; group j is a set of columns
z          (m, d)          2/N Phi (y - Phi' beta): minus the gradient of the loss
lam        (p,)            one lambda per group
=========  ==============  ===========================================================

.. math:: P(\beta) = \frac1N \|y - \Phi\beta\|^2 + \sum_j \lambda_j \|\beta^{(j)}\|_2

The solver reads the data only through sums over tasks (`evaluators.Evaluator`). With
x_j = eta_j / lam_j and K_s(x) = sum_j x_j Phi_sj' Phi_sj, eliminating beta from Eq. 7 leaves

.. math:: g(x) = \frac1N \sum_s y_s^\top r_s + \tfrac12 \sum_j \lambda_j^2 x_j, \qquad
          r_s = \left(I + \tfrac2N K_s(x)\right)^{-1} y_s,

a convex function of p numbers whose data part does not depend on lambda. Here r is the residual of
beta^(j) = x_j z^(j) with z = (2/N) Phi r, so that dg/dx_j = (lam_j^2 - ||z^(j)||^2) / 2.

The tasks are coupled only through the p group norms, so we optimise those p numbers directly with
projected Newton (`solve`). One iteration costs m small factorisations: of the Gram matrices of the
active columns, or of n x n matrices where these are smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError

Index = NDArray[np.intp]
Loss = Literal["points", "tasks"]
# Tasks share an array while padding adds at most this fraction of rows to each of them.
PADDING = 0.25
# A negative eigenvalue this large, relative to the largest, is no rounding error (nor of float32).
INDEFINITE = 1e-6


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Tasks of similar size, padded with zero rows, which change neither loss nor gradient.

    Exactly one of ``Phi`` (m, d, n) and ``K`` (p, m, n, n) is given.
    """

    tasks: Index
    y: Array
    Phi: Array | None = None
    K: Array | None = None

    @property
    def n(self) -> int:
        return int(self.y.shape[1])


@dataclass(frozen=True, eq=False)
class Problem:
    """Past tasks as arrays, with one group of features per base kernel.

    Use `from_arrays`, `from_tasks` or `from_grams` to make one.

    ``count`` is N where these tasks are a part of all tasks. ``evaluator`` makes the evaluator of
    tasks that are read in parts (`metakel.scale`); None is for tasks in memory.
    """

    batches: Sequence[TaskBatch]
    dims: tuple[int | None, ...]
    sizes: Index
    task_weights: Array
    count: int | None = None
    evaluator: Callable[[Problem], Any] | None = field(default=None, repr=False)

    @cached_property
    def starts(self) -> Index:
        """(p + 1,) where the columns of each group begin."""
        return group_starts([k or 0 for k in self.dims])

    @classmethod
    def from_arrays(
        cls, Phi: ArrayLike, y: ArrayLike, groups: Sequence[slice] | None = None
    ) -> Problem:
        """Tasks of equal size.

        Parameters
        ----------
        Phi : (m, n, d) array
            Not copied, whatever its layout; fastest as a transposed view of (m, d, n) memory.
        y : (m, n) array
            Not copied either: do not change the arrays while the problem is in use.
        groups : sequence of p slices, optional
            They partition the d columns in order. None means one column per group.
        """
        features, values = np.asarray(Phi, np.float64), np.asarray(y, np.float64)
        if features.ndim != 3 or values.shape != features.shape[:2]:
            raise ShapeError(
                f"Phi has shape {features.shape} and y {values.shape}; "
                "expected (m, n, d) and (m, n)"
            )
        m, n, d = features.shape
        if features.size == 0:
            raise InputError(f"Phi has shape {features.shape}; expected no empty dimension")
        check_finite(values, "y")  # Phi may be large: its first products are checked instead
        batch = TaskBatch(np.arange(m), values, Phi=features.transpose(0, 2, 1))
        return cls((batch,), group_sizes(groups, d), np.full(m, n), np.ones(m))

    @classmethod
    def from_tasks(
        cls,
        Phi: Sequence[ArrayLike],
        y: Sequence[ArrayLike],
        groups: Sequence[slice] | None = None,
        *,
        loss: Loss = "points",
    ) -> Problem:
        """Tasks of any size: one (n_s, d) array and one (n_s,) vector or (n_s, 1) column each.

        ``loss="points"`` gives every observation the same weight (1/N, with N the number of
        observations of all tasks); ``loss="tasks"`` gives every task the same weight (the mean
        over tasks of each task's mean).
        """
        features, sizes, weights, padded = _as_tasks("Phi", Phi, y, loss)
        d = features[0].shape[1]
        batches = []
        for tasks, values in padded:
            stacked = np.zeros((tasks.size, d, values.shape[1]))
            for i, s in enumerate(tasks):
                stacked[i, :, : sizes[s]] = np.sqrt(weights[s]) * features[s].T
            check_finite(stacked, "Phi")
            batches.append(TaskBatch(tasks, values, Phi=stacked))
        return cls(tuple(batches), group_sizes(groups, d), sizes, weights)

    @classmethod
    def from_grams(
        cls,
        K: Sequence[ArrayLike] | Array,
        y: Sequence[ArrayLike] | Array,
        *,
        loss: Loss = "points",
    ) -> Problem:
        """One (p, n_s, n_s) stack of Gram matrices per task; the rest as in `from_tasks`."""
        grams, sizes, weights, padded = _as_tasks("K", K, y, loss)
        p = grams[0].shape[0]
        batches = []
        for tasks, values in padded:
            stacked = np.zeros((p, *values.shape, values.shape[1]))
            for i, s in enumerate(tasks):
                np.multiply(grams[s], weights[s], out=stacked[:, i, : sizes[s], : sizes[s]])
            check_finite(stacked, "K")
            check_symmetry(stacked, tasks)
            batches.append(TaskBatch(tasks, values, K=stacked))
        return cls(tuple(batches), (None,) * p, sizes, weights)

    def __repr__(self) -> str:
        few, many = self.sizes.min(), self.sizes.max()
        points = f"{few}" if few == many else f"{few} to {many}"
        of = "Gram matrices" if self.kernel_mode else f"{self.d} columns"
        return f"Problem({self.m} tasks of {points} observations, {self.p} groups of {of})"

    @property
    def m(self) -> int:
        """Number of tasks."""
        return self.sizes.size

    @property
    def p(self) -> int:
        """Number of groups."""
        return len(self.dims)

    @property
    def d(self) -> int | None:
        """Number of columns; None in kernel mode."""
        return None if self.kernel_mode else int(self.starts[-1])

    @property
    def kernel_mode(self) -> bool:
        """Whether tasks are given by Gram matrices instead of features."""
        return self.batches[0].K is not None

    @cached_property
    def total(self) -> int:
        """N, the number of observations of all tasks together."""
        return int(self.sizes.sum()) if self.count is None else self.count

    @cached_property
    def energy(self) -> float:
        """Mean square of y, with the weights of the loss; duality gaps are relative to it."""
        return float(sum(np.vdot(b.y, b.y) for b in self.batches)) / self.total

    def columns(self, j: int) -> slice:
        """The columns of group j."""
        return slice(int(self.starts[j]), int(self.starts[j + 1]))

    def spectra(self) -> list[Array]:
        """Eigenvalues of every task's Gram matrix: p arrays (m, r_j), one per group.

        They are scaled for the noise event of `metakel.learn.rules`: with ``loss="tasks"`` the
        score of a task contains its weight twice, and so do its eigenvalues.
        """
        out = []
        for j in range(self.p):
            parts = [self._eigenvalues(batch, j) for batch in self.batches]
            full = np.zeros((self.m, max(part.shape[1] for part in parts)))
            for batch, part in zip(self.batches, parts, strict=True):
                # The data of the batch already contain one factor of the weight.
                weight = self.task_weights[batch.tasks][:, None]
                full[batch.tasks, : part.shape[1]] = weight * part
            out.append(full)
        return out

    def _eigenvalues(self, batch: TaskBatch, j: int) -> Array:
        if batch.K is not None:
            gram = batch.K[j]
        else:
            assert batch.Phi is not None
            F = batch.Phi[:, self.columns(j), :]
            turned = F.transpose(0, 2, 1)
            gram = F @ turned if F.shape[1] <= F.shape[2] else turned @ F
        if gram.shape[-1] == 1:
            values: Array = gram[..., 0]
        else:
            values = np.linalg.eigvalsh(gram).astype(np.float64, copy=False)
        if batch.K is not None:
            check_eigenvalues(values, j, batch.tasks)
        return np.maximum(values, 0.0)

    def group_scores(self) -> Array:
        """(p,) squared norms of every group's correlation with the observations."""
        parts = (group_energies(self, batch, batch.y) for batch in self.batches)
        return sum(parts, start=np.zeros(self.p))

    def energies(self, v: Sequence[ArrayLike]) -> Array:
        """(p,) squared norms, over all tasks, of every group's correlation with ``v``.

        ``v`` holds one (n_s,) vector per task, in the units of the raw observations.
        """
        if self.evaluator is not None:
            raise InputError("noise cannot be simulated for tasks on disk; expected another rule")
        total = np.zeros(self.p)
        for batch in self.batches:
            padded = np.zeros_like(batch.y)
            for i, s in enumerate(batch.tasks):
                padded[i, : self.sizes[s]] = np.sqrt(self.task_weights[s]) * np.asarray(v[s])
            total += group_energies(self, batch, padded)
        return total


def group_energies(problem: Problem, batch: TaskBatch, r: Array) -> Array:
    """(p,) squared norms, over the tasks of one batch, of every group's correlation with r."""
    if batch.K is not None:
        Kr = np.matmul(batch.K, r[:, :, None])[..., 0]  # (p, m, n)
        forms: Array = np.einsum("psn,sn->p", Kr, r)
        return np.maximum(forms, 0.0)
    assert batch.Phi is not None
    z = np.matmul(batch.Phi, r[:, :, None])[..., 0]  # (m, d)
    return group_sums(np.einsum("sd,sd->d", z, z), problem.starts)


# -- groups of columns: group j is starts[j] to starts[j + 1] --------------------------------------


def group_sizes(groups: Sequence[slice] | None, d: int) -> tuple[int, ...]:
    """Number of columns of every group, from slices that must partition the d columns in order."""
    if groups is None:
        return (1,) * d
    if not all(isinstance(g, slice) and g.step in (None, 1) for g in groups):
        raise InputError(f"groups must be slices of step 1; found {list(groups)[:5]} ...")
    edges = [(g.start, g.stop) for g in groups]
    adjacent = all(a[1] == b[0] for a, b in pairwise(edges))
    if not edges or edges[0][0] != 0 or edges[-1][1] != d or not adjacent:
        raise ShapeError(
            f"groups must partition the {d} columns of Phi in order; found {edges[:5]} ..."
        )
    dims = tuple(stop - start for start, stop in edges)
    if min(dims) < 1:
        raise ShapeError("every group needs at least one column")
    return dims


def group_starts(dims: Sequence[int] | Index) -> Index:
    """(k + 1,) where each of k groups begins, from the number of columns of each."""
    return np.concatenate([[0], np.cumsum(dims)])


def columns_of(groups: Index, starts: Index) -> Index:
    """The columns of these groups, one group after another."""
    if len(starts) > starts[-1]:  # one column each
        return groups
    ranges = [np.arange(starts[j], starts[j + 1]) for j in groups]
    return np.concatenate(ranges) if ranges else np.empty(0, np.intp)


def group_sums(values: Array, starts: Index, axis: int = 0) -> Array:
    """Sums over the columns of each group along one axis."""
    if len(starts) > values.shape[axis]:  # one column each
        return values
    sums: Array = np.add.reduceat(values, starts[:-1], axis=axis)
    return sums


# -- tasks -----------------------------------------------------------------------------------------


def _as_tasks(
    name: str, arrays: Sequence[ArrayLike] | Array, y: Sequence[ArrayLike] | Array, loss: Loss
) -> tuple[list[Array], Index, Array, Iterator[tuple[Index, Array]]]:
    """The arrays, (m,) numbers of observations, (m,) weights in the loss, and y in batches."""
    found, values = ([np.asarray(a, np.float64) for a in part] for part in (arrays, y))
    if not found or len(found) != len(values):
        raise ShapeError(f"found {len(found)} tasks of features and {len(values)} of values")
    if loss not in ("points", "tasks"):
        raise InputError(f"loss is {loss!r}; expected 'points' or 'tasks'")
    # A single column of values is accepted, too.
    values = [v[:, 0] if v.ndim == 2 and v.shape[1] == 1 else v for v in values]
    first, axes = found[0].shape, {"Phi": 2, "K": 3}[name]
    for s, (array, v) in enumerate(zip(found, values, strict=True)):
        n = v.size
        expected = (n, *first[1:]) if name == "Phi" else (*first[:1], n, n)
        if v.ndim != 1 or array.ndim != axes or array.shape != expected:
            raise ShapeError(
                f"task {s}: {name} has shape {array.shape} and y {v.shape}; expected {expected} "
                f"and ({n},)"
            )
        if not array.size:
            raise InputError(f"task {s}: shape {array.shape}; expected no empty dimension")
    sizes = np.array([v.size for v in values])
    weights = np.ones(sizes.size) if loss == "points" else sizes.sum() / (sizes.size * sizes)
    return found, sizes, weights, _padded(values, sizes, weights)


def _padded(values: list[Array], sizes: Index, weights: Array) -> Iterator[tuple[Index, Array]]:
    """The tasks of each batch and their weighted observations, padded with zeros.

    Sizes within a batch differ by at most `PADDING`.
    """
    order = np.argsort(-sizes, kind="stable")
    first = 0
    for i in range(1, order.size + 1):
        if i == order.size or sizes[order[i]] < (1 - PADDING) * sizes[order[first]]:
            tasks, width = np.sort(order[first:i]), sizes[order[first]]
            padded = np.zeros((tasks.size, width))
            for row, s in zip(padded, tasks, strict=True):
                row[: sizes[s]] = np.sqrt(weights[s]) * values[s]
            check_finite(padded, "y")
            yield tasks, padded
            first = i


# -- checks of numbers -----------------------------------------------------------------------------


def check_finite(values: Array, what: str) -> None:
    """Raise with the index of the first number that is not finite."""
    # A sum is finite if every term is, barring overflow: one pass without a temporary array.
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(f"{what} holds {values[where]} at {where}; expected finite numbers")


def check_symmetry(K: Array, tasks: Index) -> None:
    """Raise where a stack (p, m, n, n) of these tasks holds what cannot be a Gram matrix."""
    # Row sums against column sums: two passes without a temporary array.
    diagonal = np.einsum("...nn->...n", K)
    largest = np.abs(diagonal).max(axis=2)  # (p, m)
    size = largest.max(axis=1) * K.shape[-1]  # (p,)
    rows = K.sum(axis=-1)
    uneven = np.abs(rows - K.sum(axis=-2)).max(axis=(1, 2)) > 1e-8 * size
    blank = largest == 0  # a zero diagonal leaves only the zero matrix
    if uneven.any() or (diagonal < 0).any() or (blank.any() and rows[blank].any()):
        for j, matrices in enumerate(K):
            for s, matrix in zip(tasks, matrices, strict=True):
                if defect := _defect(matrix, 1e-8 * size[j]):
                    raise InputError(f"K of group {j} {defect} in task {s}: not a Gram matrix")


def _defect(K: Array, tolerance: float) -> str:
    """Why a matrix is no Gram matrix, or "" where nothing is found."""
    diagonal, asymmetry = K.diagonal(), np.abs(K - K.T)
    i = int(diagonal.argmin())
    if diagonal[i] < 0:
        return f"holds {diagonal[i]:.4g} on the diagonal, at ({i}, {i}),"
    a, b = (int(index) for index in np.unravel_index(asymmetry.argmax(), K.shape))
    asymmetric = (
        f"is not symmetric, with {K[a, b]:.4g} at ({a}, {b}) and {K[b, a]:.4g} at ({b}, {a}),"
    )
    if asymmetry[a, b] > max(tolerance / len(K), 1e-8 * np.abs(K).max()):
        return asymmetric
    excess = np.abs(K) - np.sqrt(np.outer(diagonal, diagonal))
    i, k = (int(index) for index in np.unravel_index(excess.argmax(), K.shape))
    if excess[i, k] > tolerance:
        return (
            f"has negative eigenvalues, because {K[i, k]:.4g} at ({i}, {k}) is too large for "
            f"{K[i, i]:.4g} and {K[k, k]:.4g} on the diagonal,"
        )
    return asymmetric if asymmetry[a, b] > tolerance / len(K) else ""


def check_eigenvalues(values: Array, group: int, tasks: Index) -> None:
    """Raise where eigenvalues (m, n) of a group's Gram matrices are negative beyond rounding."""
    low, high = values.min(axis=1), values.max(axis=1)
    wrong = np.flatnonzero(low < -INDEFINITE * np.maximum(high, -low))
    if wrong.size:
        s = wrong[0]
        raise InputError(
            f"K of group {group} has negative eigenvalues, from {low[s]:.3g} to {high[s]:.3g} in "
            f"task {tasks[s]}: not a Gram matrix"
        )
