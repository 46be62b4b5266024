"""Tasks in Parquet files: all of them for `learn_kernel`, a sample of them for `learn_prior`."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._files import encode
from metakel.data import History
from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem
from metakel.kernels import KernelDictionary
from metakel.kernels.nystrom import spread_rows
from metakel.scale.factors import FactorBatches, FactorFile, RoundEvaluator, run, write_factors
from metakel.scale.parquet import (
    Columns,
    Index,
    TaskFile,
    check_not_repeated,
    find_columns,
    find_files,
    index_file,
)
from metakel.space import Fixed, Float, Integer, Parameter, Space

TASKS = 1000
# What a sample takes in at most: memory and time of learning grow with the rows.
ROWS, ROWS_OF_A_TASK = 100_000, 1000
PIECE = 100_000  # rows that are read at a time


class Temporary:
    """A folder that goes with the last scan that refers to it."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="metakel-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Scan:
    """Past tasks in files, made by `scan`: ``learn_kernel(scan(path, base))``.

    Parameters
    ----------
    files : tuple of TaskFile
        Which tasks are where.
    base : KernelDictionary or None
        Base kernels whose factors were computed.
    factors : tuple of FactorFile
    client : dask.distributed.Client or None
    folders : tuple of Temporary
        Those that hold factors.
    """

    files: tuple[TaskFile, ...]
    base: KernelDictionary | None = None
    factors: tuple[FactorFile, ...] = field(default=(), repr=False)
    client: Any = field(default=None, repr=False)
    folders: tuple[Temporary, ...] = field(default=(), repr=False)

    @property
    def columns(self) -> Columns:
        return self.files[0].columns

    @property
    def sizes(self) -> Index:
        """(m,) observations of each task."""
        return np.concatenate([file.sizes for file in self.files])

    @property
    def m(self) -> int:
        """Number of tasks."""
        return sum(file.sizes.size for file in self.files)

    @property
    def total(self) -> int:
        """Number of observations."""
        return sum(int(file.sizes.sum()) for file in self.files)

    @property
    def d0(self) -> int:
        """Number of inputs of a point."""
        return len(self.columns.inputs)

    def as_problem(self) -> Problem:
        """Eq. 8 on the files of factors, which are mapped into memory."""
        if self.base is None:
            raise InputError("this scan has no base kernels; expected scan(path, base)")
        return Problem(
            FactorBatches(self.factors),
            self.factors[0].dims,
            self.sizes,
            np.ones(self.m),
            # It refers to this scan, and so keeps a temporary folder.
            evaluator=lambda problem: RoundEvaluator(self.factors, self.client),
        )

    def joined(self, new: Any) -> Scan:
        """This scan with the tasks of another one, over the same base kernels."""
        if not isinstance(new, Scan):
            raise InputError(
                f"update: new is a {type(new).__name__}; expected a scan, as the old tasks are on "
                "disk: metakel.scale.scan(path, base)"
            )
        if new.d0 != self.d0:
            raise ShapeError(f"the new tasks have {new.d0} inputs; expected {self.d0}")
        if self.base is None or new.base is None or not _same(self.base, new.base):
            raise InputError("update: the new tasks were scanned with other base kernels")
        check_not_repeated((*self.files, *new.files))
        moved = tuple(replace(file, tasks=file.tasks + self.m) for file in new.factors)
        return replace(
            self,
            files=(*self.files, *new.files),
            factors=(*self.factors, *moved),
            folders=(*self.folders, *new.folders),
        )

    def sample(self, tasks: int = TASKS, *, seed: int = 0, **options: Any) -> History:
        """Some of the tasks, drawn uniformly at random, as a history in memory.

        They are exchangeable with the others and with the next task, which is all that
        certificates need.

        Parameters
        ----------
        tasks : int
            How many; fewer where they would have more than 10^5 rows on average. Of a task with
            more than 1000 rows, as many are kept, spread evenly.
        seed : int
            The same seed draws the same tasks, wherever they are read.
        **options
            As for `History.from_frame`, ``minimize`` for example. Ranges are those of all tasks,
            where the files say them.
        """
        sizes = self.sizes
        chosen = draw(sizes, tasks, seed)
        labels = np.empty(self.m, dtype=object)
        labels[:] = [str(label) for file in self.files for label in file.labels]
        X, y, kept = self._read(chosen)
        columns = self.columns
        rows: dict[str, Any] = dict(zip(columns.inputs, X.T, strict=True))
        rows |= {name: rows[name].astype(np.int64) for name in columns.whole}
        rows |= {columns.task: np.repeat(labels[chosen], kept), columns.output: y}
        read = partial(
            History.from_frame,
            **{"inputs": columns.inputs, "task": columns.task, "output": columns.output} | options,
        )
        history = self._widened(read, rows)
        if history.report is None or chosen.size == self.m:
            return history
        note = f"{chosen.size:,} of {self.m:,} tasks teach, drawn at random"
        return replace(history, report=replace(history.report, notes=(*history.report.notes, note)))

    def _read(self, chosen: Index) -> tuple[Array, Array, Index]:
        """Inputs and values of the chosen tasks, and how many rows each has."""
        parts, kept, before = [], [], 0
        for file in self.files:
            here = chosen[(chosen >= before) & (chosen < before + file.sizes.size)] - before
            before += file.sizes.size
            for tasks, start in file.pieces(PIECE):
                inside = here[(here >= tasks[0]) & (here <= tasks[-1])]
                if inside.size:
                    X, y = file.read(start, int(file.sizes[tasks].sum()))
                    begins = np.cumsum(file.sizes[tasks]) - file.sizes[tasks]
                    for s in inside.tolist():
                        rows = spread_rows(np.arange(file.sizes[s]), ROWS_OF_A_TASK)
                        rows = rows + begins[s - tasks[0]]
                        parts.append((X[rows], y[rows]))
                        kept.append(len(rows))
        return (
            np.concatenate([X for X, _ in parts]),
            np.concatenate([y for _, y in parts]),
            np.array(kept),
        )

    def _widened(self, read: partial[History], rows: dict[str, Any]) -> History:
        """The sample over the ranges of all tasks, unless the caller gives a space."""
        found = read(rows)
        if found.space is None or read.keywords.get("space") is not None:
            return found
        low = np.min([file.low for file in self.files], axis=0)
        high = np.max([file.high for file in self.files], axis=0)
        ranges = dict(zip(self.columns.inputs, zip(low, high, strict=True), strict=True))
        wide = Space(tuple(_over(p, *ranges[p.name]) for p in found.space.parameters))
        return (
            found if wide == found.space else replace(read(rows, space=wide), report=found.report)
        )

    def __repr__(self) -> str:
        return f"Scan(m={self.m}, N={self.total}, d0={self.d0}, files={len(self.files)})"


