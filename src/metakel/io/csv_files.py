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
from io import BytesIO, StringIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from metakel._files import as_path, refuse_bomb, refuse_device
from metakel.errors import Hint, InputError
from metakel.io.cleaning import MISSING, comma_note, decimal_commas, normalised, texts, typed
from metakel.io.columns import Column, Columns, Mask, check_names, mix
from metakel.io.schema import Source

# Excel writes semicolons where the comma is for decimals, and tabs when cells are copied.
TAB = "\t"
OTHER_DELIMITERS = (";", TAB)
BY_NAME = {"tab": TAB, "\\t": TAB}
SQLITE = b"SQLite format 3\0"
# What Excel writes by default in Western Europe and America; five bytes have no meaning in it.
WINDOWS = "cp1252"
WINDOWS_NOTE = "the file is not UTF-8 and is read as Windows-1252: look at umlauts and signs"
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
# How much is turned into columns at once: much enough to be fast, little enough for memory.
BLOCK_CHARACTERS, BLOCK_ROWS = 1 << 22, 1 << 14
# Longer cells are text.
LONGEST_NUMBER = 64
# From this many numbers on, a faster parser is worth its import.
MANY_ROWS = 4096
# A column with more shapes in a block is text.
MOST_SHAPES = 1000

_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
# Numbers are recognised by their shape, which has 0 for every digit: a column of many numbers has
# few shapes.
_SHAPE = np.frombuffer(bytes.maketrans(b"123456789", b"000000000"), dtype=np.uint8)
_INTEGER_SHAPE = re.compile(r"[+-]?0+").fullmatch
_NUMBER_SHAPE = re.compile(r"[+-]?(0+\.?0*|\.0+)([eE][+-]?0+)?").fullmatch


def read_csv(path: str | Path, *, task: str, output: str, delimiter: str | None = None) -> Source:
    """A CSV file; options as for `csv_columns`. Task labels are text."""
    sheet = _Sheet.open(Path(path), delimiter)
    columns, notes = _columns(sheet, as_text=(task,))
    return Source(
        sheet.file.name,
        columns,
        task,
        output,
        notes=notes,
        place=lambda row: f"line {sheet.line(row)} of {sheet.file.name}",
    )


def csv_columns(path: str | Path, *, delimiter: str | None = None) -> dict[str, list[Any]]:
    """Columns of a CSV file with a header, plain or gzipped, as lists.

    A column is whole numbers, else numbers (with decimal points, or with decimal commas in all
    cells), else true and false, else text. An empty cell is None, in a column of numbers NA as
    well. Without a ``delimiter``, the header says whether it is a comma, a semicolon or a tab.
    """
    columns, _ = _columns(_Sheet.open(Path(path), delimiter))
    return {name: column.tolist() for name, column in columns.items()}


def _columns(sheet: _Sheet, as_text: Collection[str] = ()) -> tuple[Columns, tuple[str, ...]]:
    """Columns that have a name in the header, and notes on what was found out.

    Columns named in ``as_text`` are text whatever they hold: 01 is not 1.
    """
    check_names(filter(None, sheet.header), sheet.file.name)
    names = {k: name for k, name in enumerate(sheet.header) if name}
    builders = {k: _Builder(text=name in as_text) for k, name in names.items()}
    unread = list(names)
    while unread:
        for block in sheet.blocks():
            for k in unread:
                builders[k].add(block[k])
        # A column that begins with numbers and goes on with text is read again, as text.
        unread = [k for k in unread if builders[k].unfinished]
        builders |= {k: _Builder(text=True) for k in unread}
    columns, notes = Columns(), list(sheet.notes)
    written: dict[str, list[str]] = {}
    for k, name in names.items():
        columns[name] = builders[k].column(texts if name in as_text else typed)
        if name not in as_text and columns[name].texts:
            written[name] = builders[k].cells
    unnamed = [str(k + 1) for k in range(len(sheet.header)) if k not in names]
    if unnamed:
        several = "columns" if len(unnamed) > 1 else "column"
        notes.append(f"left out {several} {', '.join(unnamed)}: no name in the header")
    if any(decimal_commas(cells) is not None for cells in written.values()):
        # Where one column proves that commas are decimal, they are in the others, too.
        for name, cells in tuple(written.items()):
            numbers = decimal_commas(cells, certain=True)
            if numbers is None:
                del written[name]
            else:
                columns[name] = Column.of_levels(columns[name].values, list(numbers))
        notes.append(comma_note(written))
    return columns, tuple(notes)


