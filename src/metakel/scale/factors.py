r"""Files of rows become files of factors, which hold all that Eq. 8 asks of a task.

The rows of a task may be rotated: the triangular factor of [Phi y], (d + 1, d + 1), has the same
Gram matrix, the same correlations and the same norm as its n rows, and stands for them whatever n
is. Tasks with fewer rows are kept as they are. Factors are stored transposed, (tasks, d + 1, rows),
one ``.npy`` file per number of rows, and read by a memory map.

In a round of the solver every file answers with y'r/N, a score for every group of the working set
and their Hessian. Answers are added in the order of the files, so that they do not depend on who
computed them: a plain loop, or the workers of a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso.evaluators import FeatureEvaluator, Residual, independent_weights
from metakel.grouplasso.problem import Index, Problem, TaskBatch, group_starts, group_sums
from metakel.kernels import KernelDictionary

if TYPE_CHECKING:
    from metakel.scale._scan import TaskFile

NUMBERS = 1 << 22  # features that are computed at a time
STEP = 8  # rows of small tasks are padded to a multiple of this by zeros, which change nothing


@dataclass(frozen=True, eq=False)
class FactorFile:
    """Factors of some tasks, and their sums at weight zero."""

    path: str  # of an array (k, d + 1, rows)
    tasks: Index  # (k,) places of the tasks in the history
    sizes: Index  # (k,) how many observations they had
    dims: tuple[int | None, ...]  # (p,) features of each base kernel
    energy: float  # sum of squares of the values
    traces: Array  # (p,) sums over tasks of the traces of the Gram matrices
    scores: Array  # (p,) sums over tasks of the squared norms of Phi_j'y

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
    stored = np.load(path, mmap_mode="r")
    Phi, y = stored[:, :-1], stored[:, -1]
    starts = group_starts([dim or 0 for dim in base.dims])
    traces = group_sums(np.einsum("sdn,sdn->d", Phi, Phi), starts)
    z = np.matmul(Phi, y[:, :, None])[..., 0]
    scores = group_sums(np.einsum("sd,sd->d", z, z), starts)
    if not np.isfinite(traces).all():
        j = int(np.flatnonzero(~np.isfinite(traces))[0])
        raise InputError(f"the features of {base.names[j]} hold nan or infinite numbers")
    return FactorFile(path, tasks, sizes, base.dims, float(np.vdot(y, y)), traces, scores)


Item = TypeVar("Item")
Answer = TypeVar("Answer")


def run(function: Callable[[Item], Answer], items: Sequence[Item], client: Any) -> list[Answer]:
    """``function`` of every item, in their order, here or on the workers of a Dask client."""
    if client is None:
        return [function(item) for item in items]
    answers: list[Answer] = client.gather(client.map(function, items, pure=False))
    return answers


@dataclass(frozen=True, eq=False)
class Point:
    """Weights at which sums are asked for."""

    total: int  # N, the observations of all tasks
    work: Index  # (q,) groups of the working set
    active: Index  # (a,) places in ``work`` of the groups with positive weight
    x: Array  # (a,) their weights eta / lambda

    def evaluator(self, file: FactorFile) -> FeatureEvaluator:
        """The ordinary evaluator of the tasks of one file, at this point."""
        found = FeatureEvaluator(file.problem(self.total))
        found.extend(self.work)
        found.at(self.active, self.x)
        return found


def _sums(file: FactorFile, point: Point) -> tuple[float, Array, Array]:
    evaluator = point.evaluator(file)
    value, scores = evaluator.at(point.active, point.x)
    return value, scores, evaluator.hessian(np.arange(point.work.size))


def _residual(file: FactorFile, point: Point) -> tuple[Array, Array, float, float]:
    found = point.evaluator(file).residual()
    return found.scores, found.norms**2, found.square, found.inner


def _away(file: FactorFile, point: Point, unit: Array) -> tuple[Array]:
    evaluator = point.evaluator(file)
    evaluator.residual()
    return (evaluator.away(unit),)


class RoundEvaluator:
    """`grouplasso.evaluators.Evaluator` of tasks in files of factors."""

    rough = True

    def __init__(self, files: Sequence[FactorFile], client: Any) -> None:
        self.files, self.client = files, client
        self.total = sum(int(file.sizes.sum()) for file in files)
        self.energy = sum(file.energy for file in files) / self.total
        self.p = len(files[0].dims)
        self.work: Index = np.empty(0, np.intp)
        self.active: Index = np.empty(0, np.intp)
        self.curvature = np.empty(0)
        m, scale = sum(file.sizes.size for file in files), 2 / self.total
        self._curvature: Array = scale / m * np.sum([file.traces for file in files], axis=0)
        self._scores: Array = scale**2 * np.sum([file.scores for file in files], axis=0)
        self._x = np.empty(0)
        self._norms = np.zeros(self.p)
        self._hessian: Array | None = None

    def extend(self, groups: Index) -> None:
        self.work = np.concatenate([self.work, groups])
        self.curvature = self._curvature[self.work]
        self._hessian = None

    def start(self, lam: Array) -> Array:
        return independent_weights(self._scores[self.work], lam, self.curvature)

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        self.active, self._x, self._hessian = active, x, None
        if not active.size:
            return self.energy, self._scores[self.work]
        return self._ask()

    def hessian(self, groups: Index) -> Array:
        if self._hessian is None:
            self._ask()
        assert self._hessian is not None
        return self._hessian[np.ix_(groups, groups)]

    def residual(self) -> Residual:
        if not self.active.size:
            return Residual(self._scores, np.zeros(self.p), self.energy, self.energy)
        scores, squares, square, inner = self._run(partial(_residual, point=self._point))
        self._norms = np.sqrt(squares)
        return Residual(scores, self._norms, square, inner)

    def misfit(self, lam: Array) -> Array:
        if not self.active.size:
            return np.empty(0)
        here = self.work[self.active]
        (squares,) = self._run(
            partial(_away, point=self._point, unit=lam[here] / self._norms[here])
        )
        return np.asarray(np.sqrt(squares))

    def beta(self) -> None:
        """Coefficients of all tasks are not kept."""

    def _ask(self) -> tuple[float, Array]:
        value, scores, self._hessian = self._run(partial(_sums, point=self._point))
        return value, scores

    @property
    def _point(self) -> Point:
        return Point(self.total, self.work, self.active, self._x)

    def _run(self, function: Callable[[FactorFile], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sums over the files of what the function returns."""
        answers = run(function, self.files, self.client)
        return tuple(sum(part[1:], start=part[0]) for part in zip(*answers, strict=True))
