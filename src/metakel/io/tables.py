"""Tables in memory, Parquet files and JSON lines: columns that have their names and types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from metakel._files import read_text, refuse_bomb
from metakel.errors import Hint, InputError
from metakel.io.columns import Column, Columns, check_names
from metakel.io.schema import Table


def read_frame(frame: Any, *, task: str, output: str) -> Table:
    """A pandas or Polars frame, an Arrow table or a dict of columns."""
    return Table("a table", _columns(frame), str(task), str(output))  # names may be numbers


def read_parquet(path: str | Path, *, task: str, output: str) -> Table:
    """A Parquet file (needs pyarrow)."""
    return Table(Path(path).name, _parquet(path), task, output)


def _parquet(path: str | Path) -> Columns:
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    if not Path(path).exists():
        raise InputError(f"there is no file {path}")
    try:
        files = [path] if Path(path).is_file() else parquet.ParquetDataset(path).files
        texts = {
            name for file in files for name in _texts_of(parquet.ParquetFile(file), Path(file))
        }
        # Text stays a dictionary: a long one that is repeated is not unpacked.
        return _columns(parquet.read_table(path, read_dictionary=sorted(texts)))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{Path(path).name} is no Parquet file, or damaged: {error}") from None


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
    names: list[Any]
    if isinstance(frame, Mapping):
        names, columns = list(frame), [_given(name, values) for name, values in frame.items()]
    elif hasattr(frame, "iloc"):  # pandas, by position, as names may be there twice
        names = list(frame.columns)
        columns = [_from_pandas(frame.iloc[:, i]) for i in range(len(names))]
    elif hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy Polars frame
        return _columns(frame.collect())
    elif hasattr(frame, "get_columns"):  # Polars
        names = list(frame.columns)
        columns = [_from_polars(series) for series in frame.get_columns()]
    elif hasattr(frame, "column_names"):  # Arrow
        names, columns = frame.column_names, [_from_arrow(chunks) for chunks in frame.columns]
    else:
        raise InputError(
            f"found a {type(frame).__name__}; expected a pandas or Polars frame, an Arrow table "
            "or a dict of columns"
        )
    check_names([str(name) for name in names], "the table")
    table = {str(name): column for name, column in zip(names, columns, strict=True)}
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


def _from_polars(series: Any) -> Column:
    numbers = series.dtype.is_numeric() and not series.null_count()
    return Column.of(series.to_numpy() if numbers else series.to_list())


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
    file = Path(path)
    columns, lines = _json_columns(file)
    return Table(
        file.name, columns, task, output, place=lambda i: f"line {lines[i]} of {file.name}"
    )


def _json_columns(file: Path) -> tuple[Columns, list[int]]:
    rows, lines = list[dict[tuple[str, ...], Any]](), list[int]()
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
        rows.append(dict(_spread(found)))
        lines.append(number)
    if not rows:
        raise InputError(f"{file.name} has no line; expected one JSON object per run")
    paths = list(dict.fromkeys(path for row in rows for path in row))
    ends = [path[-1] for path in paths]
    names = [p[-1] if ends.count(p[-1]) == 1 else ".".join(p) for p in paths]
    pairs = zip(paths, names, strict=True)
    return {name: Column.of([row.get(path) for row in rows]) for path, name in pairs}, lines


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
