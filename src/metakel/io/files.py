"""Columns of files: CSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from metakel.errors import InputError
from metakel.io.dialect import Sheet, read_sheet
from metakel.io.frames import Columns, frame_columns, named_once
from metakel.io.parsing import comma_note, decimal_commas, first_comma, texts, typed
from metakel.io.source import Source


def csv_columns(
    path: str | Path, *, delimiter: str | None = None, as_text: Collection[str] = ()
) -> Columns:
    """Columns of a CSV file with a header, plain or gzipped.

    A column is whole numbers, else numbers (with decimal points, or with decimal commas in all
    cells), else true and false, else text. An empty cell is None, in a column of numbers NA as
    well. Columns named in ``as_text`` are text whatever they hold: 01 is not 1. Without a
    ``delimiter``, the header says whether it is a comma, a semicolon or a tab.
    """
    return _columns(read_sheet(Path(path), delimiter), Path(path), as_text)[0]


def csv_source(path: str | Path, *, task: str, output: str, delimiter: str | None = None) -> Source:
    """A CSV file with what was found out in reading it; options as for `csv_columns`."""
    file = Path(path)
    sheet = read_sheet(file, delimiter)
    columns, notes = _columns(sheet, file, (task,))
    return Source(
        file.name, columns, task, output, notes=(*sheet.notes, *notes), lines=tuple(sheet.lines)
    )


def _columns(sheet: Sheet, file: Path, as_text: Collection[str]) -> tuple[Columns, tuple[str, ...]]:
    named_once(sheet.header, file.name)
    cells = dict(zip(sheet.header, zip(*sheet.rows, strict=True), strict=True))
    columns = {name: texts(c) if name in as_text else typed(c) for name, c in cells.items()}
    written = {
        name: cells[name]
        for name, values in columns.items()
        if name not in as_text and any(isinstance(v, str) for v in values)
    }
    with_commas = {name for name, c in written.items() if decimal_commas(c) is not None}
    if not with_commas:
        return columns, ()
    # One column in which the commas can only be decimal ones settles what they are in the others.
    read = {name: decimal_commas(c, sure=True) for name, c in written.items()}
    columns |= {name: list(values) for name, values in read.items() if values is not None}
    shown = {name: first_comma(cells[name]) for name, values in read.items() if values is not None}
    return columns, (comma_note(shown),)


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
