"""Tasks in Parquet files: all of them for `learn_kernel`, a sample of them for `learn_prior`.

Files are indexed by the column of tasks, and their rows are read in pieces.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._files import refuse_bomb
from metakel.data import History
from metakel.errors import InputError, MetaKelError, ShapeError
from metakel.grouplasso import Problem
from metakel.grouplasso.problem import Index
from metakel.io.tables import is_bytes
from metakel.kernels import KernelDictionary
from metakel.kernels.nystrom import spread_rows
from metakel.kernels.sum import same_kernels
from metakel.scale.factors import FactorBatches, FactorFile, RoundEvaluator, run, write_factors
from metakel.space import Fixed, Float, Integer, Parameter, Space

LOG = logging.getLogger("metakel")
PATIENCE = 5.0  # seconds after which a wait is explained
TASKS = 1000
# What a sample takes in at most: memory and time of learning grow with the rows.
ROWS, ROWS_OF_A_TASK = 100_000, 1000
PIECE = 100_000  # rows that are read at a time


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are read; ``whole`` are inputs stored as whole numbers."""

    task: str
    inputs: tuple[str, ...]
    output: str
    whole: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TaskFile:
    """Which tasks a file holds, in the order of its rows.

    ``low`` and ``high`` (d0,) are the ranges of the inputs where the file says them, else nan.
    """

    path: str
    columns: Columns
    labels: tuple[Any, ...]
    sizes: Index
    low: Array
    high: Array

    def pieces(self, rows: int) -> Iterator[tuple[Index, int]]:
        """Numbers of tasks with at most ``rows`` rows, or of one larger task; the first row."""
        first = start = count = 0
        for s, size in enumerate(self.sizes.tolist()):
            if count and count + size > rows:
                yield np.arange(first, s), start
                first, start, count = s, start + count, 0
            count += size
        if count:
            yield np.arange(first, self.sizes.size), start

    def read(self, start: int, count: int) -> tuple[Array, Array]:
        """Inputs (count, d0) and values (count,) from row ``start`` on, checked."""
        import pyarrow as pa

        with _reading(self.path, "its footer"):
            file = _file(self.path)
            groups = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        ends = np.cumsum(groups)
        needed = np.flatnonzero((ends > start) & (ends - groups < start + count)).tolist()
        names, tables = [*self.columns.inputs, self.columns.output], []
        for g in needed:
            with _reading(self.path, f"rows {ends[g] - groups[g]} to {ends[g] - 1}"):
                tables.append(file.read_row_group(g, columns=names))
        before = int(ends[needed[0]] - groups[needed[0]])
        table = pa.concat_tables(tables).slice(start - before, count)
        numbers = [_numbers(self.path, start, name, table.column(name)) for name in names]
        return np.column_stack(numbers[:-1]), numbers[-1]


