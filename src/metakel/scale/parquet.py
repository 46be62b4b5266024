"""Tasks in Parquet files: an index of their rows, and how these are read in pieces."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel._files import refuse_bomb
from metakel.errors import InputError, MetaKelError
from metakel.io.tables import is_bytes

LOG = logging.getLogger("metakel")
PATIENCE = 5.0  # seconds after which a wait is explained
Index = NDArray[np.intp]


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