class _Distinct(dict[bytes, int]):
    """Distinct cells, each with its index."""

    def __missing__(self, cell: bytes) -> int:
        self[cell] = index = len(self)
        return index


class _Builder:
    """One column, block by block: an array of numbers as long as all cells are, else text.

    Text is kept as distinct cells and the index of each row's cell among them.
    """

    def __init__(self, *, text: bool) -> None:
        self._distinct = _Distinct() if text else None
        self._blocks: list[NDArray[Any]] = []
        self._missing: list[Mask] = []
        self._mixed = False

    def add(self, cells: Cells) -> None:
        """Append the next rows."""
        numbers = cells.numbers() if self._distinct is None and not self._mixed else None
        if numbers is not None:
            self._blocks.append(numbers[0])
            self._missing.append(numbers[1])
            return
        if self._distinct is None and self._blocks:
            self._mixed = True
        if self._mixed:
            return
        self._distinct = _Distinct() if self._distinct is None else self._distinct
        codes = map(self._distinct.__getitem__, cells.tolist())
        self._blocks.append(np.fromiter(codes, dtype=np.intp, count=len(cells)))

    @property
    def unfinished(self) -> bool:
        """Whether all rows must be added again, as text: there is text, or not one number."""
        return self._distinct is None and (self._mixed or all(m.all() for m in self._missing))

    @property
    def cells(self) -> list[str]:
        """Distinct cells of a column of text."""
        return [cell.decode() for cell in self._distinct or ()]

    def column(self, parse: Callable[[Sequence[str]], list[Any]]) -> Column:
        """All rows, with text as ``parse`` reads it."""
        values = np.concatenate(self._blocks)
        if self._distinct is not None:
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
                start, first = _first_line(stream)
                mark = _SEPARATOR.fullmatch(first.rstrip("\r\n"))
                found = chosen or (mark[1] if mark else _delimiter_of(first))
                if mark:
                    blank, first = _first_line(stream)
                    start += blank + 1
                reader = _reader(chain([first], stream), found)
                with _csv_errors(file, reader, start):
                    header = [name.strip() for name in next(reader, [])]
        if not header:
            raise InputError(f"{file.name} has 0 lines; expected a header and rows")
        notes, hints = [WINDOWS_NOTE] if encoding == WINDOWS else [], []
        if chosen is None and found != ",":
            notes.append(f"cells are separated by {'tabs' if found == TAB else repr(found)}")
        other = next((d for d in OTHER_DELIMITERS if any(d in name for name in header)), None)
        if chosen is None and other is not None:
            how = f"delimiter={other!r}", f"--delimiter {other!r}"
            hints.append(Hint("say what separates cells", *how))
        return cls(file, encoding, found, start, header, tuple(hints), tuple(notes))

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
                    for k, row in enumerate(rows):
                        if len(row) != width:
                            raise InputError(
                                f"{self.file.name}, line {self.line(count + k)}: {len(row)} cells; "
                                f"the header has {width}",
                                *self.hints,
                            )
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
        with _open(self.file, self.encoding) as stream:
            reader = _reader(islice(stream, self.start, None), self.delimiter)
            next(reader, None)
            yield stream, self.start + reader.line_num


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
    except PermissionError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file.name} is no whole gzip file: {error}") from None


