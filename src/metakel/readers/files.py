"""Columns of files: CSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.readers.frames import Columns, frame_columns, named_once

# Missing in a column of numbers. In a column of text "none" may be a choice like any other.
MISSING = frozenset({"", "na", "nan", "n/a", "null", "none"})


def csv_columns(
    path: str | Path, *, delimiter: str = ",", as_text: Collection[str] = ()
) -> Columns:
    """Columns of a CSV file with a header, plain or gzipped.

    A column is whole numbers, else numbers, else text. An empty cell is None, in a column of
    numbers NA as well. Columns named in ``as_text`` are text whatever they hold: 01 is not 1.
    """
    file = Path(path)
    (_, header), *body = _lines(file, delimiter)
    named_once(header, file.name)
    for number, row in body:
        if len(row) != len(header):
            raise InputError(
                f"{file.name}, line {number}: {len(row)} cells; the header has {len(header)}"
            )
    cells = zip(*(row for _, row in body), strict=True)
    return {
        name: (_text if name in as_text else typed)(values)
        for name, values in zip(header, cells, strict=True)
    }


def _lines(file: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Lines that are not blank, header first, with their numbers in the file."""
    opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            lines = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not UTF-8 text: {error}; save it as UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file.name} is no whole gzip file: {error}") from None
    except csv.Error as error:
        raise InputError(f"{file.name}, line {reader.line_num}: no CSV: {error}") from None
    if len(lines) < 2:
        raise InputError(f"{file.name} has {len(lines)} lines; expected a header and rows")
    return lines


def parquet_columns(path: str | Path) -> Columns:
    """Columns of a Parquet file."""
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    if not Path(path).exists():
        raise InputError(f"there is no file {path}")
    try:
        return frame_columns(parquet.read_table(path))
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{Path(path).name} is no Parquet file: {error}") from None


def typed(cells: Sequence[str]) -> list[Any]:
    """Text as whole numbers, else numbers, else text; see `csv_columns` for what is None."""
    words = [cell.strip().lower() for cell in cells]
    present = [word for word in words if word not in MISSING]
    if not present and "nan" not in words:  # not one number
        return _text(cells)
    for kind in (int, float):
        try:
            for word in present:
                kind(word)
        except ValueError:
            continue
        return [None if word in MISSING else kind(word) for word in words]
    return _text(cells)


def _text(cells: Sequence[str]) -> list[Any]:
    return [cell.strip() or None for cell in cells]