class Temporary:
    """A folder that goes with the last scan that refers to it."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="metakel-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Scan:
    """Past tasks in files, made by `scan`: ``learn_kernel(scan(path, base))``."""

    files: tuple[TaskFile, ...]  # which tasks are where
    base: KernelDictionary | None = None  # base kernels whose factors were computed
    factors: tuple[FactorFile, ...] = field(default=(), repr=False)
    client: Any = field(default=None, repr=False)  # of dask.distributed
    folders: tuple[Temporary, ...] = field(default=(), repr=False)  # those that hold factors

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
        if self.base is None or new.base is None or not same_kernels(self.base, new.base):
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
        parts, before = [], 0
        for file in self.files:
            here = chosen[(chosen >= before) & (chosen < before + file.sizes.size)] - before
            before += file.sizes.size
            begins = np.cumsum(file.sizes) - file.sizes
            for tasks, start in file.pieces(PIECE):
                inside = here[(here >= tasks[0]) & (here <= tasks[-1])]
                if not inside.size:
                    continue
                X, y = file.read(start, int(file.sizes[tasks].sum()))
                for s in inside.tolist():
                    rows = spread_rows(np.arange(file.sizes[s]), ROWS_OF_A_TASK)
                    rows = rows + begins[s] - start
                    parts.append((X[rows], y[rows]))
        X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
        return X, y, np.array([len(values) for _, values in parts])

    def _widened(self, read: partial[History], rows: dict[str, Any]) -> History:
        """The sample over the ranges of all tasks, unless the caller gives a space."""
        found = read(rows)
        if found.space is None or read.keywords.get("space") is not None:
            return found
        low = np.min([file.low for file in self.files], axis=0)
        high = np.max([file.high for file in self.files], axis=0)
        ranges = dict(zip(self.columns.inputs, zip(low, high, strict=True), strict=True))
        wide = Space(tuple(_over(p, *ranges[p.name]) for p in found.space.parameters))
        if wide == found.space:
            return found
        return replace(read(rows, space=wide), report=found.report)

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
    kept = [Temporary()] if folder is None else []
    place = Path(kept[0].path if folder is None else folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    work, first = [], 0
    for i, file in enumerate(files):
        work.append((file, first, f"{i:06d}"))
        first += file.sizes.size
    write = partial(write_factors, base=base, folder=str(place))
    factors = tuple(file for some in run(write, work, client) for file in some)
    return replace(found, base=base, factors=factors, folders=tuple(kept))


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
    if isinstance(parameter, Fixed) and low < high:
        if isinstance(parameter.value, int):
            return Integer(parameter.name, int(low), int(high))
        return Float(parameter.name, float(low), float(high))
    if not isinstance(parameter, Float) or not low <= high:
        return parameter
    number = int if isinstance(parameter, Integer) else float
    return replace(
        parameter, low=number(low), high=number(high), log=bool(parameter.log and low > 0)
    )


# Files


def find_files(path: str | Path | Sequence[str | Path]) -> list[str]:
    """Parquet files: those given, those of a pattern, or all in a folder, local or s3://..."""
    if not isinstance(path, (str, Path)):
        return [name for one in path for name in find_files(one)]
    if "://" not in str(path) and has_magic(str(path)):
        if not (found := sorted(glob(str(path), recursive=True))):
            raise InputError(f"no file matches {path}; expected Parquet files")
        return found
    system, inner = _open(path)
    from pyarrow import fs

    with _reading(str(path), "its place"):
        info = system.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise InputError(f"{path} does not exist; expected a Parquet file or a folder of them")
    if info.type == fs.FileType.File:
        return [str(path)]
    prefix = str(path)[: len(str(path)) - len(inner)] if str(path).endswith(inner) else ""
    with _reading(str(path), "the folder"):
        inside = system.get_file_info(fs.FileSelector(inner, recursive=True))
    files = sorted(prefix + f.path for f in inside if f.path.endswith((".parquet", ".pq")))
    if not files:
        raise InputError(f"{path} holds no .parquet files")
    return files


def find_columns(path: str, *, task: str, inputs: Sequence[str] | None, output: str) -> Columns:
    """The columns of a data set, from one of its files; inputs are by default all other numbers."""
    import pyarrow as pa

    with _reading(path, "its footer"):
        schema = _file(path).schema_arrow
    chosen = tuple(inputs) if inputs is not None else tuple(
        field.name for field in schema
        if field.name not in (task, output)
        and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    )  # fmt: skip
    known = {*schema.names, *_partition(path)}
    missing = [name for name in (task, *chosen, output) if name not in known]
    if missing or not chosen:
        raise InputError(
            f"{path} has the columns {', '.join(schema.names)}; "
            + (f"{', '.join(missing)} not found" if missing else "no column is left as an input")
        )
    whole = tuple(f.name for f in schema if f.name in chosen and pa.types.is_integer(f.type))
    return Columns(task, chosen, output, whole)


def index_file(path: str, columns: Columns) -> TaskFile:
    """Read the column of task labels only, and what the footer says of the others."""
    import pyarrow as pa

    partition = _partition(path)
    with _reading(path, "its footer"):
        file = _file(path)
        count, schema = file.metadata.num_rows, file.schema_arrow
    if os.path.isfile(path):
        # The labels of all rows are read at once, and all columns of a group of rows.
        groups = (file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))
        widest = max(groups, default=0) * (1 + len(columns.inputs))
        refuse_bomb(Path(path), 8 * max(count, widest))
    named = [columns.output, *columns.inputs]
    if columns.task not in partition:
        named.append(columns.task)
    for name in named:
        if name not in schema.names:
            raise InputError(f"{path}: column {name!r} is missing")
        if pa.types.is_nested(kind := schema.field(name).type) or is_bytes(kind):
            raise InputError(f"{path}: column {name!r} is {kind}; expected numbers or labels")
    low, high = _ranges(file, columns.inputs)
    if columns.task in partition:
        return TaskFile(path, columns, (partition[columns.task],), np.array([count]), low, high)
    with _reading(path, f"column {columns.task!r}"):
        # Text stays a dictionary: a long label that is repeated is not unpacked.
        labels = _file(path, columns.task).read(columns=[columns.task]).column(0)
    if labels.null_count:
        row = int(np.flatnonzero(labels.is_null().to_numpy())[0])
        raise InputError(f"{path}, row {row}: there is no task label")
    with _reading(path, f"column {columns.task!r}"):  # its dictionary may be damaged
        names, sizes = _runs(labels)
    return TaskFile(path, columns, tuple(names), sizes, low, high)


