"""Columns of files: CSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.readers.frames import Columns, frame_columns

MISSING = frozenset({"", "na", "nan", "n/a", "null", "none"})


def csv_columns(path: str | Path, *, delimiter: str = ",") -> Columns:
    """Columns of a CSV file with a header, plain or gzipped.

    A column is whole numbers, else numbers, else text; empty cells and NA are None.
    """
    file = Path(path)
    opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.reader(stream, delimiter=delimiter))
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    if len(rows) < 2:
        raise InputError(f"{file.name} has {len(rows)} lines; expected a header and rows")
    header, body = rows[0], [row for row in rows[1:] if row]
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise InputError(
                f"{file.name}, line {number}: {len(row)} cells; the header has {len(header)}"
            )
    cells = list(zip(*body, strict=True)) or [()] * len(header)
    return {name: typed(values) for name, values in zip(header, cells, strict=True)}


def parquet_columns(path: str | Path) -> Columns:
    """Columns of a Parquet file."""
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    if not Path(path).exists():
        raise InputError(f"there is no file {path}")
    return frame_columns(parquet.read_table(path))


def typed(cells: Sequence[str]) -> list[Any]:
    """Text as whole numbers, else numbers, else text; empty cells and NA are None."""
    present = [cell for cell in cells if cell.strip().lower() not in MISSING]
    for kind in (int, float):
        try:
            for cell in present:
                kind(cell)
        except ValueError:
            continue
        return [None if cell.strip().lower() in MISSING else kind(cell) for cell in cells]
    return [None if cell.strip().lower() in MISSING else cell.strip() for cell in cells]
