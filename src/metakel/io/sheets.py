"""A sheet of a workbook with more rows, and everything else in the workbook as it was.

The sheet is edited as text and the other parts are copied byte by byte: a program that reads a
workbook and saves it again loses the values of formulas, charts and macros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from posixpath import dirname, join, normpath
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape
from zipfile import ZipFile

from metakel.errors import InputError

RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DATA = re.compile(r"<((?:\w+:)?)sheetData\b[^>]*?(?:/>|>(.*)</\1sheetData\s*>)", re.DOTALL)
_ROW = re.compile(r"<(?:\w+:)?row\b([^>]*?)(?:/>|>(.*?)</(?:\w+:)?row\s*>)", re.DOTALL)
_CELL = re.compile(r"<(?:\w+:)?c\b([^>]*?)(?:/>|>(.*?)</(?:\w+:)?c\s*>)", re.DOTALL)
_FORMULA = re.compile(r"<(?:\w+:)?f\b").search
_RESULT = re.compile(r"<(?:\w+:)?v\b[^>]*>[^<]").search
_DIMENSION = re.compile(r'(<(?:\w+:)?dimension\b[^>]*?\bref=")([^"]*)(")')
_AREA = re.compile(r"([A-Z]+)([0-9]+):([A-Z]+)([0-9]+)").fullmatch


@dataclass(frozen=True)
class SheetText:
    """A sheet of a workbook as the text that it is stored as."""

    content: bytes  # the workbook
    part: str  # where the sheet is in it
    text: str
    data: re.Match[str]  # its rows

    @classmethod
    def of(cls, content: bytes, sheet: str) -> SheetText:
        """The sheet of this name."""
        with ZipFile(BytesIO(content)) as archive:
            part = _part(archive, sheet)
            text = archive.read(part).decode("utf-8-sig")
        data = _DATA.search(text)
        if data is None:
            raise InputError(f"sheet {sheet!r} has no cells that can be added to; save it anew")
        return cls(content, part, text, data)

    @property
    def _rows(self) -> Iterator[tuple[int, re.Match[str]]]:
        """Their numbers, attributes and what is in them."""
        number = 0
        start = self.data.end() if self.data[2] is None else self.data.start(2)
        for row in _ROW.finditer(self.text, start, self.data.end()):
            number = int(_attribute(row[1], "r") or number + 1)
            yield number, row

    @property
    def uncalculated(self) -> list[tuple[int, int]]:
        """Row and column, both from 1, of formulas without a value: no program worked them out."""
        return [
            (number, column)
            for number, row in self._rows
            for column, _, inside in _cells(row[2])
            if _FORMULA(inside) and not _RESULT(inside)
        ]

    def with_rows(
        self, rows: Mapping[int, Mapping[int, Any]], like: Mapping[int, int], table: tuple[int, int]
    ) -> bytes:
        """The workbook with these cells, by row and column.

        Each has the style of the cell of its column in the row that ``like`` says, also where it is
        None, to be filled in. A ``table`` of Excel from this row to that one grows with them.
        """
        data, prefix, found = self.data, self.data[1], dict(self._rows)
        styles = {
            column: style
            for number, row in found.items()
            for column, head, _ in _cells(row[2])
            if like.get(column) == number and (style := _attribute(head, "s"))
        }
        texts = {number: row[0] for number, row in found.items()}
        for number, cells in rows.items():
            old = found.get(number)
            head, inside = (old[1], old[2]) if old else ("", None)
            texts[number] = _row(prefix, number, cells, styles, head, inside)
        body = "".join(text for _, text in sorted(texts.items()))
        opening = data[0].partition(">")[0].removesuffix("/")
        new = f"{opening}>{body}</{prefix}sheetData>"
        text = self.text[: data.start()] + new + self.text[data.end() :]
        last, widest = max(rows), max((c for cells in rows.values() for c in cells), default=1)
        text = _DIMENSION.sub(lambda m: m[1] + _grown(m[2], last, widest) + m[3], text, count=1)
        packed = BytesIO()
        with ZipFile(BytesIO(self.content)) as archive, ZipFile(packed, "w") as copy:
            relations = _relations(archive, self.part).values()
            tables = {path for kind, path in relations if kind.endswith("/table")}
            for entry in archive.infolist():
                part = archive.read(entry)
                if entry.filename == self.part:
                    part = text.encode()
                elif entry.filename in tables:
                    part = _longer(part.decode(), table, last).encode()
                copy.writestr(entry, part, compress_type=entry.compress_type)
        return packed.getvalue()


def _row(
    prefix: str,
    number: int,
    cells: Mapping[int, Any],
    styles: Mapping[int, str],
    head: str,
    inside: str | None,
) -> str:
    """A row with these cells; what else it holds stays."""
    head = head if _attribute(head, "r") else f'{head} r="{number}"'
    kept = {column: (h, body) for column, h, body in _cells(inside)}
    texts = []
    for column in sorted({*kept, *(c for c in cells if c in styles or cells[c] is not None)}):
        old, body = kept.get(column, ("", ""))
        own = _attribute(old, "s") or (styles.get(column, "") if column in cells else "")
        if cells.get(column) is not None:
            style = f' s="{own}"' if own else ""
            texts.append(_cell(prefix, f'r="{letters(column)}{number}"{style}', cells[column]))
        else:  # to be filled in, by whoever knows the format
            rest = re.sub(r'\s*\b[rs]="[^"]*"', "", old) + (f' s="{own}"' if own else "")
            place = f'r="{letters(column)}{number}"'
            texts.append(f"<{prefix}c {place}{rest}>{body}</{prefix}c>")
    spans = re.sub(r'\s*\bspans="[^"]*"', "", head)
    return f"<{prefix}row{spans}>{''.join(texts)}</{prefix}row>"


def _cell(prefix: str, head: str, value: Any) -> str:
    if isinstance(value, bool):
        return f'<{prefix}c {head} t="b"><{prefix}v>{int(value)}</{prefix}v></{prefix}c>'
    if isinstance(value, int | float):
        return f"<{prefix}c {head}><{prefix}v>{value!r}</{prefix}v></{prefix}c>"
    text = f'<{prefix}t xml:space="preserve">{escape(str(value))}</{prefix}t>'
    return f'<{prefix}c {head} t="inlineStr"><{prefix}is>{text}</{prefix}is></{prefix}c>'


def _cells(body: str | None) -> Iterator[tuple[int, str, str]]:
    """Column, attributes and content of every cell of a row."""
    column = 0
    for cell in _CELL.finditer(body or ""):
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
