"""Rows to fill in, at the end of a CSV file, written as the file is."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from metakel._files import write_atomically
from metakel.errors import InputError
from metakel.io.cleaning import decimal_commas
from metakel.io.csv_files import csv_sheet


def append_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows at the end of a CSV file; names that it lacks become columns at its end.

    Encoding, delimiter and decimal commas stay as they are. Without a file, a new one is made. The
    file is replaced as a whole or not at all.
    """
    file = Path(path)
    if file.suffix == ".gz":
        raise InputError(f"{file.name} is compressed; expected a plain CSV file to add rows to")
    if not file.exists():
        header = list(dict.fromkeys(name for row in rows for name in row))
        write_atomically(file, _text([header, *_cells(rows, header, comma=False)], ",", "\n"))
        return
    sheet = csv_sheet(file)
    raw = file.read_bytes()
    lines = raw.decode(sheet.encoding).splitlines(keepends=True)
    before, body = "".join(lines[: sheet.start]), lines[sheet.start :]
    table = list(csv.reader(body, delimiter=sheet.delimiter, skipinitialspace=True))
    header = [*table[0], *dict.fromkeys(n for row in rows for n in row if n not in sheet.header)]
    names = [*sheet.header, *header[len(sheet.header) :]]
    columns = zip(*(row for row in table[1:] if len(row) == len(table[0])), strict=True)
    comma = any(decimal_commas(cells) is not None for cells in columns)
    widened = [row + [""] * (len(header) - len(row)) if row else row for row in table[1:]]
    while widened and not any(widened[-1]):
        widened.pop()
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    text = _text([header, *widened, *_cells(rows, names, comma=comma)], sheet.delimiter, end)
    utf8 = sheet.encoding == "utf-8-sig" and not raw.startswith(BOM_UTF8)
    write_atomically(file, (before + text).encode("utf-8" if utf8 else sheet.encoding))


def _cells(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], *, comma: bool
) -> list[list[str]]:
    return [[_cell(row.get(name), comma=comma) for name in names] for row in rows]


def _cell(value: Any, *, comma: bool) -> str:
    if value is None:
        return ""
    return str(value).replace(".", ",") if comma and isinstance(value, float) else str(value)


def _text(rows: Sequence[Sequence[str]], delimiter: str, end: str) -> str:
    buffer = StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator=end).writerows(rows)
    return buffer.getvalue()