@contextmanager
def _csv_errors(file: Path, reader: Any, before: int) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        line = before + reader.line_num
        raise InputError(f"{file.name}, line {line}: no CSV: {error}") from None


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


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of one column, as positions in a buffer of UTF-8.

    The buffer has ``LONGEST_NUMBER`` bytes to spare, so that a window may begin at any cell.
    """

    buffer: NDArray[np.uint8]
    starts: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def of(cls, cells: Iterable[str]) -> Cells:
        encoded = [cell.encode() for cell in cells]
        lengths = np.array([len(cell) for cell in encoded], dtype=np.intp)
        return cls(padded(b"".join(encoded)), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def tolist(self) -> list[bytes]:
        """One by one."""
        if self.lengths.max() <= LONGEST_NUMBER:
            matrix = self._matrix()
            return list(matrix.view(f"S{matrix.shape[1]}")[:, 0].tolist())
        raw, ends = self.buffer.tobytes(), self.starts + self.lengths
        return [raw[i:j] for i, j in zip(self.starts.tolist(), ends.tolist(), strict=True)]

    def numbers(self) -> tuple[NDArray[Any], Mask] | None:
        """Whole numbers, else numbers, with a mask of those that are missing; None for text."""
        if self.lengths.max() > LONGEST_NUMBER:
            return None
        matrix = self._matrix()
        shaped = _SHAPE.take(matrix, mode="clip")
        hashes = np.zeros(len(shaped), dtype=np.uint64)
        for words in shaped.view(np.uint64).T:
            hashes = mix(hashes, words)
        distinct = np.unique(hashes)
        if len(distinct) > MOST_SHAPES:
            return None
        rows = [shaped[np.argmax(hashes == value)] for value in distinct]
        shapes = [row.tobytes().rstrip(b"\0").decode() for row in rows]
        others = [shape for shape in shapes if not _NUMBER_SHAPE(shape)]
        if any(normalised(word) not in MISSING for word in others):
            if all(shape == shape.strip() for shape in shapes):
                return None
            return Cells.of(cell.decode().strip() for cell in self.tolist()).numbers()
        missing = np.isin(hashes, distinct[[shape in others for shape in shapes]])
        matrix[missing] = 0
        matrix[missing, 0] = ord("0")
        whole = all(_INTEGER_SHAPE(shape) for shape in shapes if shape not in others)
        values = _parsed(matrix, np.int64 if whole else np.float64)
        return None if values is None else (values, missing)

    def _matrix(self) -> NDArray[np.uint8]:
        """(n, longest) bytes of the cells, filled up with zeros."""
        width = 8 * max(1, -(-int(self.lengths.max()) // 8))
        found = sliding_window_view(self.buffer, width)[self.starts]
        inside = np.arange(width, dtype=np.uint8) < self.lengths.astype(np.uint8)[:, None]
        found *= inside.view(np.uint8)
        return found


def padded(raw: bytes) -> NDArray[np.uint8]:
    """A buffer for `Cells`."""
    return np.frombuffer(raw + bytes(LONGEST_NUMBER), dtype=np.uint8)


def _parsed(matrix: NDArray[np.uint8], dtype: type[np.generic]) -> NDArray[Any] | None:
    """Numbers of rows of bytes that have the shape of numbers; None if 64 bits are too few."""
    n, width = matrix.shape
    try:
        if n < MANY_ROWS:
            return matrix.view(f"S{width}")[:, 0].astype(dtype)
        # SciPy's Matrix Market reader rounds as exactly as `float` in a fraction of its time.
        from scipy.io import mmread  # slow to import

        lines = np.full((n, width + 1), ord("\n"), dtype=np.uint8)
        np.maximum(matrix, ord(" "), out=lines[:, :-1])
        lines[lines[:, 0] == ord("+"), 0] = ord(" ")
        field = "integer" if dtype is np.int64 else "real"
        header = f"%%MatrixMarket matrix array {field} general\n{n} 1\n"
        found: Any = mmread(BytesIO(header.encode() + lines.tobytes()))
        return np.asarray(found[:, 0], dtype=dtype)
    except (OverflowError, ValueError):
        return None
