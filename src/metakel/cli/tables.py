"""Tables that people name on the command line, by the ending of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.io import append_csv, append_excel, csv_columns, excel_columns, parquet_columns


def is_workbook(path: str | Path) -> bool:
    """Whether it is an Excel workbook."""
    return str(path).lower().endswith((".xlsx", ".xlsm"))


def is_parquet(path: str | Path) -> bool:
    """Whether it is a Parquet file."""
    return str(path).endswith((".parquet", ".pq"))


def table_columns(
    path: str | Path, delimiter: str | None = None, sheet: str | None = None
) -> dict[str, list[Any]]:
    """The columns of a file as lists."""
    if is_workbook(path):
        return excel_columns(path, sheet=sheet)
    return parquet_columns(path) if is_parquet(path) else csv_columns(path, delimiter=delimiter)


def append_rows(
    path: str | Path, rows: Sequence[Mapping[str, Any]], sheet: str | None = None
) -> None:
    """Write rows at the end of a table, for people to fill in."""
    if is_parquet(path):
        raise InputError(f"{path} is a Parquet file; expected a CSV file or a workbook (.xlsx)")
    if is_workbook(path):
        append_excel(path, rows, sheet=sheet)
    else:
        append_csv(path, rows)
