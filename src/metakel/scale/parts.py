"""The tasks of one source: what is kept of them between calls, and how they are made again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShardError
from metakel.grouplasso import Problem
from metakel.grouplasso.evaluator import Evaluator
from metakel.grouplasso.solve import evaluator_of
from metakel.kernels import KernelDictionary
from metakel.scale.blocks import Block, Loss, Rows, blocks_of, compressed, merged

Index = NDArray[np.intp]


class Source(Protocol):
    """Where the rows of some tasks come from, as often as they are asked for."""

    @property
    def held(self) -> bool:
        """Whether the rows are in memory anyway."""
        ...

    def read(self) -> Rows:
        """The rows; a `ShardError` names the file, the row and the reason."""
        ...


class Ready:
    """A problem whose groups are all worked on, and an evaluator that remembers where it stands."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.unit = problem.total / 2  # x is this times w
        self.evaluator: Evaluator = evaluator_of(problem)
        self.evaluator.extend(np.arange(problem.p))
        self._point: tuple[Index, Array] | None = None
        self._found = 0.0, np.empty(0)

    def at(self, active: Index, w: Array) -> tuple[float, Array]:
        """What the evaluator says there, computed only if it was not there already."""
        point = self._point
        if point is None or not (np.array_equal(point[0], active) and np.array_equal(point[1], w)):
            self._found = self.evaluator.at(active, self.unit * w)
            self._point = active, w
        return self._found

    def nbytes(self, share: float) -> int:
        """With Gram matrices (of all groups, of active ones against all, their inverses)."""
        factor = 3.0 if self.problem.kernel_mode else 2.3 + share + 2 * share**2
        return int(factor * nbytes(self.problem))


class Part:
    """Tasks of one source that share no inputs with many others.

    Either their points are kept, or the statistics of all columns where those are smaller, or
    nothing, and the source is read again.
    """

    def __init__(self, source: Source | None, blocks: list[Block] | None = None) -> None:
        self.source = source  # None for tasks on shared inputs, gathered from several sources
        self.alone: Index = np.empty(0, np.intp)
        self.points = blocks
        self.whole: list[Problem] | None = None
        self.compact: list[Problem] | None = None
        self.ready: list[Ready] | None = None

    def drop(self) -> None:
        """Keep nothing of the working set."""
        self.compact = self.ready = None

    def kept(self, share: float) -> int:
        """Bytes kept of the working set, of whose groups this share is active."""
        if self.ready is not None:
            return sum(ready.nbytes(share) for ready in self.ready)
        return sum(map(nbytes, self.compact or []))

    def blocks(self, base: KernelDictionary) -> list[Block]:
        """The points, as kept or read again."""
        if self.points is not None:
            return self.points
        assert self.source is not None
        rows = self.source.read()
        return blocks_of(rows, self.alone, width(base, rows))

    def problems(self, base: KernelDictionary, loss: Loss) -> Iterator[tuple[Problem, float]]:
        """Every block with all groups, and how many tasks stand behind each of its own."""
        if self.whole is not None:
            for problem in self.whole:
                yield problem, 1.0
        else:
            for block in self.blocks(base):
                yield self.problem(block, base, loss), block.count / len(block.y)

    def problem(self, block: Block, base: KernelDictionary, loss: Loss) -> Problem:
        """Eq. 8 for a block of this part; an error names the source."""
        try:
            return block.problem(base, loss)
        except InputError as error:
            raise ShardError(f"{self.source or 'tasks on shared inputs'}: {error}") from None

    def restricted(
        self, chosen: KernelDictionary, base: KernelDictionary, work: Index, loss: Loss
    ) -> Iterator[Problem]:
        """Every block with the groups of ``work`` only (``chosen``), with as few rows as do."""
        if self.whole is not None:
            for problem in self.whole:
                yield compressed(_columns(problem, work), exact=False)
        else:
            for block in self.blocks(base):
                yield compressed(self.problem(block, chosen, loss), exact=False)


def divide(part: Part, grids: dict[bytes, Block], base: KernelDictionary) -> list[Block]:
    """Read a part: blocks of tasks with inputs of their own; the others join the ``grids``."""
    assert part.source is not None
    rows = part.source.read()
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
        grids[key] = merged(X, values, count)
    part.alone = np.sort(np.array(alone, dtype=np.intp))
    return blocks_of(rows, part.alone, width(base, rows))


def width(base: KernelDictionary, rows: Rows) -> int:
    """How many numbers a point becomes."""
    return base.dim if base.finite else base.p * int(rows.sizes.max())


def statistics_bytes(block: Block, base: KernelDictionary) -> float:
    """What the triangular factors of all columns would take; inf where there are none."""
    return len(block.y) * (base.dim + 1) ** 2 * 8 if base.finite else float("inf")


def _columns(problem: Problem, groups: Index) -> Problem:
    """The problem of these groups only."""
    (batch,) = problem.batches
    assert batch.Phi is not None
    Phi = np.concatenate([batch.Phi[:, problem.columns(int(j))] for j in groups], axis=1)
    ends = np.cumsum([0, *(problem.dims[j] or 0 for j in groups)]).tolist()
    cuts = [slice(a, b) for a, b in pairwise(ends)]
    made = Problem.from_arrays(Phi.transpose(0, 2, 1), batch.y, cuts)
    return replace(made, sizes=problem.sizes, task_weights=problem.task_weights)


def nbytes(problem: Problem) -> int:
    """Of the arrays of a problem."""
    return sum(a.nbytes for b in problem.batches for a in (b.Phi, b.K, b.y) if a is not None)
