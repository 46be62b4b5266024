"""A table that is kept as a record: its rows, and the file with more rows, ready to be written.

A sheet of a workbook is edited as text and the other parts are copied byte by byte: a program that
reads a workbook and saves it again loses the values of formulas, charts and macros.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any, Protocol
from xml.etree import ElementTree
from xml.sax.saxutils import escape
from zipfile import ZipFile

from metakel.errors import Hint, InputError
from metakel.io.csv_files import CsvTable, read_csv_table
from metakel.io.excel import SheetTable, load_openpyxl, read_sheet
from metakel.space.configurations import is_ambiguous, is_numeric

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
        return _empty_workbook(names, sheet, shares)
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue().encode("utf-8-sig")  # by the mark Excel knows that it is UTF-8


def _empty_workbook(
    names: Sequence[str], sheet: str | None = None, shares: Collection[str] = ()
) -> bytes:
    """A workbook of one sheet with a header; columns of ``shares`` are shown as per cent."""
    book, content = load_openpyxl().Workbook(), BytesIO()
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


# Rows added to a sheet, with everything else in the workbook as it was

RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DATA = re.compile(r"<((?:\w+:)?)sheetData\b[^>]*?(?:/>|>(.*)</\1sheetData\s*>)", re.DOTALL)
_ROW = re.compile(r"<(?:\w+:)?row\b([^>]*?)(?:/>|>(.*?)</(?:\w+:)?row\s*>)", re.DOTALL)
_CELL = re.compile(r"<(?:\w+:)?c\b([^>]*?)(?:/>|>(.*?)</(?:\w+:)?c\s*>)", re.DOTALL)
_DIMENSION = re.compile(r'(<(?:\w+:)?dimension\b[^>]*?\bref=")([^"]*)(")')
_AREA = re.compile(r"([A-Z]+)([0-9]+):([A-Z]+)([0-9]+)").fullmatch


@dataclass(frozen=True)
class SheetText:
    """A sheet of a workbook as the text that it is stored as."""

    content: bytes  # the workbook
    part: str  # where the sheet is in it
    text: str

    @classmethod
    def of(cls, content: bytes, sheet: str) -> SheetText:
        """The sheet of this name."""
        with ZipFile(BytesIO(content)) as archive:
            part = _part(archive, sheet)
            text = archive.read(part).decode("utf-8-sig")
        if _DATA.search(text) is None:
            raise InputError(f"sheet {sheet!r} has no cells that can be added to; save it anew")
        return cls(content, part, text)

    @property
    def uncalculated(self) -> list[tuple[int, int]]:
        """Row and column, both from 1, of formulas without a value: no program worked them out."""
        found = []
        for number, _, body in self._rows():
            for column, _, inside in _cells(body):
                if re.search(r"<(?:\w+:)?f\b", inside) and not re.search(
                    r"<(?:\w+:)?v\b[^>]*>[^<]", inside
                ):
                    found.append((number, column))
        return found

    def _rows(self) -> Iterator[tuple[int, re.Match[str], str]]:
        """Numbers of the rows, where they stand, and what is in them."""
        data = _DATA.search(self.text)
        assert data is not None
        number = 0
        start = data.start(2) if data[2] is not None else data.end()
        for row in _ROW.finditer(self.text, start, data.end()):
            said = _attribute(row[1], "r")
            number = int(said) if said else number + 1
            yield number, row, row[2] or ""

    def _styles(self, like: Mapping[int, int]) -> dict[int, str]:
        """The style of one cell of every column, by column and row."""
        return {
            column: style
            for number, _, body in self._rows()
            for column, head, _ in _cells(body)
            if like.get(column) == number and (style := _attribute(head, "s"))
        }

    def with_rows(
        self, rows: Mapping[int, Mapping[int, Any]], like: Mapping[int, int], table: tuple[int, int]
    ) -> bytes:
        """The workbook with these cells, by row and column.

        Each has the style of the cell of its column in the row that ``like`` says, also where it is
        None, to be filled in. A ``table`` of Excel from this row to that one grows with them.
        """
        data = _DATA.search(self.text)
        assert data is not None
        prefix, styles = data[1], self._styles(like)
        found = {number: (row, body) for number, row, body in self._rows()}
        texts = {number: row[0] for number, (row, _) in found.items()}
        for number, cells in rows.items():
            texts[number] = _row(prefix, number, cells, styles, found.get(number))
        body = "".join(texts[number] for number in sorted(texts))
        opening = self.text[data.start() : data.end()].partition(">")[0].removesuffix("/")
        new = f"{opening}>{body}</{prefix}sheetData>"
        text = self.text[: data.start()] + new + self.text[data.end() :]
        last, widest = max(rows), max((c for cells in rows.values() for c in cells), default=1)
        text = _DIMENSION.sub(lambda m: m[1] + _grown(m[2], last, widest) + m[3], text, count=1)
        return self._saved(text, table, last)

    def _saved(self, text: str, table: tuple[int, int], last: int) -> bytes:
        packed = BytesIO()
        with ZipFile(BytesIO(self.content)) as archive, ZipFile(packed, "w") as copy:
            tables = _tables(archive, self.part)
            for entry in archive.infolist():
                body = archive.read(entry)
                if entry.filename == self.part:
                    body = text.encode()
                elif entry.filename in tables:
                    body = _longer(body.decode(), table, last).encode()
                copy.writestr(entry, body, compress_type=entry.compress_type)
        return packed.getvalue()


def _row(
    prefix: str,
    number: int,
    cells: Mapping[int, Any],
    styles: Mapping[int, str],
    old: tuple[re.Match[str], str] | None,
) -> str:
    """A row with these cells; what else it holds stays."""
    head, body = (old[0][1], old[1]) if old else (f' r="{number}"', "")
    if not _attribute(head, "r"):
        head += f' r="{number}"'
    kept = {c: (h, inside) for c, h, inside in _cells(body)}
    texts = {}
    for column in sorted({*kept, *cells}):
        known = kept.get(column, ("", ""))
        if column in cells and cells[column] is not None:
            style = _attribute(known[0], "s") or styles.get(column, "")
            texts[column] = _cell(prefix, number, column, cells[column], style)
        elif column in kept or column in styles:  # to be filled in, by whoever knows the format
            head_of = re.sub(r'\s*\br="[^"]*"', "", known[0])
            if column in cells and column in styles and not _attribute(known[0], "s"):
                head_of += f' s="{styles[column]}"'
            place = f'r="{letters(column)}{number}"'
            texts[column] = f"<{prefix}c {place}{head_of}>{known[1]}</{prefix}c>"
    spans = re.sub(r'\s*\bspans="[^"]*"', "", head)
    return f"<{prefix}row{spans}>{''.join(texts.values())}</{prefix}row>"


def _cell(prefix: str, row: int, column: int, value: Any, style: str) -> str:
    head = f'<{prefix}c r="{letters(column)}{row}"' + (f' s="{style}"' if style else "")
    if isinstance(value, bool):
        return f'{head} t="b"><{prefix}v>{int(value)}</{prefix}v></{prefix}c>'
    if isinstance(value, int | float):
        return f"{head}><{prefix}v>{value!r}</{prefix}v></{prefix}c>"
    text = f'<{prefix}t xml:space="preserve">{escape(str(value))}</{prefix}t>'
    return f'{head} t="inlineStr"><{prefix}is>{text}</{prefix}is></{prefix}c>'


def _cells(body: str) -> Iterator[tuple[int, str, str]]:
    """Column, attributes and content of every cell of a row."""
    column = 0
    for cell in _CELL.finditer(body):
        said = re.match(r"[A-Z]+", _attribute(cell[1], "r"))
        column = _number(said[0]) if said else column + 1
        yield column, cell[1], cell[2] or ""


def _attribute(head: str, name: str) -> str:
    found = re.search(rf'(?<![\w:]){name}="([^"]*)"', head)
    return found[1] if found else ""


def letters(column: int) -> str:
    """What Excel calls a column: A for 1, AA for 27."""
    text = ""
    while column:
        column, rest = divmod(column - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _number(name: str) -> int:
    found = 0
    for letter in name:
        found = 26 * found + ord(letter) - ord("A") + 1
    return found


def _grown(area: str, row: int, column: int) -> str:
    """An area that holds this cell, too."""
    found = _AREA(area if ":" in area else f"{area}:{area}")
    if found is None:
        return area
    right = letters(max(_number(found[3]), column))
    return f"{found[1]}{found[2]}:{right}{max(int(found[4]), row)}"


def _longer(text: str, table: tuple[int, int], last: int) -> str:
    """What is said of a table of Excel, which now ends with the row ``last``."""
    top, end = table
    if re.search(r'totalsRowCount="[1-9]', text):
        return text

    def grown(found: re.Match[str]) -> str:
        area = _AREA(found[2])
        if area is None or int(area[2]) != top or int(area[4]) < end:
            return found[0]
        return f"{found[1]}{area[1]}{area[2]}:{area[3]}{max(last, int(area[4]))}{found[3]}"

    return re.sub(r'(\bref=")([^"]*)(")', grown, text)


def _part(archive: ZipFile, sheet: str) -> str:
    book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
    targets = _relations(archive, "xl/workbook.xml")
    for entry in book.iter():
        if entry.tag.endswith("}sheet") and entry.get("name") == sheet:
            known = entry.get(RELATION) or next(v for k, v in entry.items() if k.endswith("}id"))
            return targets[known][1]
    raise InputError(f"the workbook has no sheet {sheet!r}")


def _tables(archive: ZipFile, part: str) -> set[str]:
    return {path for kind, path in _relations(archive, part).values() if kind.endswith("/table")}


def _relations(archive: ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Kind and place of what a part refers to, by id."""
    folder = dirname(part)
    name = join(folder, "_rels", f"{part.removeprefix(folder).lstrip('/')}.rels")
    if name not in archive.namelist():
        return {}
    found = {}
    for entry in ElementTree.fromstring(archive.read(name)).iter():
        target = entry.get("Target")
        if target is not None and entry.get("TargetMode") != "External":
            path = target.lstrip("/") if target.startswith("/") else normpath(join(folder, target))
            found[str(entry.get("Id"))] = str(entry.get("Type")), path
    return found
