"""Tasks in Parquet files: an index of their rows, and sources that read them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metakel._arrays import Array
from metakel._files import refuse_bomb
from metakel.errors import InputError, MetaKelError, ShardError
from metakel.scale.blocks import Rows
from metakel.scale.evaluator import Index

# Of a longer footer, the end is compared.
LARGEST_FOOTER = 1 << 24


@dataclass(frozen=True)
class ParquetColumns:
    """Names of the columns that are read; ``whole`` are inputs stored as whole numbers."""

    task: str
    inputs: tuple[str, ...]
    output: str
    whole: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileStamp:
    """What tells a file from another one that took its place.

    Where only the time differs, as after a repair, the labels of the tasks decide.
    """

    size: int
    modified: int | None
    footer: str


@dataclass(frozen=True, eq=False)
class FileIndex:
    """Which tasks a file holds, in the order of its rows."""

    path: str
    labels: list[Any]
    sizes: Index
    stamp: FileStamp

    @property
    def tasks(self) -> str:
        """A digest of the labels and sizes of all tasks."""
        text = repr((self.labels, self.sizes.tolist()))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, eq=False)
class RowRange:
    """Consecutive rows of one file that hold whole tasks: a `metakel.scale.blocks.Source`."""

    path: str
    columns: ParquetColumns
    first: int
    sizes: Index
    stamp: FileStamp  # of the file that was scanned
    tasks: str  # a digest of all its tasks
    in_memory: ClassVar[bool] = False

    @property
    def stop(self) -> int:
        return self.first + int(self.sizes.sum())

    def read(self) -> Rows:
        """The observations; reads only the row groups that are needed."""
        if self._changed():
            raise ShardError(
                f"{self.path} was replaced or changed since it was scanned, and its rows may "
                "belong to other tasks now; scan it again"
            )
        table = _read_rows(self.path, self.first, self.stop, self.columns)
        inputs = [self._numbers(table, name) for name in self.columns.inputs]
        y = self._numbers(table, self.columns.output)
        return Rows(np.column_stack(inputs), y, self.sizes)

    def _changed(self) -> bool:
        found = _stamp(self.path)
        if found == self.stamp:
            return False
        if (found.size, found.footer) != (self.stamp.size, self.stamp.footer):
            return True
        return index_file(self.path, self.columns).tasks != self.tasks

    def _numbers(self, table: Any, name: str) -> Array:
        column = table.column(name)
        try:
            values: Array = column.to_numpy().astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ShardError(
                f"{self.path}, rows {self.first} to {self.stop - 1}: column {name!r} of type "
                f"{column.type} cannot be read as numbers: {error}"
            ) from None
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            found = "nothing" if not column[int(bad[0])].is_valid else values[bad[0]]
            raise ShardError(
                f"{self.path}, row {self.first + int(bad[0])}: column {name!r} holds {found}; "
                "expected a finite number"
            )
        return values

    def __str__(self) -> str:
        return f"{self.path}, rows {self.first} to {self.stop - 1}"


def check_unread(old: Iterable[object], new: Iterable[object]) -> None:
    """Refuse rows that were learned from before: their tasks would count twice."""
    known: dict[str, list[RowRange]] = {}
    for other in old:
        if isinstance(other, RowRange):
            known.setdefault(os.path.realpath(other.path), []).append(other)
    for rows in new:
        if not isinstance(rows, RowRange):
            continue
        for other in known.get(os.path.realpath(rows.path), ()):
            if rows.first < other.stop and other.first < rows.stop:
                raise InputError(
                    f"update: {rows} were learned from before; expected new tasks only, so scan "
                    "the files that are new"
                )


def find_files(path: str | Path | Sequence[str | Path]) -> list[str]:
    """Parquet files under a folder (a local path or a URI such as s3://...), or those given."""
    if not isinstance(path, (str, Path)):
        return [name for one in path for name in find_files(one)]
    from pyarrow import fs

    system, inner = _open(path)
    info = system.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise InputError(f"{path} does not exist; expected a Parquet file or a folder of them")
    if info.type == fs.FileType.File:
        return [str(path)]
    prefix = str(path)[: len(str(path)) - len(inner)] if str(path).endswith(inner) else ""
    found = system.get_file_info(fs.FileSelector(inner, recursive=True))
    files = sorted(prefix + f.path for f in found if f.path.endswith((".parquet", ".pq")))
    if not files:
        raise InputError(f"{path} holds no .parquet files")
    return files


def find_columns(
    path: str, *, task: str, inputs: Sequence[str] | None, output: str
) -> ParquetColumns:
    """The columns of a data set, from one of its files; inputs are by default all other numbers."""
    import pyarrow as pa

    with _reading(path, "its schema"):
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
    return ParquetColumns(task, chosen, output, whole)


def index_file(path: str, columns: ParquetColumns) -> FileIndex:
    """Read the column of task labels only."""
    import pyarrow.compute as pc

    partition, stamp = _partition(path), _stamp(path)
    with _reading(path, "its footer"):
        file = _file(path)
        count = file.metadata.num_rows
    if os.path.isfile(path):
        try:
            refuse_bomb(Path(path), 8 * count)  # the labels of all rows, which are read at once
        except InputError as error:
            raise ShardError(str(error)) from None
    if columns.task in partition:
        return FileIndex(path, [partition[columns.task]], np.array([count]), stamp)
    missing = [name for name in (columns.task, columns.output, *columns.inputs)
               if name not in file.schema_arrow.names]  # fmt: skip
    if missing:
        raise ShardError(f"{path}: column {missing[0]!r} is missing")
    with _reading(path, f"column {columns.task!r}"):
        labels = file.read(columns=[columns.task]).column(0).combine_chunks()
    if labels.null_count:
        row = int(np.flatnonzero(labels.is_null().to_numpy(zero_copy_only=False))[0])
        raise ShardError(f"{path}, row {row}: there is no task label")
    if count == 0:
        return FileIndex(path, [], np.empty(0, np.intp), stamp)
    with _reading(path, f"column {columns.task!r}"):
        runs = pc.run_end_encode(labels.cast(_label_type(labels.type)))
        names = runs.values.to_pylist()
    ends = np.asarray(runs.run_ends.to_numpy(), np.intp)
    return FileIndex(path, names, np.diff(ends, prepend=0), stamp)


def check_not_repeated(files: Sequence[FileIndex]) -> None:
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
                    "(sort the table by task before it is written)"
                )
            seen[label] = file.path, row
            row += size


