"""Tables: in memory, in Parquet files and JSON lines, in any file, and several as one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from metakel._files import read_text, refuse_bomb
from metakel.errors import Hint, InputError
from metakel.io.columns import Column, Columns, check_names
from metakel.io.csv_files import CsvTable, empty_csv
from metakel.io.excel import SheetTable, empty_workbook, read_sheet
from metakel.io.schema import Table

KINDS = {
    "workbook": (".xlsx", ".xlsm"),
    "JSON": (".json", ".jsonl", ".ndjson"),  # a run in every line, or all in a list
    "Parquet": (".parquet", ".pq"),
}
TableFile = CsvTable | SheetTable
NO_RECORD = (".gz", *KINDS["Parquet"], ".xls", ".ods", ".db", ".json", ".jsonl")


def kind_of(path: str | Path) -> str:
    """What a file is, by the end of its name: one of `KINDS`, or text."""
    name = str(path).lower()
    return next((kind for kind, ends in KINDS.items() if name.endswith(ends)), "text")


def open_table(
    path: Path,
    sheet: str | None = None,
    *,
    having: Collection[str] = (),
    signed: Collection[str] = (),
) -> TableFile:
    """A table that is kept as a record: its rows, and the file with more rows.

    In a CSV file, or in a workbook, there by default in a sheet with these columns. Cells of the
    ``signed`` columns that are shown as per cent are texts, such as "70 %".
    """
    if kind_of(path) == "workbook":
        return read_sheet(path, sheet, having=having, signed=signed)
    if path.suffix.lower() in NO_RECORD:
        raise InputError(
            f"{path.name} cannot be added to; expected a CSV file or an Excel workbook (.xlsx), "
            "which a person fills in"
        )
    if sheet is not None:
        raise InputError(
            f"sheet {sheet!r} of {path.name}, which is no workbook",
            Hint("leave it out", "sheet=None", "leaving out --sheet"),
        )
    return CsvTable.open(path)


def empty_table(
    path: Path, names: Sequence[str], sheet: str | None = None, shares: Collection[str] = ()
) -> bytes:
    """The content of a new file with these columns and no rows.

    A workbook shows those of ``shares`` as per cent, so that 67 typed into one is 0.67.
    """
    workbook = kind_of(path) == "workbook"
    return empty_workbook(names, sheet, shares) if workbook else empty_csv(names)


def read_frame(frame: Any, *, task: str, output: str) -> Table:
    """A pandas or Polars frame, an Arrow table or a dict of columns."""
    return Table("a table", _columns(frame), str(task), str(output))  # names may be numbers


def read_parquet(path: str | Path, *, task: str, output: str) -> Table:
    """A Parquet file (needs pyarrow)."""
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    place = Path(path)
    if not place.exists():
        raise InputError(f"there is no file {path}")
    try:
        files = [path] if place.is_file() else parquet.ParquetDataset(path).files
        texts = {n for file in files for n in _texts_of(parquet.ParquetFile(file), Path(file))}
        # Text stays a dictionary: a long one that is repeated is not unpacked.
        columns = _columns(parquet.read_table(path, read_dictionary=sorted(texts)))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place.name} is no Parquet file, or damaged: {error}") from None
    return Table(place.name, columns, task, output)


def _texts_of(file: Any, path: Path) -> list[str]:
    """Columns of text; refused are lists, bytes, and more than fits into the memory."""
    import pyarrow.types as types  # type: ignore[import-untyped,import-not-found,unused-ignore]

    schema, about = file.schema_arrow, file.metadata
    for field in schema:
        if types.is_nested(field.type) or is_bytes(field.type):
            raise InputError(
                f"{path.name}: column {field.name!r} is {field.type}; expected numbers, text or "
                "dates: write every part of it as a column of its own"
            )
    groups = [about.row_group(g) for g in range(about.num_row_groups)]
    stored = sum(g.column(i).total_uncompressed_size for g in groups for i in range(g.num_columns))
    refuse_bomb(path, max(8 * about.num_rows * about.num_columns, stored))
    return [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]


def is_bytes(kind: Any) -> bool:
    """Whether an Arrow column holds bytes: one long value may stand in millions of rows."""
    return "binary" in str(kind)


def _columns(frame: Any) -> Columns:
    """Columns by name. Nothing is imported: the frame brings its own library."""
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy Polars frame
        frame = frame.collect()
    pairs: Iterable[tuple[Any, Column]]
    if isinstance(frame, Mapping):
        pairs = [(name, _given(name, values)) for name, values in frame.items()]
    elif hasattr(frame, "iloc"):  # pandas, by position, as names may be there twice
        pairs = [(n, _from_pandas(frame.iloc[:, i])) for i, n in enumerate(frame.columns)]
    elif hasattr(frame, "get_columns"):  # Polars
        pairs = [
            (
                s.name,
                Column.of(
                    s.to_numpy() if s.dtype.is_numeric() and not s.null_count() else s.to_list()
                ),
            )
            for s in frame.get_columns()
        ]
    elif hasattr(frame, "column_names"):  # Arrow
        pairs = zip(frame.column_names, map(_from_arrow, frame.columns), strict=True)
    else:
        raise InputError(
            f"found a {type(frame).__name__}; expected a pandas or Polars frame, an Arrow table "
            "or a dict of columns"
        )
    named = [(str(name), column) for name, column in pairs]
    check_names([name for name, _ in named], "the table")
    table = dict(named)
    sizes = {name: len(column) for name, column in table.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"columns differ in length: {sizes}")
    return table


def _given(name: Any, values: Any) -> Column:
    if not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
        shape = getattr(values, "shape", type(values).__name__)
        raise InputError(f"column {name!r} is of {shape}; expected a value for every row")
    return Column.of(values)  # type: ignore[arg-type]


def _from_pandas(series: Any) -> Column:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return Column.of(series.to_numpy())
    if not isinstance(series.dtype, np.dtype) and series.dtype.type is str:
        codes, levels = series.factorize()
        codes = np.where(codes < 0, len(levels), codes)  # -1 where one is missing
        return Column.of_levels(codes, [*levels.tolist(), float("nan")])
    return Column.of(series.tolist())


def _from_arrow(chunks: Any) -> Column:
    kind = str(chunks.type)
    if chunks.null_count == 0 and kind in ("double", "float", "int64", "int32"):
        return Column.of(chunks.to_numpy())
    if kind in ("string", "large_string") or kind.startswith("dictionary<values=string"):
        coded = chunks.unify_dictionaries().combine_chunks().dictionary_encode()
        codes = coded.indices.fill_null(len(coded.dictionary)).to_numpy()
        return Column.of_levels(codes.astype(np.intp), [*coded.dictionary.to_pylist(), None])
    return Column.of(chunks.to_pylist())


def read_jsonl(path: str | Path, *, task: str, output: str) -> Table:
    """A file with one JSON object per line; objects in it are spread, as in ``params.rate``.

    The name of a nested value is its own where that is the only one of its name.
    """
    file, rows = Path(path), dict[int, dict[tuple[str, ...], Any]]()
    for number, found in _entries(read_text(file, "JSON lines"), file.name):
        if not isinstance(found, Mapping):
            raise InputError(
                f"line {number} of {file.name} is {str(found)[:40]!r}; expected an object, as in "
                '{"data": "a", "rate": 0.1, "auc": 0.9}'
            )
        if number == 1 and found.get("format") == "metakel.journal":
            raise InputError(
                f"{file.name} is a journal of metakel; expected a table of past runs",
                Hint("learn from journals", "Store.open(path)", "--journals"),
            )
        rows[number] = dict(_spread(found))
    if not rows:
        raise InputError(f"{file.name} has no line; expected one JSON object per run")
    paths = dict.fromkeys(path for row in rows.values() for path in row)
    times = Counter(path[-1] for path in paths)
    columns = {
        path[-1] if times[path[-1]] == 1 else ".".join(path): Column.of(
            [row.get(path) for row in rows.values()]
        )
        for path in paths
    }
    lines = list(rows)
    return Table(
        file.name, columns, task, output, place=lambda i: f"line {lines[i]} of {file.name}"
    )


def _entries(text: str, name: str) -> Iterator[tuple[int, Any]]:
    """What a file holds, one entry in a line or all in one list, each with the number of its line.

    Entries of a list are counted instead.
    """
    with suppress(ValueError, RecursionError):
        if text.lstrip().startswith("["):
            yield from enumerate(json.loads(text), start=1)
            return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"line {number} of {name} is not JSON: {error}") from None


def _spread(entry: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from _spread(value, (*above, str(name)))
        else:
            yield (*above, str(name)), value


# Several tables as one


def renamed(sources: Sequence[Table], names: Mapping[str, str]) -> list[Table]:
    """The sources with other names of columns; one that has the new name already keeps it."""
    known = {name for source in sources for name in source.columns}
    for old in names:
        if old not in known:
            raise InputError(f"no column {old!r} to rename; found {', '.join(sorted(known))}")
    found = []
    for source in sources:
        for old, new in names.items():
            if {old, new} <= source.columns.keys():
                raise InputError(
                    f"{source.name} has both columns {old!r} and {new!r}; expected one of them, "
                    f"as {old!r} is renamed"
                )
        columns = {names.get(name, name): column for name, column in source.columns.items()}
        task, output = (names.get(name, name) for name in (source.task, source.output))
        found.append(replace(source, columns=columns, task=task, output=output))
    return found


def join_tables(sources: Sequence[Table]) -> Table:
    """One source of all rows; a column that a table has not is empty in its rows.

    Rows with the same task label belong to one task, unless the tables differ in their columns:
    then what is recorded of it differs, too, and each table has a task of its own.
    """
    if not sources:
        raise InputError("found no table; expected at least one")
    first, *others = sources
    if not others:
        return first
    for source in sources:
        for name in (first.task, first.output):
            if name not in source.columns:
                raise InputError(
                    f"{source.name} has no column {name!r}; found {', '.join(source.columns)}"
                )
        if source.space is not None:
            raise InputError(f"{source.name} is not a table; expected tables to read together")
    sizes = [len(source.columns[source.task]) for source in sources]
    tables = [source.columns for source in sources]
    labels = [source.columns[source.task].tolist() for source in sources]
    times = Counter(label for own in labels for label in dict.fromkeys(own))
    twice = [label for label, n in times.items() if n > 1 and label is not None]
    notes = []
    if twice and len({frozenset(table) for table in tables}) > 1:
        for k, (source, own) in enumerate(zip(sources, labels, strict=True)):
            marked = [f"{v} ({source.name}, {k + 1})" if v in twice else v for v in own]
            tables[k] = {**source.columns, source.task: Column.of(marked)}
        notes.append(
            f"{len(twice)} tasks are in several tables that record other columns (e.g. "
            f"{twice[0]!r}): taken as one task in each"
        )
    columns = {
        name: Column.joined(
            [
                table[name] if name in table else Column(np.zeros(n), np.ones(n, dtype=bool))
                for table, n in zip(tables, sizes, strict=True)
            ]
        )
        for name in dict.fromkeys(name for table in tables for name in table)
    }
    starts = np.cumsum([0, *sizes])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        found = sources[which].place(row - int(starts[which]))
        return found if sources[which].name in found else f"{found} of {sources[which].name}"

    return replace(
        first,
        name=" and ".join(source.name for source in sources),
        columns=columns,
        failed=sum(source.failed for source in sources),
        notes=(*(f"{s.name}: {note}" for s in sources for note in s.notes), *notes),
        place=place,
        noise=next((source.noise for source in sources if source.noise), None),
        curves={name: curves for source in sources for name, curves in source.curves.items()},
    )
