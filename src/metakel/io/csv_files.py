"""CSV files, whichever program wrote them: encoding, delimiter, header, types of columns."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._files import as_path, refuse_bomb, refuse_device, write_atomically
from metakel.errors import Hint, InputError
from metakel.io.cleaning import Cells, comma_note, decimal_commas, first_comma, padded, texts, typed
from metakel.io.columns import Column, Columns, Mask, check_names
from metakel.io.schema import Source

# Excel writes semicolons where the comma is for decimals, and tabs when cells are copied.
OTHER_DELIMITERS = (";", "\t")
BY_NAME = {"tab": "\t", "\\t": "\t"}
SQLITE = b"SQLite format 3\0"
# What Excel writes by default in Western Europe and America; five bytes have no meaning in it.
WINDOWS = "cp1252"
WINDOWS_NOTE = "the file is not UTF-8 and is read as Windows-1252: look at umlauts and signs"
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
# How much is turned into columns at once: much enough to be fast, little enough for memory.
BLOCK_CHARACTERS, BLOCK_ROWS = 1 << 22, 1 << 14

_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


def read_csv(path: str | Path, *, task: str, output: str, delimiter: str | None = None) -> Source:
    """A CSV file; options as for `csv_columns`. Task labels are text."""
    file = Path(path)
    sheet, columns, notes = _read(file, delimiter, (task,))
    return Source(
        file.name,
        columns,
        task,
        output,
        notes=notes,
        place=lambda row: f"line {sheet.line(row)} of {file.name}",
    )


def csv_columns(path: str | Path, *, delimiter: str | None = None) -> dict[str, list[Any]]:
    """Columns of a CSV file with a header, plain or gzipped, as lists.

    A column is whole numbers, else numbers (with decimal points, or with decimal commas in all
    cells), else true and false, else text. An empty cell is None, in a column of numbers NA as
    well. Without a ``delimiter``, the header says whether it is a comma, a semicolon or a tab.
    """
    _, columns, _ = _read(Path(path), delimiter)
    return {name: column.tolist() for name, column in columns.items()}


def csv_sheet(file: Path) -> _Sheet:
    """How a CSV file is written: encoding, delimiter and header; there may be no rows."""
    try:
        sheet = _Sheet.open(file, None)
        with _errors_named(file):
            file.read_bytes().decode(sheet.encoding)
    except _NotUtf8:
        sheet = _Sheet.open(file, None, encoding=WINDOWS)
    return sheet


class _NotUtf8(InputError):
    """The file is not written in UTF-8."""


def _read(
    file: Path, delimiter: str | None, as_text: Collection[str] = ()
) -> tuple[_Sheet, Columns, tuple[str, ...]]:
    """The columns of a file and notes on it; as Windows-1252 where it is not UTF-8.

    Columns named in ``as_text`` are text whatever they hold: 01 is not 1.
    """
    try:
        sheet = _Sheet.open(file, delimiter)
        columns, notes = _columns(sheet, as_text)
    except _NotUtf8 as error:
        try:
            sheet = _Sheet.open(file, delimiter, encoding=WINDOWS)
            columns, notes = _columns(sheet, as_text)
        except _NotUtf8:
            raise error from None
    return sheet, columns, (*sheet.notes, *notes)


def _columns(sheet: _Sheet, as_text: Collection[str]) -> tuple[Columns, tuple[str, ...]]:
    """Columns that have a name in the header, and notes on what was found out."""
    check_names(filter(None, sheet.header), sheet.file.name)
    builders = {k: _Builder(as_text=name in as_text) for k, name in enumerate(sheet.header) if name}
    unread = list(builders)
    while unread:
        for block in sheet.blocks():
            for k in unread:
                builders[k].add(block[k])
        # A column that begins with numbers and goes on with text is read again, as text.
        unread = [k for k in unread if builders[k].restart()]
    columns = {sheet.header[k]: builder.column() for k, builder in builders.items()}
    cells = {sheet.header[k]: builder.cells for k, builder in builders.items()}
    notes: tuple[str, ...] = ()
    unnamed = [str(k + 1) for k, name in enumerate(sheet.header) if not name]
    if unnamed:
        several = "columns" if len(unnamed) > 1 else "column"
        notes = (f"left out {several} {', '.join(unnamed)}: no name in the header",)
    written = {name: cells[name] for name in columns if name not in as_text and columns[name].texts}
    if all(decimal_commas(found) is None for found in written.values()):
        return columns, notes
    # Where one column proves that commas are decimal, they are in the others, too.
    read = {name: decimal_commas(found, certain=True) for name, found in written.items()}
    numbers = {name: values for name, values in read.items() if values is not None}
    for name, values in numbers.items():
        columns[name] = Column.of_levels(columns[name].values, list(values))
    return columns, (*notes, comma_note({name: first_comma(cells[name]) for name in numbers}))


class _Distinct(dict[bytes, int]):
    """Distinct cells, each with its index."""

    def __missing__(self, cell: bytes) -> int:
        self[cell] = index = len(self)
        return index


class _Builder:
    """One column, block by block: an array of numbers as long as all cells are, else text.

    Text is kept as distinct cells and the index of each row's cell among them.
    """

    def __init__(self, *, as_text: bool) -> None:
        self._as_text = as_text
        self._clear(_Distinct() if as_text else None)

    def _clear(self, distinct: _Distinct | None) -> None:
        self._distinct = distinct
        self._blocks: list[NDArray[Any]] = []
        self._missing: list[Mask] = []
        self._mixed = False

    def add(self, cells: Cells) -> None:
        """Append the next rows."""
        if self._mixed:
            return
        if self._distinct is None:
            numbers = cells.numbers()
            if numbers is not None:
                self._blocks.append(numbers[0])
                self._missing.append(numbers[1])
                return
            if self._blocks:
                self._mixed = True
                return
            self._distinct = _Distinct()
        codes = map(self._distinct.__getitem__, cells.tolist())
        self._blocks.append(np.fromiter(codes, dtype=np.intp, count=len(cells)))

    def restart(self) -> bool:
        """Whether all rows must be added again, as text: there is text, or not one number."""
        if self._distinct is not None or not (self._mixed or all(m.all() for m in self._missing)):
            return False
        self._clear(_Distinct())
        return True

    @property
    def cells(self) -> list[str]:
        """Distinct cells of a column of text."""
        return [cell.decode() for cell in self._distinct or ()]

    def column(self) -> Column:
        """All rows."""
        values = np.concatenate(self._blocks)
        if self._distinct is not None:
            parse = texts if self._as_text else typed
            return Column.of_levels(values, parse(self.cells))
        missing = np.concatenate(self._missing)
        if values.dtype.kind == "f":
            values[missing] = np.nan
        return Column(values, missing)


@dataclass(frozen=True)
class _Sheet:
    """A CSV file, and how it is written; ``start`` lines stand before the header."""

    file: Path
    encoding: str
    delimiter: str
    start: int
    header: list[str]
    hints: tuple[Hint, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, file: Path, delimiter: str | None, encoding: str | None = None) -> _Sheet:
        """Find out how the file is written. Without a ``delimiter``, the header decides."""
        chosen = _one_character(delimiter)
        with _errors_named(file):
            with _opener(file)(file, "rb") as raw:
                found_encoding = _encoding(raw.read(16), file)
            encoding = encoding or found_encoding
            with _opener(file)(file, "rt", encoding=encoding, newline="") as stream:
                start, first = _first_line(stream)
                mark = _SEPARATOR.fullmatch(first.rstrip("\r\n"))
                found = chosen or (mark[1] if mark else _delimiter_of(first))
                if mark:
                    blank, first = _first_line(stream)
                    start += blank + 1
                reader = _reader(chain([first], stream), found)
                with _csv_errors(file, reader, start):
                    header: list[str] = next(reader, [])
        if not header:
            raise InputError(f"{file.name} has 0 lines; expected a header and rows")
        names = [name.strip() for name in header]
        notes = (WINDOWS_NOTE,) if encoding == WINDOWS else ()
        sheet = cls(file, encoding, found, start, names, notes=notes)
        if chosen is not None:
            return sheet
        other = next((d for d in OTHER_DELIMITERS if any(d in name for name in names)), None)
        say = "say what separates cells", f"delimiter={other!r}", f"--delimiter {other!r}"
        hints = (Hint(*say),) if other else ()
        shown = "tabs" if found == "\t" else repr(found)
        if found != ",":
            notes = (*notes, f"cells are separated by {shown}")
        return cls(file, encoding, found, start, names, hints, notes)

    def blocks(self) -> Iterator[list[Cells]]:
        """Cells by column, of some rows after the others. Blank lines are left out."""
        width, count = len(self.header), 0
        with _errors_named(self.file), self._body() as (stream, line):
            while text := stream.read(BLOCK_CHARACTERS) + stream.readline():
                columns = _split(text, self.delimiter, width)
                if columns is None:  # quotes, blank lines or an error
                    break
                count += len(columns[0])
                yield columns
            reader = _reader(chain(StringIO(text, newline=""), stream), self.delimiter)
            with _csv_errors(self.file, reader, line + count):
                while rows := list(islice(filter(None, reader), BLOCK_ROWS)):
                    self._check_widths(rows, count)
                    count += len(rows)
                    yield [Cells.of(cells) for cells in zip(*rows, strict=True)]
        if not count:
            raise InputError(f"{self.file.name} has 1 lines; expected a header and rows")

    def line(self, row: int) -> int:
        """The line of the file that a row ends in; the file is read again to find it."""
        with self._body() as (stream, line):
            reader = _reader(stream, self.delimiter)
            next(islice(filter(None, reader), row, None))
            return line + int(reader.line_num)

    @contextmanager
    def _body(self) -> Iterator[tuple[Any, int]]:
        """The file after its header, and how many lines come before."""
        with _opener(self.file)(self.file, "rt", encoding=self.encoding, newline="") as stream:
            reader = _reader(islice(stream, self.start, None), self.delimiter)
            next(reader, None)
            yield stream, self.start + reader.line_num

    def _check_widths(self, rows: list[list[str]], before: int) -> None:
        width = len(self.header)
        if set(map(len, rows)) != {width}:
            k = next(k for k, row in enumerate(rows) if len(row) != width)
            raise InputError(
                f"{self.file.name}, line {self.line(before + k)}: {len(rows[k])} cells; the "
                f"header has {width}",
                *self.hints,
            )


def _split(text: str, delimiter: str, width: int) -> list[Cells] | None:
    """Columns of lines without quotes or blanks; None if they are not that plain."""
    plain = text.replace("\r\n", "\n")
    if delimiter == " " or not delimiter.isascii() or '"' in plain or "\r" in plain:
        return None
    buffer = padded((plain if plain.endswith("\n") else plain + "\n").encode())
    ends = np.flatnonzero((buffer == ord("\n")) | (buffer == ord(delimiter)))
    starts = np.concatenate([[0], ends[:-1] + 1])
    # Every line has as many cells as the header if every width-th mark, and no other, ends one.
    newlines = buffer[ends] == ord("\n")
    full = newlines[width - 1 :: width].all() and newlines.sum() * width == len(ends)
    if not full or (width == 1 and "\n\n" in plain):
        return None
    return [
        Cells(buffer, starts[k::width], ends[k::width] - starts[k::width]) for k in range(width)
    ]


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _opener(file: Path) -> Callable[..., Any]:
    refuse_device(as_path(file))
    return _open_gzip if file.suffix == ".gz" else open


class _LimitedGzip(gzip.GzipFile):
    """A packed file that ends with an error where it unpacks to too much."""

    def read1(self, size: int = -1) -> bytes:
        refuse_bomb(Path(str(self.name)), self.tell())
        return super().read1(size)


def _open_gzip(file: Path, mode: str, **text: Any) -> Any:
    stream = _LimitedGzip(file, "rb")
    return stream if mode == "rb" else TextIOWrapper(stream, **text)


@contextmanager
def _errors_named(file: Path) -> Iterator[None]:
    """Turn errors of reading into messages that name the file and the remedy."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except PermissionError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        other = error.encoding.startswith("utf-16")
        raise (InputError if other else _NotUtf8)(
            f"{file.name} is not {'UTF-16' if other else 'UTF-8'} text: {error}; save it as UTF-8 "
            "(in Excel: CSV UTF-8)"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file.name} is no whole gzip file: {error}") from None


