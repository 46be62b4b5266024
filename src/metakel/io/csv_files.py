"""CSV files, whichever program wrote them: encoding, delimiter, header, types, and more rows."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._files import as_path, refuse_bomb, refuse_device
from metakel.errors import Hint, InputError
from metakel.io.cleaning import has_thousands, of_levels, read_texts, texts
from metakel.io.columns import (
    COMMENT,
    LOOKED_AT,
    TITLE_ROWS,
    Columns,
    check_names,
    header_at,
    is_header,
    is_units,
    units_note,
)
from metakel.io.schema import Table
from metakel.space.configurations import has_decimal_comma, is_ambiguous, is_number_text

# Excel writes semicolons where the comma is for decimals, and tabs when cells are copied.
TAB = "\t"
OTHER_DELIMITERS = (";", TAB, "|")
BY_NAME = {"tab": TAB, "\\t": TAB}
SQLITE = b"SQLite format 3\0"
# What Excel writes by default in Western Europe and America; five bytes have no meaning in it.
WINDOWS = "cp1252"
WINDOWS_NOTE = "the file is not UTF-8 and is read as Windows-1252: look at umlauts and signs"
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
BLOCK_CHARACTERS, BLOCK_ROWS = 1 << 22, 1 << 14
# Above this size in bytes pandas reads the cells, where it is installed: it is far faster.
LARGE = 50_000_000
EXACT = 2.0**53  # whole numbers up to here are exact as floats

_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
# Of every column, distinct cells and the index of each row's.
Cells = list[tuple[list[str], NDArray[np.intp]]]


def read_csv(path: str | Path, *, task: str, output: str, delimiter: str | None = None) -> Table:
    """A CSV file; options as for `csv_columns`. Task labels are text."""
    sheet = _Sheet.open(Path(path), delimiter)
    columns, notes = sheet.columns(sheet.cells(), as_text=(task,))
    return Table(sheet.file.name, columns, task, output, notes=notes, place=sheet.place)


def csv_columns(path: str | Path, *, delimiter: str | None = None) -> dict[str, list[Any]]:
    """Columns of a CSV file with a header, plain or gzipped, as lists.

    A column is whole numbers, else numbers (with decimal points, or with decimal commas in all
    cells), else true and false, else text. An empty cell is None, in a column of numbers NA as
    well. Without a ``delimiter``, the header says whether it is a comma, a semicolon or a tab.
    """
    sheet = _Sheet.open(Path(path), delimiter)
    columns, _ = sheet.columns(sheet.cells())
    return {name: column.tolist() for name, column in columns.items()}


@dataclass(frozen=True)
class _Sheet:
    """A CSV file, and how it is written; ``start`` lines stand before the header."""

    file: Path
    encoding: str
    delimiter: str
    start: int
    header: list[str]  # with an empty text for a column without a name
    hints: tuple[Hint, ...] = ()
    notes: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @classmethod
    def open(cls, file: Path, delimiter: str | None = None) -> _Sheet:
        """Find out how the file is written. Without a ``delimiter``, the header decides."""
        chosen = None if delimiter is None else BY_NAME.get(delimiter, delimiter)
        if chosen is not None and not re.fullmatch('[^"\r\n]', str(chosen), re.DOTALL):
            raise InputError(
                f"delimiter is {delimiter!r}; expected one character, such as ';', or tab"
            )
        with _errors_named(file):
            encoding = _encoding(file)
            with _open(file, encoding) as stream:
                top = list(islice(stream, 2 * TITLE_ROWS))
            first = next((i for i, line in enumerate(top) if line.strip()), 0)
            mark = _SEPARATOR.fullmatch(top[first].rstrip("\r\n")) if top else None
            found, start = _layout(
                top, first + 1 if mark else 0, chosen or (mark[1] if mark else None)
            )
            reader = _reader(top[start:], found)
            header = [name.strip() for name in next(reader, [])]
            below = [row for row in islice(reader, LOOKED_AT + 1) if any(map(str.strip, row))]
        if not header:
            raise InputError(f"{file.name} has 0 lines; expected a header and rows")
        notes, hints = [WINDOWS_NOTE] if encoding == WINDOWS else [], []
        if chosen is None and found != ",":
            notes.append(f"cells are separated by {'tabs' if found == TAB else repr(found)}")
        other = next((d for d in OTHER_DELIMITERS if any(d in name for name in header)), None)
        if chosen is None and other is not None:
            how = f"delimiter={other!r}", f"--delimiter {other!r}"
            hints.append(Hint("say what separates cells", *how))
        above = [line.strip() for line in top[:start] if line.strip(f" \t\r\n{found}")]
        if above and not (mark and len(above) == 1):
            notes.append(f"above the header: {' / '.join(above)[:80]!r}")
        units = tuple(below[0]) if below and is_units(below[0], below[1:]) else ()
        notes += units_note(units)
        return cls(file, encoding, found, start, header, tuple(hints), tuple(notes), units)

    def is_row(self, cells: Sequence[str]) -> bool:
        """Whether a line is a row: not blank, no comment, not the header or its units again."""
        if not any(cells) or not any(map(str.strip, cells)):
            return False
        if len(cells) != len(self.header):
            return not cells[0].startswith(COMMENT)
        return tuple(cells) != self.units and not is_header(cells, self.header)

    def columns(
        self, cells: Cells, as_text: Collection[str] = ()
    ) -> tuple[Columns, tuple[str, ...]]:
        """Columns that have a name in the header, and notes on what was found out.

        Columns named in ``as_text`` are text whatever they hold: 01 is not 1.
        """
        check_names(filter(None, self.header), self.file.name)
        named = {n: cell for n, cell in zip(self.header, cells, strict=True) if n}
        notes = list(self.notes)
        found = read_texts({n: cell for n, cell in named.items() if n not in as_text}, notes)
        unnamed = [str(k) for k, name in enumerate(self.header, start=1) if not name]
        if unnamed:
            several = "columns" if len(unnamed) > 1 else "column"
            notes.append(f"left out {several} {', '.join(unnamed)}: no name in the header")
        return {
            n: found[n] if n in found else of_levels(texts(levels), codes)
            for n, (levels, codes) in named.items()
        }, tuple(notes)

    def cells(self, *, may_be_empty: bool = False) -> Cells:
        """The cells of all rows. Blank lines are left out."""
        if self.file.stat().st_size > LARGE and (found := self._by_pandas()) is not None:
            return found
        width, rows_before = len(self.header), 0
        # Looking up a cell that is new gives it the next index.
        distinct = [defaultdict[str, int](count().__next__) for _ in range(width)]
        codes = [[np.zeros(0, dtype=np.intp)] for _ in range(width)]
        with self._body() as (_, reader, _):
            while rows := list(islice(filter(self.is_row, reader), BLOCK_ROWS)):
                for k, row in enumerate(rows):
                    if len(row) > width and not any(map(str.strip, row[width:])):
                        del row[width:]  # separators at the end, as some programs write them
                    if len(row) != width:
                        raise InputError(
                            f"{self.file.name}, line {self.line(rows_before + k)}: {len(row)} "
                            f"cells; the header has {width}",
                            *self.hints,
                        )
                rows_before += len(rows)
                for index, found_codes, column in zip(
                    distinct, codes, zip(*rows, strict=True), strict=True
                ):
                    indices = map(index.__getitem__, column)
                    found_codes.append(np.fromiter(indices, dtype=np.intp, count=len(rows)))
        if not rows_before and not may_be_empty:
            raise InputError(f"{self.file.name} has 1 lines; expected a header and rows")
        return [(list(d), np.concatenate(c)) for d, c in zip(distinct, codes, strict=True)]

    def _by_pandas(self) -> Cells | None:
        """The same by pandas; None where it is not installed, or refuses what it finds."""
        try:
            import pandas
        except ImportError:
            return None
        with self._body() as (stream, _, _):
            try:
                frame = pandas.read_csv(
                    stream, sep=self.delimiter, names=range(len(self.header)), dtype=str,
                    keep_default_na=False, skipinitialspace=True, index_col=False,
                )  # fmt: skip
            except (ValueError, pandas.errors.ParserError):
                return None
        if not len(frame) or frame.isna().to_numpy().any():  # lines with too few cells
            return None
        no_rows: list[Any] = [self.header, "", *([list(self.units)] if self.units else [])]
        frame = frame[~np.any([(frame == cells).all(axis=1) for cells in no_rows], axis=0)]
        found = (frame[k].factorize() for k in frame.columns)
        return [(levels.tolist(), codes.astype(np.intp)) for codes, levels in found]

    def line(self, row: int) -> int:
        """The line of the file that a row ends in; the file is read again to find it."""
        with self._body() as (_, reader, before):
            next(islice(filter(self.is_row, reader), row, None), None)
            return before + int(reader.line_num)

    def place(self, row: int) -> str:
        """Where a row is found."""
        return f"line {self.line(row)} of {self.file.name}"

    @contextmanager
    def _body(self) -> Iterator[tuple[Any, Any, int]]:
        """The file after its header, a reader of it, and how many lines come before."""
        with _errors_named(self.file), _open(self.file, self.encoding) as stream:
            head = _reader(islice(stream, self.start, None), self.delimiter)
            next(head, None)
            before, reader = self.start + head.line_num, _reader(stream, self.delimiter)
            try:
                yield stream, reader, before
            except csv.Error as error:
                line = before + reader.line_num
                raise InputError(f"{self.file.name}, line {line}: {_no_csv(error)}") from None


@dataclass(frozen=True, eq=False)
class CsvTable:
    """A CSV file that is kept as a record: its table, and the file with more rows."""

    path: Path
    content: bytes
    sheet: _Sheet
    columns: Mapping[str, Sequence[Any]]
    notes: tuple[str, ...]
    decimal_commas: bool

    @classmethod
    def open(cls, path: Path) -> CsvTable:
        """Of a file that may have a header only."""
        content, sheet = path.read_bytes(), _Sheet.open(path)
        cells = sheet.cells(may_be_empty=True)
        columns, notes = sheet.columns(cells)
        numbers = (distinct for distinct, _ in cells if not has_thousands(distinct))
        words = [text.strip().lower() for distinct in numbers for text in distinct]
        points = any("." in word and is_number_text(word) for word in words)
        commas = sheet.delimiter == ";" or any(map(has_decimal_comma, words))
        listed = {name: column.tolist() for name, column in columns.items()}
        decimal = commas and not points and sheet.delimiter != ","
        return cls(path, content, sheet, listed, notes, decimal)

    def place(self, i: int) -> str:
        """Where a row is found."""
        return self.sheet.place(i)

    def next_place(self, i: int) -> str:
        """Where the new row with this index will be found."""
        text = self.content.decode(self.sheet.encoding)
        lines = text.count("\n") + (not text.endswith("\n"))
        return f"line {lines + 1 + i} of {self.path.name}"

    def with_rows(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """The content of the file with these rows below the others."""
        sheet, text = self.sheet, StringIO()
        old = self.content.decode(sheet.encoding)
        end = "\r\n" if "\r\n" in old else "\n"
        writer = csv.writer(text, delimiter=sheet.delimiter, lineterminator=end)
        writer.writerows([self._written(row.get(name)) for name in sheet.header] for row in rows)
        added = text.getvalue() if old.endswith("\n") or not old else end + text.getvalue()
        encoding = sheet.encoding.removesuffix("-sig")
        if encoding == "utf-16":  # without a second mark
            encoding += "-be" if self.content[:2] == BOM_UTF16_BE else "-le"
        try:
            return self.content + (added.encode(encoding) if rows else b"")
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.path.name} is written in {sheet.encoding}, which has no "
                f"{error.object[error.start]!r}; save it as UTF-8"
            ) from None

    def _written(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
            return str(int(value))  # as people write it
        if not isinstance(value, float) or not self.decimal_commas:
            return str(value)
        text = repr(value).replace(".", ",")
        return f"{text}0" if is_ambiguous(text) else text  # 1,125 may be a thousand

    def refuse_uncalculated(self, names: Sequence[str]) -> None:
        """A text has no formulas."""


def empty_csv(names: Sequence[str]) -> bytes:
    """The content of a new file with these columns and no rows."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue().encode("utf-8-sig")  # by the mark Excel knows that it is UTF-8


