"""Tasks stacked into arrays: which of them together, and whether they fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, ShapeError

Array = NDArray[np.float64]
Loss = Literal["points", "tasks"]
# Tasks of nearly the same size share one array; padding a task costs at most this share of rows.
PADDING = 0.25
# An eigenvalue this far below 0, over the largest, is no rounding error, not of float32 either.
INDEFINITE = 1e-6


@dataclass(frozen=True, eq=False)
class Batch:
    """Tasks of (nearly) one size, padded by zero rows, which change neither loss nor gradient.

    Exactly one of ``Phi`` (m, d, n) and ``K`` (p, m, n, n) is given.
    """

    tasks: NDArray[np.intp]
    y: Array
    Phi: Array | None = None
    K: Array | None = None

    @property
    def n(self) -> int:
        return int(self.y.shape[1])


def group_sizes(groups: Sequence[slice] | None, d: int) -> tuple[int, ...]:
    """Columns of every group, from slices that must cut the d columns in order."""
    if groups is None:
        return (1,) * d
    if not all(isinstance(g, slice) and g.step in (None, 1) for g in groups):
        raise InputError(f"groups must be slices of step 1; found {list(groups)[:5]} ...")
    edges = [(g.start, g.stop) for g in groups]
    adjoin = all(a[1] == b[0] for a, b in pairwise(edges))
    if not edges or edges[0][0] != 0 or edges[-1][1] != d or not adjoin:
        raise ShapeError(f"groups must cut the {d} columns of Phi in order; found {edges[:5]} ...")
    dims = tuple(stop - start for start, stop in edges)
    if min(dims) < 1:
        raise ShapeError("every group needs at least one column")
    return dims


def as_vector(y: ArrayLike) -> Array:
    """The observations of a task; a column is a vector, too."""
    values = np.asarray(y, np.float64)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def sizes_and_weights(
    arrays: list[Array], values: list[Array], loss: Loss, *, row_axis: int
) -> tuple[NDArray[np.intp], Array]:
    """(m,) observations and weight in the loss of every task, whose arrays must fit together."""
    if not arrays or len(arrays) != len(values):
        raise ShapeError(f"found {len(arrays)} tasks of features and {len(values)} of values")
    if loss not in ("points", "tasks"):
        raise InputError(f"loss is {loss!r}; expected 'points' or 'tasks'")
    for s, (array, v) in enumerate(zip(arrays, values, strict=True)):
        if array.ndim != row_axis + 2 or v.shape != (array.shape[row_axis],):
            raise ShapeError(
                f"task {s}: an array of shape {array.shape} does not go with y of shape {v.shape}"
            )
        if not array.size:
            raise InputError(f"task {s}: shape {array.shape}; expected at least one of each")
    sizes = np.array([v.size for v in values])
    if loss == "points":
        return sizes, np.ones(sizes.size)
    return sizes, sizes.sum() / (sizes.size * sizes)


def similar_sizes(sizes: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Indices of tasks to be stacked together: sizes within a batch differ by `PADDING` at most."""
    order = np.argsort(-sizes, kind="stable")
    batches, first = [], 0
    for i in range(1, order.size + 1):
        if i == order.size or sizes[order[i]] < (1 - PADDING) * sizes[order[first]]:
            batches.append(np.sort(order[first:i]))
            first = i
    return batches


def check_symmetry(K: Array, tasks: NDArray[np.intp]) -> None:
    """Raise where a stack (p, m, n, n) of these tasks holds what cannot be a Gram matrix."""
    # Sums of rows and columns: two passes without a temporary.
    diagonal = np.einsum("...nn->...n", K)
    largest = np.abs(diagonal).max(axis=2)  # (p, m)
    size = largest.max(axis=1) * K.shape[-1]  # (p,)
    rows = K.sum(axis=-1)
    uneven = np.abs(rows - K.sum(axis=-2)).max(axis=(1, 2)) > 1e-8 * size
    blank = largest == 0  # then all else must be 0
    if uneven.any() or (diagonal < 0).any() or (blank.any() and rows[blank].any()):
        for j, matrices in enumerate(K):
            for s, matrix in zip(tasks, matrices, strict=True):
                if fault := _fault(matrix, 1e-8 * size[j]):
                    raise InputError(f"K of group {j} {fault} in task {s}: no Gram matrix")


def _fault(K: Array, slack: float) -> str:
    """What is wrong with a matrix, if anything is."""
    diagonal, uneven = K.diagonal(), np.abs(K - K.T)
    i = int(diagonal.argmin())
    if diagonal[i] < 0:
        return f"holds {diagonal[i]:.4g} on the diagonal, at ({i}, {i}),"
    a, b = (int(place) for place in np.unravel_index(uneven.argmax(), K.shape))
    lopsided = f"is not symmetric, with {K[a, b]:.4g} at ({a}, {b}) and {K[b, a]:.4g} across,"
    if uneven[a, b] > max(slack / len(K), 1e-8 * np.abs(K).max()):
        return lopsided
    beyond = np.abs(K) - np.sqrt(np.outer(diagonal, diagonal))
    i, k = (int(place) for place in np.unravel_index(beyond.argmax(), K.shape))
    if beyond[i, k] > slack:
        return (
            f"has negative eigenvalues, because {K[i, k]:.4g} at ({i}, {k}) is too large for "
            f"{K[i, i]:.4g} and {K[k, k]:.4g} on the diagonal,"
        )
    return lopsided if uneven[a, b] > slack / len(K) else ""


def check_eigenvalues(values: Array, group: int, tasks: NDArray[np.intp]) -> None:
    """Raise where those (m, n) of the Gram matrices of a group are below 0, beyond rounding."""
    low, high = values.min(axis=1), values.max(axis=1)
    wrong = np.flatnonzero(low < -INDEFINITE * np.maximum(high, -low))
    if wrong.size:
        s = wrong[0]
        raise InputError(
            f"K of group {group} has negative eigenvalues, from {low[s]:.3g} to {high[s]:.3g} in "
            f"task {tasks[s]}: no Gram matrix"
        )


def check_finite(values: Array, what: str) -> None:
    """Raise with the place of the first number that is not finite."""
    # One pass without a temporary: a sum is finite only if every term is (or overflows, as rarely).
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(f"{what} holds {values[where]} at {where}; expected finite numbers")
