"""Histories of more tasks than fit in memory: Parquet files, or tasks spread over processes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from metakel.data import History
from metakel.errors import InputError, ShapeError, ShardError
from metakel.kernels import KernelDictionary
from metakel.learn.problem import Loss
from metakel.scale.blocks import Rows, TaskSource
from metakel.scale.evaluator import Index
from metakel.scale.executors import LOG, DaskExecutor, Executor, SerialExecutor
from metakel.scale.parquet import (
    ParquetColumns,
    check_not_repeated,
    check_unread,
    find_columns,
    find_files,
    index_file,
    row_ranges,
)
from metakel.scale.problem import (
    Checkpoint,
    ProgressCallback,
    ShardedProblem,
    raise_errors,
    reporting,
)
from metakel.scale.sample import TASKS, Look, LookingShard, draw, named_history, note
from metakel.scale.shard import Shard

OnError = Literal["raise", "skip"]
SHARDS_PER_WORKER = 4  # a lost worker costs the work of its shards
SHARDS_IN_PROCESS = 16  # in one process they only make progress visible
READ_SHARE = 32  # one part in so many of the memory is for the rows that are being read
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class ShardOptions:
    """How a history is cut into shards, and where these live."""

    memory: int
    shards: int | None = None
    workers: int | None = None
    client: Any = None  # dask.distributed.Client
    checkpoint: Path | None = None
    progress: ProgressCallback | None = None
    inputs: tuple[str, ...] | None = None  # where the user named them

    def executor(self) -> Executor:
        if self.client is not None:
            return DaskExecutor(self.client)
        return SerialExecutor() if self.workers is None else DaskExecutor.local(self.workers)


@dataclass(frozen=True, eq=False)
class ShardedHistory:
    """Past tasks that are too many for memory, made by `History.scan`.

    `learn_kernel` and `learn_prior` take it like a history.

    Parameters
    ----------
    sources : tuple of TaskSource
        In the order in which their tasks are added up.
    sizes : (m,) array
        Observations of each task.
    d0 : int
        Number of inputs of a point.
    options : ShardOptions
    columns : ParquetColumns or None
        Names of the columns; None for tasks in memory.
    labels : m labels
        What the tasks are called.
    """

    sources: tuple[TaskSource, ...]
    sizes: Index
    d0: int
    options: ShardOptions = field(repr=False)
    columns: ParquetColumns | None = field(default=None, repr=False)
    labels: tuple[Any, ...] = field(default=(), repr=False)
    _problems: list[ShardedProblem] = field(default_factory=list, repr=False)  # one at most

    @property
    def m(self) -> int:
        """Number of tasks."""
        return self.sizes.size

    @property
    def total(self) -> int:
        """Number of observations."""
        return int(self.sizes.sum())

    def as_problem(self, base: KernelDictionary, loss: Loss = "points") -> ShardedProblem:
        """Eq. 8 over the shards of this history.

        The same base kernels and loss give the same problem again, with whatever its shards hold:
        after an error in one shard the others are not read again.
        """
        for problem in self._problems:
            if problem.loss == loss and _same_kernels(problem.base, base):
                return problem
        self._problems[:] = [self._new_problem(base, loss)]
        return self._problems[0]

    def _new_problem(self, base: KernelDictionary, loss: Loss) -> ShardedProblem:
        options, executor = self.options, self.options.executor()
        checkpoint = None
        if options.checkpoint is not None:
            content = [base.to_dict(), loss, [str(s) for s in self.sources], self.sizes.tolist()]
            checkpoint = Checkpoint(options.checkpoint, content)
        parts = self._parts(executor)
        memory = int(options.memory * executor.workers / len(parts))
        problem = ShardedProblem(
            executor,
            [Shard(part, base, loss, memory) for part in parts],
            base,
            self.sizes,
            loss=loss,
            progress=options.progress,
            checkpoint=checkpoint,
        )
        # A cluster of ours is closed at the latest with Python; a client of the user is theirs.
        weakref.finalize(problem, executor.close).atexit = options.client is None
        w = checkpoint.read(base.p) if checkpoint is not None else None
        problem.start = None if w is None else w * problem.divisor / 2
        return problem

    def _parts(self, executor: Executor) -> list[tuple[TaskSource, ...]]:
        """What each shard holds."""
        per_worker = SHARDS_IN_PROCESS if executor.workers == 1 else SHARDS_PER_WORKER
        count = self.options.shards or per_worker * executor.workers
        return _split(self.sources, min(count, len(self.sources)))

    def joined(
        self, new: ShardedHistory | History, base: KernelDictionary, loss: Loss
    ) -> tuple[ShardedHistory, ShardedProblem]:
        """This history with more tasks, and its problem with everything known of ours."""
        previous = self.as_problem(base, loss)
        executor = previous.executor
        if isinstance(new, History):
            new = distribute(new, shards=executor.workers)
        if new.d0 != self.d0:
            raise ShapeError(f"the new tasks have {new.d0} inputs; expected {self.d0}")
        check_unread(self.sources, new.sources)
        both = replace(
            self,
            sources=(*self.sources, *new.sources),
            sizes=np.concatenate([self.sizes, new.sizes]),
            labels=(*self.labels, *new.labels),
            _problems=[],
        )
        count = max(1, min(executor.workers, len(new.sources)))
        memory = int(self.options.memory * executor.workers / count * new.m / both.m)
        problem = ShardedProblem(
            executor,
            [Shard(part, base, loss, memory) for part in _split(new.sources, count)],
            base,
            new.sizes,
            loss=loss,
            progress=self.options.progress,
            previous=previous,
        )
        both._problems.append(problem)
        return both, problem

    def sample(self, tasks: int = TASKS, *, seed: int = 0, **options: Any) -> History:
        """Some of the tasks, drawn at random, as a history in memory; all of them are read.

        Parameters
        ----------
        tasks : int
            How many; fewer where they would have more than 10^5 rows on average. Of a task with
            more than 1000 rows, as many are kept, spread evenly.
        seed : int
            The same seed draws the same tasks, wherever they are read.
        **options
            As for `History.from_frame`, ``minimize`` for example. Ranges are those of all tasks.
        """
        if self.columns is None:
            raise InputError(
                "sample: these tasks are in memory already; learn from the history itself"
            )
        chosen = draw(self.sizes, tasks, seed)
        look = self._look(chosen)
        names, (task, output) = self.columns.inputs, (self.columns.task, self.columns.output)
        labels = np.empty(chosen.size, dtype=object)
        labels[:] = [str(self.labels[s]) for s in chosen]
        rows = dict(zip(names, look.taken.X.T, strict=True))
        rows |= {name: rows[name].astype(np.int64) for name in self.columns.whole}
        rows |= {task: np.repeat(labels, look.taken.sizes), output: look.taken.y}
        said = {"inputs": self.options.inputs, **options}
        read = partial(History.from_frame, task=task, output=output, **said)
        history = named_history(look, read, rows, names)
        if history.report is None or chosen.size == self.m:
            return history
        notes = (*history.report.notes, note(look, chosen, self.total))
        return replace(history, report=replace(history.report, notes=notes))

    def _look(self, chosen: Index) -> Look:
        """Every task is read where its shard lives."""
        known = [problem.executor for problem in self._problems]
        executor = known[0] if known else self.options.executor()
        shards, first = [], 0
        for part in self._parts(executor):
            last = first + sum(source.sizes.size for source in part)
            here = chosen[(chosen >= first) & (chosen < last)] - first
            shards.append(executor.add(LookingShard(part, here)))
            first = last
        report = reporting(self.options.progress, "reading", len(shards))
        try:
            answers = executor.call("look", shards, (), report)
        finally:
            if not known:
                executor.close()
        raise_errors(answers)
        return Look.joined(answers)

    def close(self) -> None:
        """Release the shards, and a cluster that was started for them."""
        for problem in self._problems:
            problem.close()
        self._problems.clear()

    def __repr__(self) -> str:
        sources = len(self.sources)
        return f"ShardedHistory(m={self.m}, N={self.total}, d0={self.d0}, sources={sources})"


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
    checkpoint: str | Path | None = None,
    on_error: OnError = "raise",
    progress: ProgressCallback | None = None,
) -> ShardedHistory:
    """Past tasks in Parquet files, which are read in pieces and never held together.

    Parameters
    ----------
    path : file, folder or several of them; local, or a URI such as s3://bucket/tasks
        Rows of one observation each. The rows of a task stand together in one file; ``task`` may
        also be the name of a folder (``task=7/part.parquet``).
    task, output : str
        Columns.
    inputs : sequence of str, optional
        Columns; by default all other columns of numbers.
    memory : bytes, or a string such as "500 MB"
        What every process may keep between rounds: points, and statistics of the base kernels in
        the working set. What does not fit is read and computed again when it is needed.
    shards : int, optional
        Number of parts into which the tasks are cut; the result does not depend on it.
    workers : int, optional
        Start this many processes on this machine (needs ``metakel[dask]``). They listen on
        127.0.0.1 only.
    client : dask.distributed.Client, optional
        Keep the shards on its workers, which must see the same files.
    checkpoint : path, optional
        Save every round there, and continue from it if it exists.
    on_error : "raise" or "skip"
        What to do with a file whose index cannot be read; skipped files are logged.
    progress : callable(Progress), optional
        Called after every answer of a shard.
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
    for skipped in errors:
        LOG.warning("left out: %s", skipped)
    assert columns is not None
    check_not_repeated(indices)
    d0 = len(columns.inputs)
    rows = max(1000, budget // (READ_SHARE * 8 * (d0 + 2)))
    sources = tuple(part for file in indices for part in row_ranges(file, columns, rows))
    if not sources:
        raise InputError(f"{path} holds no rows; a history needs at least one task")
    sizes = np.concatenate([file.sizes for file in indices])
    save_to = None if checkpoint is None else Path(checkpoint)
    named = None if inputs is None else columns.inputs
    options = ShardOptions(budget, shards, workers, client, save_to, progress, named)
    labels = tuple(label for file in indices for label in file.labels)
    return ShardedHistory(sources, sizes, d0, options, columns, labels)


def distribute(
    history: History,
    *,
    shards: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | str = "1 GB",
    progress: ProgressCallback | None = None,
) -> ShardedHistory:
    """Tasks in memory, cut into shards; arguments as for `scan`."""
    count = min(history.m, shards or SHARDS_IN_PROCESS)
    sources = []
    for part in np.array_split(np.arange(history.m), count):
        tasks = [history[int(s)] for s in part]
        X, y = (np.concatenate([getattr(task, name) for task in tasks]) for name in ("X", "y"))
        sources.append(Rows(X, y, history.sizes[part]))
    options = ShardOptions(_bytes(memory), shards, workers, client, None, progress)
    names = tuple(task.name for task in history)
    return ShardedHistory(tuple(sources), history.sizes, history.d0, options, labels=names)


def _same_kernels(base: KernelDictionary, other: KernelDictionary) -> bool:
    """Whether these are the same kernels, the user's own functions included."""
    functions = [[family.functions for family in one.families] for one in (base, other)]
    return base is other or (functions[0] == functions[1] and base.to_dict() == other.to_dict())


def _split(sources: tuple[TaskSource, ...], count: int) -> list[tuple[TaskSource, ...]]:
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
