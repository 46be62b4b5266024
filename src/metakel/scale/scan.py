"""A history on disk: tasks that are read piece by piece and never held together."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metakel.data import History
from metakel.errors import InputError, ShapeError, ShardError
from metakel.kernels import KernelDictionary
from metakel.scale.blocks import Loss, Rows
from metakel.scale.executors import Executor, InProcess
from metakel.scale.journal import Journal
from metakel.scale.on_dask import LOG, OnDask
from metakel.scale.parquet import (
    check_together,
    check_unread,
    find_columns,
    find_files,
    index_file,
    pieces_of,
)
from metakel.scale.parts import Source
from metakel.scale.problem import Monitor, ShardedProblem
from metakel.scale.shard import Recipe

Index = NDArray[np.intp]
OnError = Literal["raise", "skip"]
SHARDS_PER_WORKER = 4  # a lost worker costs the work of its shards
SHARDS_HERE = 16  # in one process they only make progress visible
PIECE_SHARE = 32  # a piece takes this share of the memory while it is read
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, eq=False)
class Held:
    """Tasks in memory, as a source of rows."""

    rows: Rows

    held = True

    def read(self) -> Rows:
        return self.rows

    def __str__(self) -> str:
        return f"{self.rows.sizes.size} tasks in memory"


@dataclass(frozen=True)
class Settings:
    """Where and how the shards of a scan are held."""

    memory: int
    shards: int | None = None
    workers: int | None = None
    client: Any = None  # dask.distributed.Client
    journal: Path | None = None
    progress: Monitor | None = None

    def executor(self) -> Executor:
        if self.client is not None:
            return OnDask(self.client)
        return InProcess() if self.workers is None else OnDask.local(self.workers)


@dataclass(frozen=True, eq=False)
class Scan:
    """Past tasks that are too many to hold (`History.scan`); give it to `learn_kernel`.

    Parameters
    ----------
    sources : tuple of Source
        In the order in which their tasks are added up.
    sizes : (m,) array
        Observations of each task.
    d0 : int
        How many inputs a point has.
    """

    sources: tuple[Source, ...]
    sizes: Index
    d0: int
    settings: Settings = field(repr=False)
    _kept: list[ShardedProblem] = field(default_factory=list, repr=False)  # one at most

    @property
    def m(self) -> int:
        """How many tasks there are."""
        return self.sizes.size

    @property
    def total(self) -> int:
        """How many observations there are."""
        return int(self.sizes.sum())

    def as_problem(self, base: KernelDictionary, loss: Loss = "points") -> ShardedProblem:
        """Eq. 8 over the shards of this scan.

        Asked again for the same base kernels and loss, it is the same problem, with whatever its
        shards hold: after an error in one shard the others are not read again.
        """
        for problem in self._kept:
            if problem.loss == loss and _same(problem.base, base):
                return problem
        self._kept[:] = [self._new_problem(base, loss)]
        return self._kept[0]

    def _new_problem(self, base: KernelDictionary, loss: Loss) -> ShardedProblem:
        executor = self.settings.executor()
        journal = None
        if self.settings.journal is not None:
            about = [base.to_dict(), loss, [str(s) for s in self.sources], self.sizes.tolist()]
            journal = Journal(self.settings.journal, about)
        problem = ShardedProblem(
            executor,
            self._recipes(base, loss, executor.workers),
            base,
            self.sizes,
            loss=loss,
            progress=self.settings.progress,
            journal=journal,
        )
        # A cluster of ours is closed at the latest with Python; a client of the user is theirs.
        weakref.finalize(problem, executor.close).atexit = self.settings.client is None
        last = journal.last(base.p) if journal is not None else None
        problem.start = None if last is None else last * problem.rows / 2
        return problem

    def _recipes(self, base: KernelDictionary, loss: Loss, workers: int) -> list[Recipe]:
        per_worker = SHARDS_HERE if workers == 1 else SHARDS_PER_WORKER
        count = min(self.settings.shards or per_worker * workers, len(self.sources))
        memory = int(self.settings.memory * workers / count)
        return [Recipe(part, base, loss, memory) for part in _cut(self.sources, count)]

    def joined(
        self, new: Scan | History, base: KernelDictionary, loss: Loss
    ) -> tuple[Scan, ShardedProblem]:
        """This scan with more tasks, and its problem with everything that is known of ours."""
        before = self.as_problem(base, loss)
        if isinstance(new, History):
            new = spread(new, shards=before.executor.workers)
        if new.d0 != self.d0:
            raise ShapeError(f"the new tasks have {new.d0} inputs; expected {self.d0}")
        check_unread(self.sources, new.sources)
        both = replace(
            self,
            sources=(*self.sources, *new.sources),
            sizes=np.concatenate([self.sizes, new.sizes]),
            _kept=[],
        )
        workers = before.executor.workers
        count = max(1, min(workers, len(new.sources)))
        share = new.m / both.m
        memory = int(self.settings.memory * workers / count * share)
        problem = ShardedProblem(
            before.executor,
            [Recipe(part, base, loss, memory) for part in _cut(new.sources, count)],
            base,
            new.sizes,
            loss=loss,
            progress=self.settings.progress,
            before=before,
        )
        both._kept.append(problem)
        return both, problem

    def close(self) -> None:
        """Let go of the shards (and of a cluster that was started for them)."""
        for problem in self._kept:
            problem.close()
        self._kept.clear()

    def __repr__(self) -> str:
        return f"Scan(m={self.m}, N={self.total}, d0={self.d0}, pieces={len(self.sources)})"


def scan(
    path: str | Path | Sequence[str | Path],
    *,
    task: str = "task",
    inputs: Sequence[str] | None = None,
    output: str = "y",
    memory: int | str = "1 GB",
    shards: int | None = None,
    workers: int | None = None,
    client: Any = None,
    journal: str | Path | None = None,
    on_error: OnError = "raise",
    progress: Monitor | None = None,
) -> Scan:
    """Past tasks in a Parquet data set, read piece by piece.

    Parameters
    ----------
    path : file, folder or several of them; local, or a URI such as s3://bucket/tasks
        Rows of one observation each. The rows of a task stand together in one file; ``task`` may
        also be a folder's name (``task=7/part.parquet``).
    task, inputs, output : str
        Columns; ``inputs`` are by default all other columns of numbers.
    memory : bytes, or a string such as "500 MB"
        What every process may hold between rounds: points, and statistics of the base kernels that
        are worked on. What does not fit is read and computed again when it is needed.
    shards : int, optional
        In how many parts the tasks are held; the answer does not depend on it.
    workers : int, optional
        Start this many processes on this machine (needs ``metakel[dask]``).
    client : dask.distributed.Client, optional
        Hold the shards on its workers, which must see the same files.
    journal : path, optional
        Write every round there, and go on from it if it exists.
    on_error : "raise" or "skip"
        What to do with a file whose index cannot be read; skipped files are logged.
    progress : callable(Progress), optional
        Told whenever a shard has answered, with the seconds left of the pass.
    """
    if workers is not None and client is not None:
        raise InputError("found both workers and client; a client has workers of its own")
    files = find_files(path)
    budget = _bytes(memory)
    indices, errors = [], []
    columns = None
    for name in files:
        try:
            if columns is None:
                columns = find_columns(name, task=task, inputs=inputs, output=output)
            indices.append(index_file(name, columns))
        except ShardError as error:
            errors.append(error)
    if errors and (on_error == "raise" or columns is None):
        lines = [*map(str, errors), f"({len(indices)} of {len(files)} files can be read)"]
        raise ShardError("\n".join(lines))
    for left_out in errors:
        LOG.warning("left out: %s", left_out)
    assert columns is not None
    check_together(indices)
    d0 = len(columns.inputs)
    rows = max(1000, budget // (PIECE_SHARE * 8 * (d0 + 2)))
    sources = tuple(piece for file in indices for piece in pieces_of(file, columns, rows))
    if not sources:
        raise InputError(f"{path} holds no rows; a history needs at least one task")
    sizes = np.concatenate([file.sizes for file in indices])
    folder = None if journal is None else Path(journal)
    settings = Settings(budget, shards, workers, client, folder, progress)
    return Scan(sources, sizes, d0, settings)


def spread(
    history: History,
    *,
    shards: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | str = "1 GB",
    progress: Monitor | None = None,
) -> Scan:
    """Tasks in memory, cut into shards; arguments as for `scan`."""
    pieces = min(history.m, shards or SHARDS_HERE)
    sources = tuple(
        Held(_rows([history[int(s)] for s in part]))
        for part in np.array_split(np.arange(history.m), pieces)
    )
    settings = Settings(_bytes(memory), shards, workers, client, None, progress)
    return Scan(sources, history.sizes, history.d0, settings)


def _same(base: KernelDictionary, other: KernelDictionary) -> bool:
    """Whether these are the same kernels, the user's own functions included."""
    functions = [[family.functions for family in one.families] for one in (base, other)]
    return base is other or (functions[0] == functions[1] and base.to_dict() == other.to_dict())


def _rows(tasks: Iterable[Any]) -> Rows:
    found = list(tasks)
    return Rows(
        np.concatenate([task.X for task in found]),
        np.concatenate([task.y for task in found]),
        np.array([task.n for task in found]),
    )


def _cut(sources: tuple[Source, ...], count: int) -> list[tuple[Source, ...]]:
    """Neighbours stay together, so that the order of the tasks is that of the shards."""
    edges = np.linspace(0, len(sources), count + 1).round().astype(int)
    return [sources[a:b] for a, b in pairwise(edges)]


def _bytes(memory: int | str) -> int:
    if not isinstance(memory, str):
        return int(memory)
    number = memory.strip().rstrip("GKMB ")
    unit = memory.strip()[len(number) :].strip()
    try:
        return int(float(number) * UNITS[unit])
    except (KeyError, ValueError):
        raise InputError(f"memory is {memory!r}; expected bytes, or e.g. '500 MB'") from None
