"""CSV files, whichever program wrote them: encoding, delimiter, header, types of columns."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
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
    UNITS_NOTE,
    Columns,
    check_names,
    header_at,
    is_header,
    is_units,
)
from metakel.io.schema import Table
from metakel.space.configurations import has_decimal_comma, is_number_text

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

_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


def read_csv(path: str | Path, *, task: str, output: str, delimiter: str | None = None) -> Table:
    """A CSV file; options as for `csv_columns`. Task labels are text."""
    sheet = _Sheet.open(Path(path), delimiter)
    columns, notes = _columns(sheet, as_text=(task,))
    return Table(sheet.file.name, columns, task, output, notes=notes, place=sheet.place)


@dataclass(frozen=True, eq=False)
class CsvTable:
    """The table in a CSV file, and how it is written.

    ``header`` has an empty text for a column without a name. ``place`` says where a row is found.
    """

    columns: Columns
    header: tuple[str, ...]
    encoding: str
    delimiter: str
    decimal_commas: bool
    notes: tuple[str, ...]
    place: Callable[[int], str]


def read_csv_table(path: str | Path, delimiter: str | None = None) -> CsvTable:
    """A CSV file that may have a header only."""
    sheet = _Sheet.open(Path(path), delimiter)
    cells = sheet.cells(may_be_empty=True)
    columns, notes = _columns(sheet, cells=cells)
    numbers = (distinct for distinct, _ in cells if not has_thousands(distinct))
    texts = [text.strip().lower() for distinct in numbers for text in distinct]
    points = any("." in text and is_number_text(text) for text in texts)
    commas = any(map(has_decimal_comma, texts)) or sheet.delimiter == ";"
    how = sheet.encoding, sheet.delimiter, commas and not points and sheet.delimiter != ","
    return CsvTable(columns, tuple(sheet.header), *how, notes, sheet.place)


def csv_columns(path: str | Path, *, delimiter: str | None = None) -> dict[str, list[Any]]:
    """Columns of a CSV file with a header, plain or gzipped, as lists.

    A column is whole numbers, else numbers (with decimal points, or with decimal commas in all
    cells), else true and false, else text. An empty cell is None, in a column of numbers NA as
    well. Without a ``delimiter``, the header says whether it is a comma, a semicolon or a tab.
    """
    columns, _ = _columns(_Sheet.open(Path(path), delimiter))
    return {name: column.tolist() for name, column in columns.items()}


Cells = list[tuple[list[str], NDArray[np.intp]]]


def _columns(
    sheet: _Sheet, as_text: Collection[str] = (), cells: Cells | None = None
) -> tuple[Columns, tuple[str, ...]]:
    """Columns that have a name in the header, and notes on what was found out.

    Columns named in ``as_text`` are text whatever they hold: 01 is not 1.
    """
    check_names(filter(None, sheet.header), sheet.file.name)
    names = {k: name for k, name in enumerate(sheet.header) if name}
    cells = sheet.cells() if cells is None else cells
    notes = list(sheet.notes)
    found = read_texts({n: cells[k] for k, n in names.items() if n not in as_text}, notes)
    found |= {
        n: of_levels(texts(cells[k][0]), cells[k][1]) for k, n in names.items() if n in as_text
    }
    unnamed = [str(k + 1) for k in range(len(sheet.header)) if k not in names]
    if unnamed:
        several = "columns" if len(unnamed) > 1 else "column"
        notes.append(f"left out {several} {', '.join(unnamed)}: no name in the header")
    return {name: found[name] for name in names.values()}, tuple(notes)


class _Distinct(dict[str, int]):
    """Distinct cells, each with its index."""

    def __missing__(self, cell: str) -> int:
        self[cell] = index = len(self)
        return index


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
    units: tuple[str, ...] = ()

    def is_row(self, cells: Sequence[str]) -> bool:
        """Whether a line is a row: not blank, no comment, not the header or its units again."""
        if not any(cells) or not any(map(str.strip, cells)):
            return False
        if len(cells) != len(self.header):
            return not cells[0].startswith(COMMENT)
        return tuple(cells) != self.units and not is_header(cells, self.header)

    @classmethod
    def open(cls, file: Path, delimiter: str | None) -> _Sheet:
        """Find out how the file is written. Without a ``delimiter``, the header decides."""
        chosen = BY_NAME.get(delimiter, delimiter) if delimiter is not None else None
        one = isinstance(chosen, str) and len(chosen) == 1 and chosen not in '"\r\n'
        if chosen is not None and not one:
            raise InputError(
                f"delimiter is {delimiter!r}; expected one character, such as ';', or tab"
            )
        with _errors_named(file):
            encoding = _encoding(file)
            with _open(file, encoding) as stream:
                top = list(islice(stream, 2 * TITLE_ROWS))
            mark = _SEPARATOR.fullmatch(_first_filled(top).rstrip("\r\n"))
            start = _index_of_first(top) + 1 if mark else 0
            found, start = _layout(top, start, chosen or (mark[1] if mark else None))
            reader = _reader(top[start:], found)
            with _csv_errors(file, reader, start):
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
        if units:
            notes.append(f"{UNITS_NOTE}: {', '.join(filter(None, units))}")
        return cls(file, encoding, found, start, header, tuple(hints), tuple(notes), units)

    def place(self, row: int) -> str:
        """Where a row is found."""
        return f"line {self.line(row)} of {self.file.name}"

    def cells(self, *, may_be_empty: bool = False) -> Cells:
        """Distinct cells of every column, and the index of each row's. Blank lines are left out."""
        width = len(self.header)
        large = self.file.stat().st_size > LARGE
        found = self._by_pandas() if large else None
        if found is not None:
            return found
        distinct = [_Distinct() for _ in range(width)]
        codes: list[list[NDArray[np.intp]]] = [[] for _ in range(width)]
        count = 0
        for rows in self._blocks():
            for k, row in enumerate(rows):
                if len(row) > width and not any(map(str.strip, row[width:])):
                    del row[width:]  # separators at the end, as some programs write them
                if len(row) != width:
                    raise InputError(
                        f"{self.file.name}, line {self.line(count + k)}: {len(row)} cells; "
                        f"the header has {width}",
                        *self.hints,
                    )
            count += len(rows)
            for k, cells in enumerate(zip(*rows, strict=True)):
                index = map(distinct[k].__getitem__, cells)
                codes[k].append(np.fromiter(index, dtype=np.intp, count=len(rows)))
        if not count and not may_be_empty:
            raise InputError(f"{self.file.name} has 1 lines; expected a header and rows")
        none = np.zeros(0, dtype=np.intp)
        return [(list(d), np.concatenate([none, *c])) for d, c in zip(distinct, codes, strict=True)]

    def _blocks(self) -> Iterator[list[list[str]]]:
        with _errors_named(self.file), self._body() as (stream, line):
            reader = _reader(stream, self.delimiter)
            with _csv_errors(self.file, reader, line):
                while rows := list(islice(filter(self.is_row, reader), BLOCK_ROWS)):
                    yield rows

    def _by_pandas(self) -> Cells | None:
        """The same by pandas; None where it is not installed, or refuses what it finds."""
        try:
            import pandas
        except ImportError:
            return None
        with _errors_named(self.file), self._body() as (stream, _):
            try:
                frame = pandas.read_csv(
                    stream, sep=self.delimiter, names=range(len(self.header)), dtype=str,
                    keep_default_na=False, skipinitialspace=True, index_col=False,
                )  # fmt: skip
            except (ValueError, pandas.errors.ParserError):
                return None
        if not len(frame) or frame.isna().to_numpy().any():  # lines with too few cells
            return None
        again = (frame == self.header).all(axis=1) | (frame == "").all(axis=1)
        if self.units:
            again |= (frame == list(self.units)).all(axis=1)
        frame = frame[~again]
        found = (frame[k].factorize() for k in frame.columns)
        return [(levels.tolist(), codes.astype(np.intp)) for codes, levels in found]

    def line(self, row: int) -> int:
        """The line of the file that a row ends in; the file is read again to find it."""
        with self._body() as (stream, line):
            reader = _reader(stream, self.delimiter)
            next(islice(filter(self.is_row, reader), row, None))
            return line + int(reader.line_num)

    @contextmanager
    def _body(self) -> Iterator[tuple[Any, int]]:
        """The file after its header, and how many lines come before."""
        with _open(self.file, self.encoding) as stream:
            reader = _reader(islice(stream, self.start, None), self.delimiter)
            next(reader, None)
            yield stream, self.start + reader.line_num


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


@contextmanager
def _csv_errors(file: Path, reader: Any, before: int) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        line = before + reader.line_num
        raise InputError(f"{file.name}, line {line}: {_no_csv(error)}") from None


def _index_of_first(lines: Sequence[str]) -> int:
    """Of the lines, the first that is not blank."""
    return next((i for i, line in enumerate(lines) if line.strip()), 0)


def _first_filled(lines: Sequence[str]) -> str:
    return lines[_index_of_first(lines)] if lines else ""


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