def scan(
    path: str | Path | Sequence[str | Path],
    base: KernelDictionary | None = None,
    *,
    task: str = "task",
    inputs: Sequence[str] | None = None,
    output: str = "y",
    folder: str | Path | None = None,
    client: Any = None,
) -> Scan:
    """Past tasks in Parquet files, which are read in pieces and never held together.

    Parameters
    ----------
    path : files, a folder or a pattern such as "runs/*.parquet"; local, or s3://bucket/tasks
        Rows of one observation each. The rows of a task stand together in one file; ``task`` may
        also be the name of a folder (``task=7/part.parquet``).
    base : KernelDictionary, optional
        Base kernels with features, for `learn_kernel`: every file is read once, and the factors
        of its tasks are written to ``folder``. `Scan.sample` does without.
    task, output : str
        Columns.
    inputs : sequence of str, optional
        Columns; by default all other columns of numbers.
    folder : path, optional
        Where factors are kept: (d + 1)^2 numbers per task, or its rows where there are fewer. By
        default a temporary folder, which goes with the scan.
    client : dask.distributed.Client, optional
        Its workers compute the factors, and the sums of every round. They must see the same files
        and the same folder.
    """
    names = find_files(path)
    columns = find_columns(names[0], task=task, inputs=inputs, output=output)
    files = tuple(file for name in names if (file := index_file(name, columns)).sizes.size)
    check_not_repeated(files)
    if not files:
        raise InputError(f"{path} holds no rows; a history needs at least one task")
    found = Scan(files, client=client)
    if base is None:
        return found
    if not isinstance(base, KernelDictionary) or not base.finite:
        raise InputError("base has kernels without features; expected features for tasks on disk")
    if base.d0 not in (None, found.d0):
        raise ShapeError(f"the base kernels take {base.d0} inputs but the tasks have {found.d0}")
    kept: tuple[Temporary, ...] = ()
    if folder is None:
        kept = (Temporary(),)
        folder = kept[0].path
    Path(folder).mkdir(parents=True, exist_ok=True)
    firsts = np.cumsum([0, *(file.sizes.size for file in files)])[:-1].tolist()
    work = [
        (file, first, f"{i:06d}") for i, (file, first) in enumerate(zip(files, firsts, strict=True))
    ]
    write = partial(write_factors, base=base, folder=str(Path(folder).resolve()))
    factors = tuple(file for some in run(write, work, client) for file in some)
    return replace(found, base=base, factors=factors, folders=kept)


def _same(base: KernelDictionary, other: KernelDictionary) -> bool:
    """Whether these are the same kernels, the user's own functions included."""
    functions = [[family.functions for family in one.families] for one in (base, other)]
    return base is other or (functions[0] == functions[1] and encode(base) == encode(other))


def draw(sizes: Index, tasks: int, seed: int) -> Index:
    """Which tasks are in the sample: ``tasks`` of them, or as many as have 10^5 rows on average.

    The number depends on the sizes as a whole and not on which tasks are drawn, so that large ones
    are drawn as often as small ones.
    """
    if tasks < 1:
        raise InputError(f"sample: tasks is {tasks}; expected at least 1")
    affordable = int(ROWS / np.minimum(sizes, ROWS_OF_A_TASK).mean())
    count = min(tasks, max(affordable, 1), sizes.size)
    return np.sort(np.random.default_rng(seed).permutation(sizes.size)[:count])


def _over(parameter: Parameter, low: float, high: float) -> Parameter:
    """The parameter over a range that holds its own; nan keeps it."""
    if not low <= high:
        return parameter
    if isinstance(parameter, Fixed) and low < high:
        if isinstance(parameter.value, int):
            return Integer(parameter.name, int(low), int(high))
        return Float(parameter.name, float(low), float(high))
    if isinstance(parameter, Integer):
        return replace(parameter, low=int(low), high=int(high), log=parameter.log and low > 0)
    if type(parameter) is Float:
        return replace(
            parameter, low=float(low), high=float(high), log=bool(parameter.log and low > 0)
        )
    return parameter
