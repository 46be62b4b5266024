"""A table that is kept as a record: its rows, and the file with more rows, ready to be written."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Protocol

from metakel.errors import Hint, InputError
from metakel.io.csv_files import CsvTable, read_csv_table
from metakel.io.excel import SheetTable, empty_workbook, read_sheet
from metakel.io.excel_rows import SheetText, letters
from metakel.space.text import is_ambiguous, is_numeric

WORKBOOKS = (".xlsx", ".xlsm")
SHOWN = 5
EXACT = 2.0**53  # whole numbers up to here are exact as floats
Row = Mapping[str, Any]


class TableFile(Protocol):
    """A table on disk."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The cells by the names of the columns, None for empty ones."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How it was read."""

    def place(self, i: int) -> str:
        """Where a row is found."""

    def next_place(self, i: int) -> str:
        """Where the new row with this index will be found."""

    def with_rows(self, rows: Sequence[Row]) -> bytes:
        """The content of the file with these rows below the others."""

    def refuse_uncalculated(self, names: Sequence[str]) -> None:
        """Refuse formulas in these columns that no program has worked out."""


def open_table(
    path: Path,
    sheet: str | None = None,
    *,
    having: Collection[str] = (),
    signed: Collection[str] = (),
) -> TableFile:
    """The table in a CSV file or a workbook, there by default in a sheet with these columns.

    Cells of the ``signed`` columns that are shown as per cent are texts, such as "70 %".
    """
    if path.suffix.lower() in WORKBOOKS:
        found = read_sheet(path, sheet, having=having, signed=signed)
        return _Workbook(path, path.read_bytes(), found)
    if path.suffix.lower() in (".gz", ".parquet", ".pq", ".xls", ".ods", ".db", ".json", ".jsonl"):
        raise InputError(
            f"{path.name} cannot be added to; expected a CSV file or an Excel workbook (.xlsx), "
            "which a person fills in"
        )
    if sheet is not None:
        raise InputError(
            f"sheet {sheet!r} of {path.name}, which is no workbook",
            Hint("leave it out", "sheet=None", "leaving out --sheet"),
        )
    return _Text(path, path.read_bytes(), read_csv_table(path))


def empty_table(
    path: Path, names: Sequence[str], sheet: str | None = None, shares: Collection[str] = ()
) -> bytes:
    """The content of a new file with these columns and no rows.

    A workbook shows those of ``shares`` as per cent, so that 67 typed into one is 0.67.
    """
    if path.suffix.lower() in WORKBOOKS:
        return empty_workbook(names, sheet, shares)
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue().encode("utf-8-sig")  # by the mark Excel knows that it is UTF-8


@dataclass(frozen=True, eq=False)
class _Workbook:
    path: Path
    content: bytes
    found: SheetTable

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {name: column.tolist() for name, column in self.found.columns.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return self.found.notes

    @property
    def _text(self) -> SheetText:
        return SheetText.of(self.content, self.found.sheet)

    def place(self, i: int) -> str:
        return self.found.place(i)

    def next_place(self, i: int) -> str:
        return f"row {self.found.last + 1 + i} of {self.path.name}"

    def with_rows(self, rows: Sequence[Row]) -> bytes:
        header, found = self.found.header, self.found
        cells = {
            found.last + 1 + i: {header[name]: self._stored(name, v) for name, v in row.items()}
            for i, row in enumerate(rows)
        }
        like = {header[name]: row for name, row in found.like.items()}
        return self._text.with_rows(cells, like, (found.top, found.last)) if rows else self.content

    def _stored(self, name: str, value: Any) -> Any:
        """A value as the cells of its column hold it: 5 is 0.05 where they are shown as 5 %."""
        scale = self.found.scales.get(name, 1.0) if is_numeric(value) else 1.0
        return value if scale == 1.0 else float(f"{value / scale:.15g}")

    def refuse_uncalculated(self, names: Sequence[str]) -> None:
        columns, rows = {self.found.header[name] for name in names}, set(self.found.rows)
        wrong = [(r, c) for r, c in self._text.uncalculated if r in rows and c in columns]
        if wrong:
            more = ", ..." if len(wrong) > SHOWN else ""
            where = ", ".join(f"{letters(c)}{r}" for r, c in wrong[:SHOWN]) + more
            raise InputError(
                f"{self.path.name}: formulas without a value ({where}), "
                "which no program has worked out; open the workbook, save it, and come again"
            )


@dataclass(frozen=True, eq=False)
class _Text:
    path: Path
    content: bytes
    found: CsvTable

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {name: column.tolist() for name, column in self.found.columns.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return self.found.notes

    def place(self, i: int) -> str:
        return self.found.place(i)

    def next_place(self, i: int) -> str:
        return f"line {self._lines + 1 + i} of {self.path.name}"

    @property
    def _lines(self) -> int:
        text = self.content.decode(self.found.encoding)
        return len(BytesIO(text.encode()).readlines())

    def with_rows(self, rows: Sequence[Row]) -> bytes:
        found, text = self.found, StringIO()
        old = self.content.decode(found.encoding)
        end = "\r\n" if "\r\n" in old else "\n"
        writer = csv.writer(text, delimiter=found.delimiter, lineterminator=end)
        for row in rows:
            writer.writerow([self._written(row.get(name)) for name in found.header])
        added = text.getvalue() if old.endswith("\n") or not old else end + text.getvalue()
        encoding = found.encoding.removesuffix("-sig")
        if encoding == "utf-16":  # without a second mark
            encoding += "-be" if self.content[:2] == b"\xfe\xff" else "-le"
        try:
            return self.content + (added.encode(encoding) if rows else b"")
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.path.name} is written in {found.encoding}, which has no "
                f"{error.object[error.start]!r}; save it as UTF-8"
            ) from None

    def _written(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
            return str(int(value))  # as people write it
        if not isinstance(value, float) or not self.found.decimal_commas:
            return str(value)
        text = repr(value).replace(".", ",")
        return f"{text}0" if is_ambiguous(text) else text  # 1,125 may be a thousand

    def refuse_uncalculated(self, names: Sequence[str]) -> None:
        """A text has no formulas."""
