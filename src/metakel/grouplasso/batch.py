"""Tasks of similar size stacked into padded arrays, and the checks that they fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

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


def as_vector(y: ArrayLike) -> Array:
    """The observations of a task as a vector; a single column is accepted, too."""
    values = np.asarray(y, np.float64)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def sizes_and_weights(
    arrays: list[Array], values: list[Array], loss: Loss, *, row_axis: int
) -> tuple[Index, Array]:
    """(m,) number of observations of every task, and its weight in the loss."""
    if not arrays or len(arrays) != len(values):
        raise ShapeError(f"found {len(arrays)} tasks of features and {len(values)} of values")
    if loss not in ("points", "tasks"):
        raise InputError(f"loss is {loss!r}; expected 'points' or 'tasks'")
    for s, (array, v) in enumerate(zip(arrays, values, strict=True)):
        if array.ndim != row_axis + 2 or v.shape != (array.shape[row_axis],):
            raise ShapeError(
                f"task {s}: an array of shape {array.shape} does not match y of shape {v.shape}"
            )
        if not array.size:
            raise InputError(f"task {s}: shape {array.shape}; expected no empty dimension")
    sizes = np.array([v.size for v in values])
    if loss == "points":
        return sizes, np.ones(sizes.size)
    return sizes, sizes.sum() / (sizes.size * sizes)


def similar_sizes(sizes: Index) -> list[Index]:
    """Indices of the tasks of each batch: sizes within a batch differ by at most `PADDING`."""
    order = np.argsort(-sizes, kind="stable")
    batches, first = [], 0
    for i in range(1, order.size + 1):
        if i == order.size or sizes[order[i]] < (1 - PADDING) * sizes[order[first]]:
            batches.append(np.sort(order[first:i]))
            first = i
    return batches


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
