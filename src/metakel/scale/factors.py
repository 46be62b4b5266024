r"""Files of rows become files of factors, which hold all that Eq. 8 asks of a task.

The rows of a task may be rotated: the triangular factor of [Phi y], (d + 1, d + 1), has the same
Gram matrix, the same correlations and the same norm as its n rows, and stands for them whatever n
is. Tasks with fewer rows are kept as they are. Factors are stored transposed, (tasks, d + 1, rows),
one ``.npy`` file per number of rows, and read by a memory map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso.problem import Problem, TaskBatch, group_energies, group_sums
from metakel.kernels import KernelDictionary
from metakel.scale.parquet import Index, TaskFile

NUMBERS = 1 << 22  # features that are computed at a time
STEP = 8  # rows of small tasks are padded to a multiple of this by zeros, which change nothing


@dataclass(frozen=True, eq=False)
class FactorFile:
    """Factors of some tasks, and their sums at weight zero.

    Parameters
    ----------
    path : str
        An array (k, d + 1, rows).
    tasks, sizes : (k,) arrays
        Places of the tasks in the history, and how many observations they had.
    dims : p numbers
        Features of each base kernel.
    energy : float
        Sum of squares of the values.
    traces, scores : (p,) arrays
        Sums over tasks of the traces of the Gram matrices, and of the squared norms of Phi_j'y.
    """

    path: str
    tasks: Index
    sizes: Index
    dims: tuple[int, ...]
    energy: float
    traces: Array
    scores: Array

    def batch(self) -> TaskBatch:
        """The tasks, of which only what is used is read into memory."""
        stored = np.load(self.path, mmap_mode="r")
        return TaskBatch(self.tasks, stored[:, -1], Phi=stored[:, :-1])

    def problem(self, total: int) -> Problem:
        """These tasks as a part of ``total`` observations."""
        here = self.batch()
        batch = TaskBatch(np.arange(self.sizes.size), here.y, Phi=here.Phi)
        return Problem((batch,), self.dims, self.sizes, np.ones(self.sizes.size), total)


class FactorBatches(Sequence[TaskBatch]):
    """The batches of factor files, each mapped when it is asked for."""

    def __init__(self, files: Sequence[FactorFile]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, i: int) -> TaskBatch: ...
    @overload
    def __getitem__(self, i: slice) -> FactorBatches: ...
    def __getitem__(self, i: int | slice) -> TaskBatch | FactorBatches:
        return FactorBatches(self.files[i]) if isinstance(i, slice) else self.files[i].batch()

    def __iter__(self) -> Iterator[TaskBatch]:
        return (file.batch() for file in self.files)


def write_factors(
    work: tuple[TaskFile, int, str], base: KernelDictionary, folder: str
) -> list[FactorFile]:
    """The factors of all tasks of a file; with the number of its first task, and a name."""
    file, first, name = work
    width = base.dim + 1
    padded = np.minimum(width, -(-file.sizes // STEP) * STEP)  # rows of every factor
    paths = {r: Path(folder) / f"{name}-{r}.npy" for r in np.unique(padded).tolist()}
    stored = {
        r: np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float64, shape=(int((padded == r).sum()), width, r)
        )
        for r, path in paths.items()
    }
    for tasks, start in file.pieces(max(1, NUMBERS // width)):
        stop = int(file.sizes[tasks].sum())
        X, y = file.read(start, stop)
        try:
            together = np.column_stack([base.features(X), y])
        except InputError as error:
            raise InputError(f"{file.path}, rows {start} to {start + stop - 1}: {error}") from None
        begins = np.cumsum(file.sizes[tasks]) - file.sizes[tasks]
        for n in np.unique(file.sizes[tasks]).tolist():
            chosen = np.flatnonzero(file.sizes[tasks] == n)
            values = together[begins[chosen][:, None] + np.arange(n)]  # (k, n, d + 1)
            r = int(padded[tasks[chosen[0]]])
            if n > r:
                values = np.linalg.qr(values, mode="r")
            places = np.searchsorted(np.flatnonzero(padded == r), tasks[chosen])
            stored[r][places, :, : values.shape[1]] = values.transpose(0, 2, 1)
    for array in stored.values():
        array.flush()
    return [_summed(str(path), first + np.flatnonzero(padded == r), file.sizes[padded == r], base)
            for r, path in paths.items()]  # fmt: skip


def _summed(path: str, tasks: Index, sizes: Index, base: KernelDictionary) -> FactorFile:
    dims = tuple(group.stop - group.start for group in base.groups)
    file = FactorFile(path, tasks, sizes, dims, 0.0, np.zeros(base.p), np.zeros(base.p))
    problem = file.problem(1)
    (batch,) = problem.batches
    assert batch.Phi is not None
    squares = np.einsum("sdn,sdn->d", batch.Phi, batch.Phi)
    traces, scores = group_sums(squares, problem.starts), group_energies(problem, batch, batch.y)
    if not np.isfinite(traces).all():
        j = int(np.flatnonzero(~np.isfinite(traces))[0])
        raise InputError(f"the features of {base.names[j]} hold nan or infinite numbers")
    return FactorFile(path, tasks, sizes, dims, float(np.vdot(batch.y, batch.y)), traces, scores)
