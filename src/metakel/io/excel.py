"""Excel workbooks: one sheet with a header as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from metakel._files import as_path, refuse_bomb, refuse_device
from metakel.errors import Hint, InputError
from metakel.io.cleaning import typed
from metakel.io.columns import Column, Columns, check_names
from metakel.io.schema import Source
from metakel.space.text import is_numeric

# A title and remarks may stand in so many rows above a table.
TITLE_ROWS = 10
SHOWN = 5
# Of a number format: what stands there as it is, and scales nothing.
LITERAL = re.compile(r'"[^"]*"|\\.')


class PerCent(float):
    """A share that its cell shows as per cent: 0.941 as 94.1%."""


def read_excel(path: str | Path, *, task: str, output: str, sheet: str | None = None) -> Source:
    """A sheet of a workbook (needs openpyxl), by default the first one with a table."""
    file = Path(path)
    columns, rows, notes = _read(file, sheet, as_text=(task,))
    return Source(
        file.name,
        columns,
        task,
        output,
        notes=notes,
        place=lambda i: f"row {rows[i]} of {file.name}",
    )


def excel_columns(path: str | Path, *, sheet: str | None = None) -> dict[str, list[Any]]:
    """Columns of a sheet as lists, None for empty cells."""
    columns, _, _ = _read(Path(path), sheet)
    return {name: column.tolist() for name, column in columns.items()}


def _read(
    file: Path, sheet: str | None, as_text: Sequence[str] = ()
) -> tuple[Columns, list[int], tuple[str, ...]]:
    """Columns with a name, the row of the sheet that each row stands in, and notes."""
    with _errors_named(file):
        refuse_device(as_path(file))
        _refuse_bomb(file)
        book = _openpyxl().load_workbook(file, read_only=True, data_only=True)
        try:
            page, top, header, filled = _table(book, sheet, file)
            others = [name for name in book.sheetnames if name != page.title]
        finally:
            book.close()
    below = {k: cells for k, cells in filled.items() if k > top}
    repeated = [k for k, cells in below.items() if _is_header(cells, header)]
    rows = {k: cells for k, cells in below.items() if k not in repeated}
    if not header or not rows:
        raise InputError(f"{file.name}, sheet {page.title!r}: expected a header and rows below it")
    check_names(filter(None, header), f"{file.name}, sheet {page.title!r}")
    notes = list[str]()
    columns = Columns()
    for k, name in enumerate(header):
        if name:
            cells = {row: c[k] if k < len(c) else None for row, c in rows.items()}
            values = _on_one_scale(name, cells, f"{file.name}, sheet {page.title!r}", notes)
            columns[name] = Column.of(_numbers(values, as_text=name in as_text))
    if others and sheet is None:
        aside = f"(there are also {', '.join(others)})"
        notes.append(f"read from the sheet {page.title!r} {aside}")
    if repeated:
        shown = ", ".join(map(str, repeated[:SHOWN])) + (" ..." if len(repeated) > SHOWN else "")
        notes.append(f"the header is repeated in row {shown}")
    return columns, list(rows), tuple(notes)


def _table(
    book: Any, wanted: str | None, file: Path
) -> tuple[Any, int, list[str], dict[int, list[Any]]]:
    """A sheet, by default the first with a table; the row and the names of its header; its rows.

    Rows are by their numbers, without empty ones; text has no spaces around it.
    """
    if wanted is not None and wanted not in book.sheetnames:
        raise InputError(
            f"{file.name} has no sheet {wanted!r}; found {', '.join(book.sheetnames)}",
            Hint("name one of them", "sheet=...", "--sheet NAME"),
        )
    tables = []
    for page in book.worksheets if wanted is None else [book[wanted]]:
        cells = ([_value(cell) for cell in row] for row in page.iter_rows())
        filled = {k: row for k, row in enumerate(cells, start=1) if row.count(None) < len(row)}
        tables.append((page, *_header(filled), filled))
        if filled:
            return tables[-1]
    return tables[0]


def _header(filled: Mapping[int, Sequence[Any]]) -> tuple[int, list[str]]:
    """The first row and the names in it; a title above a table is none."""
    first = next(iter(filled), 1)
    for row, cells in filled.items():
        if len(cells) - cells.count(None) > 1:
            return row, _names(cells)
        if row > first + TITLE_ROWS:  # a single column has a single name
            break
    return first, _names(filled.get(first, ()))


def _is_header(cells: Sequence[Any], header: Sequence[str]) -> bool:
    """Whether a row repeats the header, without columns that were added later."""
    same = [name == said for name, said in zip(_names(cells), header, strict=False) if name]
    return len(same) > 1 and all(same)


def _names(cells: Sequence[Any]) -> list[str]:
    return ["" if cell is None else str(cell).strip() for cell in cells]


def _value(cell: Any) -> Any:
    value = cell.value
    if isinstance(value, str):
        return value.strip() or None
    if is_numeric(value) and "%" in LITERAL.sub("", cell.number_format or ""):
        return PerCent(value)
    return value


def _on_one_scale(name: str, cells: Mapping[int, Any], where: str, notes: list[str]) -> list[Any]:
    """The cells of a column, by their rows, without formats: all in per cent or all as shares.

    The name of the column decides, or the plain numbers among them; where these do not tell, the
    column is refused.
    """
    shown = {row: value for row, value in cells.items() if isinstance(value, PerCent)}
    if not shown:
        return list(cells.values())
    plain = [v for v in cells.values() if is_numeric(v) and not isinstance(v, PerCent)]
    above = [abs(v) > 1 for v in plain if v]
    named = "%" in name
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
    if scale > 1 or plain:
        notes.append(
            f"{name} has cells in the format per cent (row {rows}): {100 * first:g}% is read as "
            f"{read[row]:g}" + (", beside plain numbers as they are" if plain else "")
        )
    return [read.get(k, v) for k, v in cells.items()]


def _numbers(values: list[Any], *, as_text: bool) -> list[Any]:
    """Excel keeps 1.0 as 1, so that whole numbers among others are floats; text may be numbers."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str} and not as_text:
        return typed(["" if value is None else value for value in values])
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return values


def _openpyxl() -> Any:
    try:
        import openpyxl  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("Excel workbooks need openpyxl: pip install metakel[excel]") from None
    return openpyxl


def _refuse_bomb(file: Path) -> None:
    with ZipFile(file) as archive:
        refuse_bomb(file, sum(entry.file_size for entry in archive.infolist()))


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
