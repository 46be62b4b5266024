"""Excel workbooks: one sheet with a header as a table, also as a record that gets more rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from metakel._files import as_path, refuse_bomb, refuse_device
from metakel.errors import Hint, InputError, first_of
from metakel.io.cleaning import BOUND, read_texts
from metakel.io.columns import (
    Column,
    Columns,
    check_names,
    header_at,
    is_header,
    is_units,
    units_note,
)
from metakel.io.schema import Table
from metakel.io.sheets import SheetText, letters
from metakel.space.configurations import as_number, distinct, is_numeric, split_unit

SHOWN = 5
# Of a number format: what stands there as it is, and scales nothing.
LITERAL = re.compile(r'"[^"]*"|\\.')


class PerCent(float):
    """A share that its cell shows as per cent: 0.941 as 94.1%."""


def read_excel(path: str | Path, *, task: str, output: str, sheet: str | None = None) -> Table:
    """A sheet of a workbook (needs openpyxl), by default the first one with these columns."""
    found = read_sheet(path, sheet, as_text=(task,), having=(task, output)).with_cells()
    return Table(found.path.name, found.table, task, output, notes=found.notes, place=found.place)


def read_sheets(path: str | Path, *, task: str, output: str, sheets: Sequence[str]) -> list[Table]:
    """Several sheets of a workbook; ``"*"`` for all that have the output.

    Where a sheet has no column of this name, its own name is the task.
    """
    file, every = Path(path), list(sheets) == ["*"]
    names = list(sheets)
    if every:
        with _errors_named(file):
            names = _opened(file.read_bytes()).sheetnames
    found = []
    for name in names:
        read = read_sheet(path, name, as_text=(task,))
        if every and (output not in read.table or not read.rows):
            continue  # a cover
        columns = read.with_cells().table
        if task not in columns:
            columns = {task: Column.of([name] * len(read.rows)), **columns}
        label = f"{file.name} ({name})"
        found.append(Table(label, columns, task, output, notes=read.notes, place=read.place))
    if not found:
        raise InputError(f"{file.name} has no sheet with a column {output!r}")
    return found


def excel_columns(
    path: str | Path,
    *,
    sheet: str | None = None,
    having: Collection[str] = (),
    signed: Collection[str] = (),
) -> dict[str, list[Any]]:
    """Columns of a sheet as lists, None for empty cells; by default of one with these names.

    Cells of the ``signed`` columns that are shown as per cent are texts, such as "70 %".
    """
    return read_sheet(path, sheet, having=having, signed=signed).with_cells().columns


@dataclass(frozen=True, eq=False)
class SheetTable:
    """A table in a sheet of a workbook, and the workbook with more rows in it."""

    path: Path
    content: bytes
    sheet: str
    table: Columns  # those with a name
    header: Mapping[str, int]  # the column of the sheet, from 1, of every name
    top: int  # the row of the header
    rows: tuple[int, ...]  # the row of the sheet that each row of the table stands in
    last: int  # the last row of the sheet that holds anything
    like: Mapping[str, int]  # the row of the last value of every column
    # Of columns whose last value is shown as per cent: by what it was multiplied.
    scales: Mapping[str, float]
    notes: tuple[str, ...]

    def with_cells(self) -> SheetTable:
        """The same; a sheet without a header or without rows is refused."""
        if self.header and self.rows:
            return self
        raise InputError(
            f"{self.path.name}, sheet {self.sheet!r}: expected a header and rows below it"
        )

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The cells by the names of the columns, None for empty ones."""
        return {name: column.tolist() for name, column in self.table.items()}

    def place(self, i: int) -> str:
        """Where a row of the table is found."""
        return f"row {self.rows[i]} of {self.path.name}"

    def next_place(self, i: int) -> str:
        """Where the new row with this index will be found."""
        return f"row {self.last + 1 + i} of {self.path.name}"

    def with_rows(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """The content of the file with these rows below the others."""
        cells = {
            self.last + 1 + i: {self.header[n]: self._stored(n, v) for n, v in row.items()}
            for i, row in enumerate(rows)
        }
        like = {self.header[name]: row for name, row in self.like.items()}
        text = SheetText.of(self.content, self.sheet)
        return text.with_rows(cells, like, (self.top, self.last)) if rows else self.content

    def _stored(self, name: str, value: Any) -> Any:
        """A value as the cells of its column hold it: 5 is 0.05 where they are shown as 5 %."""
        scale = self.scales.get(name, 1.0) if is_numeric(value) else 1.0
        return value if scale == 1.0 else float(f"{value / scale:.15g}")

    def refuse_uncalculated(self, names: Sequence[str]) -> None:
        """Refuse formulas in these columns that no program has worked out."""
        columns, rows = {self.header[name] for name in names}, set(self.rows)
        formulas = SheetText.of(self.content, self.sheet).uncalculated
        wrong = [f"{letters(c)}{r}" for r, c in formulas if r in rows and c in columns]
        if wrong:
            where = ", ".join(wrong[:SHOWN]) + (", ..." if len(wrong) > SHOWN else "")
            raise InputError(
                f"{self.path.name}: formulas without a value ({where}), "
                "which no program has worked out; open the workbook, save it, and come again"
            )


def empty_workbook(
    names: Sequence[str], sheet: str | None = None, shares: Collection[str] = ()
) -> bytes:
    """A workbook of one sheet with a header; columns of ``shares`` are shown as per cent."""
    book, content = _openpyxl().Workbook(), BytesIO()
    page = book.active
    page.title = sheet or "runs"
    page.append(list(names))
    for k, cell in enumerate(page[1], start=1):
        cell.style = "Headline 4"
        column = page.column_dimensions[letters(k)]
        column.width = max(10, len(str(cell.value)) + 3)
        if cell.value in shares:
            column.number_format = "0.0%"
    page.freeze_panes = "A2"
    book.save(content)
    return content.getvalue()


def read_sheet(
    path: str | Path,
    sheet: str | None = None,
    *,
    as_text: Sequence[str] = (),
    having: Collection[str] = (),
    signed: Collection[str] = (),
) -> SheetTable:
    """The table in a sheet, by default in the first that has most of the names.

    Cells of the ``signed`` columns that are shown as per cent are texts, such as "70 %".
    """
    file, with_sign = Path(path), {name.casefold() for name in signed}
    with _errors_named(file):
        refuse_device(as_path(file))
        content = file.read_bytes()
        with ZipFile(BytesIO(content)) as archive:
            refuse_bomb(file, sum(entry.file_size for entry in archive.infolist()))
        book = _opened(content)
        page, top, header, filled = _table(book, sheet, file, having)
    where, notes = f"{file.name}, sheet {page.title!r}", list[str]()
    below = {k: cells for k, cells in filled.items() if k > top}
    repeated = [k for k, cells in below.items() if is_header(cells, header)]
    rows = {k: cells for k, cells in below.items() if k not in repeated}
    first, *others = rows.values() if rows else ([],)
    units = is_units(first, others)
    rows = dict(list(rows.items())[1:]) if units else rows
    check_names(filter(None, header), where)
    places = {name: k for k, name in enumerate(header, start=1) if name}
    columns, like, scales = Columns(), dict[str, int](), dict[str, float]()
    written: dict[str, tuple[list[str], NDArray[np.intp]]] = {}
    for name, k in places.items():
        cells = {row: line[k - 1] if k <= len(line) else None for row, line in rows.items()}
        if " ".join(name.split()).casefold() in with_sign:
            shares = {r: v for r, v in cells.items() if isinstance(v, PerCent)}
            cells |= {r: f"{100 * v:.15g} %" for r, v in shares.items()}
        values, scale = _on_one_scale(name, cells, where, notes)
        like[name] = max((r for r, v in cells.items() if v is not None), default=0)
        if isinstance(cells.get(like[name]), PerCent):
            scales[name] = scale
        kinds = {type(v) for v in values if v is not None}
        # Numbers below "2,5" are most often those that were added later.
        if name not in as_text and str in kinds and kinds <= {str, int, float}:
            written[name] = distinct([v if isinstance(v, str) else "" for v in values])
        columns[name] = Column.of(_numbers(values))
    read = read_texts(written, notes)
    columns |= {name: _beside_numbers(columns[name], column) for name, column in read.items()}
    if sheet is None and (unread := [name for name in book.sheetnames if name != page.title]):
        notes.append(f"read from the sheet {page.title!r} (there are also {', '.join(unread)})")
    notes += units_note(first) if units else []
    if repeated:
        notes.append(f"the header is repeated in row {first_of(repeated, SHOWN)}")
    return SheetTable(
        *(file, content, page.title, columns, places, top, tuple(rows), max(filled, default=1)),
        *(like, scales, tuple(notes)),
    )


def _table(
    book: Any, wanted: str | None, file: Path, having: Collection[str]
) -> tuple[Any, int, list[str], dict[int, list[Any]]]:
    """A sheet, the row and the names of its header, and its rows.

    Of several sheets, the first with most of the names; then the first with several columns, as a
    cover has one. Rows are by their numbers, without empty ones; text has no spaces around it.
    """
    if wanted is not None and wanted not in book.sheetnames:
        raise InputError(
            f"{file.name} has no sheet {wanted!r}; found {', '.join(book.sheetnames)}",
            Hint("name one of them", "sheet=...", "--sheet NAME"),
        )
    names, tables = {name.casefold() for name in having}, []
    for page in book.worksheets if wanted is None else [book[wanted]]:
        cells = ([_value(cell) for cell in row] for row in page.iter_rows())
        filled = {k: row for k, row in enumerate(cells, start=1) if row.count(None) < len(row)}
        # A title above a table is none of its header.
        top = list(filled)[header_at(list(filled.values()))] if filled else 1
        header = ["" if cell is None else str(cell).strip() for cell in filled.get(top, ())]
        worth = (
            len(names & {name.casefold() for name in header}),
            sum(map(bool, header)) > 1 and len(filled) > 1,
            len(filled) > 0,
        )
        tables.append((worth, (page, top, header, filled)))
    return max(tables, key=lambda found: found[0])[1]


def _value(cell: Any) -> Any:
    value = cell.value
    if isinstance(value, str):
        return value.strip() or None
    if is_numeric(value) and "%" in LITERAL.sub("", cell.number_format or ""):
        return PerCent(value)
    return value


def _on_one_scale(
    name: str, cells: Mapping[int, Any], where: str, notes: list[str]
) -> tuple[list[Any], float]:
    """The cells of a column, by their rows, without formats: all in per cent or all as shares.

    Also by what those in the format per cent were multiplied, 0 where there is none.

    The name of the column decides, or the plain numbers among them; where these do not tell, the
    column is refused.
    """
    shown = {row: value for row, value in cells.items() if isinstance(value, PerCent)}
    if not shown:
        return list(cells.values()), 0.0
    written = {row: number for row, v in cells.items() if (number := _per_cent(v)) is not None}
    cells = {**cells, **written}
    plain = [
        v
        for row, v in cells.items()
        if is_numeric(v) and not isinstance(v, PerCent) and row not in written
    ]
    above = [abs(v) > 1 for v in plain if v]
    named = "%" in name or bool(written)
    rows = ", ".join(map(str, list(shown)[:SHOWN])) + (" ..." if len(shown) > SHOWN else "")
    if above and not any(above) if named else any(above) and not all(above):
        other = next(row for row, v in cells.items() if v and v in plain)
        raise InputError(
            f"{where}: {name} has cells in the format per cent (row {rows}) beside plain numbers "
            f"(e.g. {cells[other]} in row {other}), which may be shares or per cent; expected one "
            "format in all cells of the column"
        )
    scale = 100 if named or any(above) else 1
    row, first = next(iter(shown.items()))
    read = {k: float(f"{scale * v:.15g}") for k, v in shown.items()}
    notes.append(
        f"{name} has cells in the format per cent (row {rows}): {100 * first:g}% is read as "
        f"{read[row]:g}" + (", beside plain numbers as they are" if plain else "")
    )
    return [read.get(k, v) for k, v in cells.items()], float(scale)


def _per_cent(cell: Any) -> float | str | None:
    """The number of a text such as "76,7 %", or "<5" of "<5 %"; None for anything else."""
    if not isinstance(cell, str):
        return None
    bound = BOUND(cell)
    found = split_unit(bound[2] if bound else cell)
    number = as_number(found[0]) if found and found[1].strip() == "%" else None
    return f"{bound[1]}{number:g}" if bound and number is not None else number


def _numbers(values: list[Any]) -> list[Any]:
    """Excel keeps 1.0 as 1, so that whole numbers among others are floats."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return values


def _beside_numbers(column: Column, read: Column) -> Column:
    """A column with its texts as they were read, if all of them were numbers."""
    cells = column.tolist()
    if all(v is None or isinstance(v, str) for v in cells):
        return read
    pointed = any("," in text or "." in text for text in column.texts)
    if read.levels is not None or not pointed:
        return column
    texts = read.tolist()
    return Column.of(
        _numbers([t if isinstance(v, str) else v for v, t in zip(cells, texts, strict=True)])
    )


def _openpyxl() -> Any:
    """The package that reads workbooks."""
    try:
        import openpyxl  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("Excel workbooks need openpyxl: pip install openpyxl") from None
    return openpyxl


def _opened(content: bytes) -> Any:
    return _openpyxl().load_workbook(BytesIO(content), read_only=True, data_only=True)


@contextmanager
def _errors_named(file: Path) -> Iterator[None]:
    """Turn whatever a damaged workbook raises into a message that names it."""
    try:
        yield
    except (InputError, ImportError):
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except BadZipFile:
        raise InputError(
            f"{file.name} is no Excel workbook (.xlsx); save it as one, or as CSV UTF-8"
        ) from None
    except Exception as error:  # of openpyxl or an XML parser: whatever they raise
        raise InputError(f"{file.name} cannot be read as an Excel workbook: {error}") from None