def row_ranges(file: FileIndex, columns: ParquetColumns, rows: int) -> list[RowRange]:
    """The file in parts of at most ``rows`` rows, or of one task where that is longer."""
    ranges, first, start, count = [], 0, 0, 0
    tasks = file.tasks
    for i, size in enumerate([*file.sizes.tolist(), rows + 1]):
        if count and count + size > rows:
            ranges.append(
                RowRange(file.path, columns, start, file.sizes[first:i], file.stamp, tasks)
            )
            first, start, count = i, start + count, 0
        count += size
    return ranges


def _read_rows(path: str, first: int, stop: int, columns: ParquetColumns) -> Any:
    import pyarrow as pa

    with _reading(path, "its footer"):
        file = _file(path)
    sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
    ends = np.cumsum(sizes)
    groups = np.flatnonzero((ends > first) & (ends - sizes < stop))
    tables = []
    for g in groups.tolist():
        with _reading(path, f"rows {ends[g] - sizes[g]} to {ends[g] - 1}"):
            tables.append(file.read_row_group(g, columns=[*columns.inputs, columns.output]))
    before = int(ends[groups[0]] - sizes[groups[0]])
    return pa.concat_tables(tables).slice(first - before, stop - first)


@contextmanager
def _reading(path: str, what: str) -> Iterator[None]:
    """An error while reading names the file and the part of it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ShardError(f"{path}: {what} cannot be read: {error}") from None


def _file(path: str) -> Any:
    import pyarrow.parquet as pq

    system, inner = _open(path)
    return pq.ParquetFile(system.open_input_file(inner))


def _stamp(path: str) -> FileStamp:
    with _reading(path, "its footer"):
        system, inner = _open(path)
        info = system.get_file_info(inner)
        with system.open_input_file(inner) as file:
            size = file.size()
            # The last eight bytes are the length of the footer and a mark.
            length = int.from_bytes(file.read_at(min(size, 8), max(size - 8, 0))[:4], "little")
            known = min(length + 8, size, LARGEST_FOOTER)
            footer = hashlib.sha256(file.read_at(known, size - known)).hexdigest()
    return FileStamp(size, info.mtime_ns, footer)


def _open(path: str | Path) -> tuple[Any, str]:
    try:
        from pyarrow import fs
    except ImportError:
        raise MetaKelError("reading Parquet needs pyarrow: pip install metakel[dask]") from None
    if "://" in str(path):
        system, inner = fs.FileSystem.from_uri(str(path))
        return system, inner
    return fs.LocalFileSystem(), str(path)


def _label_type(kind: Any) -> Any:
    """The type of the labels, also where they are dictionary-encoded."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _partition(path: str) -> dict[str, str]:
    """Values that folders named key=value give to the rows below them."""
    return dict(part.split("=", 1) for part in Path(path).parts[:-1] if "=" in part)