def check_not_repeated(files: Sequence[TaskFile]) -> None:
    """Refuse a label that turns up again: the rows of a task must stand together."""
    seen: dict[Any, tuple[str, int]] = {}
    for file in files:
        row = 0
        for label, size in zip(file.labels, file.sizes.tolist(), strict=True):
            if label in seen:
                where, first = seen[label]
                raise InputError(
                    f"{file.path}, row {row}: task {label!r} has rows at {where}, row {first}, "
                    "already; the rows of a task must stand together in one file "
                    "(sort the table by task before it is written), and count once"
                )
            seen[label] = file.path, row
            row += size


def _runs(labels: Any) -> tuple[list[Any], Index]:
    """Labels of consecutive equal rows, and their numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = labels.unify_dictionaries().combine_chunks()
    if not len(whole):
        return [], np.empty(0, np.intp)
    codes = whole.indices if pa.types.is_dictionary(whole.type) else whole
    runs = pc.run_end_encode(codes)
    names = runs.values
    if pa.types.is_dictionary(whole.type):
        names = whole.dictionary.take(names)
    ends = np.asarray(runs.run_ends.to_numpy(), np.intp)
    return names.to_pylist(), np.diff(ends, prepend=0)


def _ranges(file: Any, inputs: Sequence[str]) -> tuple[Array, Array]:
    """Smallest and largest value of the inputs over the row groups, nan where it is not said."""
    low, high = np.full((2, len(inputs)), np.nan)
    columns = {file.schema.column(i).path: i for i in range(len(file.schema))}
    for k, name in enumerate(inputs):
        found = [
            file.metadata.row_group(g).column(columns[name]).statistics
            for g in range(file.num_row_groups)
        ]
        if found and all(s is not None and s.has_min_max for s in found):
            low[k], high[k] = min(s.min for s in found), max(s.max for s in found)
    return low, high


def _numbers(path: str, start: int, name: str, column: Any) -> Array:
    try:
        values: Array = column.to_numpy().astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{path}, rows {start} to {start + len(column) - 1}: column {name!r} of type "
            f"{column.type} cannot be read as numbers: {error}"
        ) from None
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        found = "nothing" if not column[int(bad[0])].is_valid else values[bad[0]]
        raise InputError(
            f"{path}, row {start + int(bad[0])}: column {name!r} holds {found}; "
            "expected a finite number"
        )
    return values


@contextmanager
def _reading(path: str, what: str) -> Iterator[None]:
    """An error while reading names the file and the part of it; a long wait for a host is told."""
    import pyarrow as pa

    told = Timer(PATIENCE, LOG.warning, ("still waiting for %s: can its host be reached?", path))
    told.daemon = True
    try:
        if "://" in path:
            told.start()
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {what} cannot be read: {error}") from None
    finally:
        told.cancel()


def _file(path: str, *dictionaries: str) -> Any:
    import pyarrow.parquet as pq

    system, inner = _open(path)
    return pq.ParquetFile(system.open_input_file(inner), read_dictionary=list(dictionaries))


def _open(path: str | Path) -> tuple[Any, str]:
    try:
        from pyarrow import fs
    except ImportError:
        raise MetaKelError("reading Parquet needs pyarrow: pip install pyarrow") from None
    if "://" in str(path):
        with _reading(str(path), "its place"):
            system, inner = fs.FileSystem.from_uri(str(path))
        return system, inner
    return fs.LocalFileSystem(), str(path)


def _partition(path: str) -> dict[str, str]:
    """Values that folders named key=value give to the rows below them."""
    return dict(part.split("=", 1) for part in Path(path).parts[:-1] if "=" in part)