# Bytes, lines and delimiters


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


class _LimitedGzip(gzip.GzipFile):
    """A packed file that ends with an error where it unpacks to too much."""

    def read1(self, size: int = -1) -> bytes:
        refuse_bomb(Path(str(self.name)), self.tell())
        return super().read1(size)


def _open(file: Path, encoding: str | None = None) -> Any:
    """The text of a file, plain or gzipped; without an encoding, its bytes."""
    refuse_device(as_path(file))
    stream = _LimitedGzip(file, "rb") if file.suffix == ".gz" else file.open("rb")
    return stream if encoding is None else TextIOWrapper(stream, encoding=encoding, newline="")


def _encoding(file: Path) -> str:
    """UTF-16 where a mark says so, else UTF-8, else Windows-1252; files of no text are refused."""
    with _open(file) as stream:
        start = stream.read1(16)
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
    wide = start[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
    errors = []
    for encoding in ("utf-16",) if wide else ("utf-8-sig", WINDOWS):
        decoder = getincrementaldecoder(encoding)()
        try:
            with _open(file) as stream:
                while block := stream.read1(BLOCK_CHARACTERS):
                    decoder.decode(block)
                decoder.decode(b"", final=True)
            return encoding
        except UnicodeDecodeError as error:
            errors.append(error)
    raise InputError(
        f"{file.name} is not {'UTF-16' if wide else 'UTF-8'} text: {errors[0]}; save it as UTF-8 "
        "(in Excel: CSV UTF-8)"
    )


@contextmanager
def _errors_named(file: Path) -> Iterator[None]:
    """Turn errors of reading into messages that name the file and the remedy."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except csv.Error as error:
        raise InputError(f"{file.name}, at its beginning: {_no_csv(error)}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file.name} is no whole gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def _no_csv(error: csv.Error) -> str:
    if "field limit" not in str(error):
        return f"no CSV: {error}"
    return (
        f"a cell of more than {csv.field_size_limit():,} characters; expected short cells, all "
        'quotes (") closed, and commas, semicolons or tabs between cells'
    )


def _record(lines: Sequence[str], i: int) -> str:
    """The line, with those after it while a cell in quotes is open."""
    text = lines[i]
    for line in lines[i + 1 :]:
        if text.count('"') % 2 == 0:
            break
        text += line
    return text


def _layout(lines: Sequence[str], start: int, chosen: str | None) -> tuple[str, int]:
    """What separates cells, and the line of the header; a title above it is none."""
    records = [_record(lines, i) for i in range(start, len(lines))]
    guessed = [chosen or _delimiter_of(record) for record in records]
    cells: list[list[str]] = [
        next(_reader(record.splitlines(keepends=True), d), [])
        for record, d in zip(records, guessed, strict=True)
    ]
    top = header_at(cells)
    return (guessed[top] if guessed else chosen or ","), start + top


def _delimiter_of(header: str) -> str:
    """A comma, unless the header is one cell with it and several with another."""
    lines = header.splitlines(keepends=True)

    def width(delimiter: str) -> int:
        try:
            return len(next(csv.reader(lines, delimiter=delimiter), []))
        except csv.Error:  # a long header is one cell with what does not separate its cells
            return 0

    return "," if width(",") > 1 else max((",", *OTHER_DELIMITERS), key=width)