@contextmanager
def _csv_errors(file: Path, reader: Any, before: int) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        line = before + reader.line_num
        raise InputError(f"{file.name}, line {line}: no CSV: {error}") from None


def _encoding(start: bytes, file: Path) -> str:
    if start[:4] in WORKBOOKS:
        raise InputError(
            f"{file.name} is an Excel workbook or a zip file; expected text, so save it as CSV",
            Hint("read a workbook", "History.from_excel", "naming a file that ends with .xlsx"),
        )
    if start == SQLITE:
        url = f"sqlite:///{file}"
        raise InputError(
            f"{file.name} is a SQLite database, perhaps a storage of Optuna; expected a table",
            Hint("name the storage by its URL", f"History.from_optuna({url!r})", f"naming {url}"),
        )
    return "utf-16" if start[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"


def _first_line(stream: Iterator[str]) -> tuple[int, str]:
    """The first line that is not blank, and how many were before it."""
    for blank, line in enumerate(stream):
        if line.strip():
            return blank, line
    return 0, ""


def _delimiter_of(header: str) -> str:
    """A comma, unless the header is one cell with it and several with another."""
    cells = {d: len(next(csv.reader([header], delimiter=d), [])) for d in (",", *OTHER_DELIMITERS)}
    return "," if cells[","] > 1 else max(cells, key=lambda d: cells[d])


def _one_character(delimiter: str | None) -> str | None:
    found = BY_NAME.get(delimiter, delimiter) if delimiter is not None else None
    if found is not None and (not isinstance(found, str) or len(found) != 1 or found in '"\r\n'):
        raise InputError(f"delimiter is {delimiter!r}; expected one character, such as ';', or tab")
    return found


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
