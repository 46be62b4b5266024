"""Rows of a CSV file, whichever program wrote it: its encoding, its delimiter, its header."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from metakel.errors import Hint, InputError

# What Excel writes where commas are for decimals, and what it leaves when cells are copied.
OTHER_DELIMITERS = (";", "\t")
BY_NAME = {"tab": "\t", "\\t": "\t"}
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")

_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


@dataclass(frozen=True)
class Sheet:
    """Header and rows as text, and the line of the file that each row ends in."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    notes: tuple[str, ...] = ()


def read_sheet(file: Path, delimiter: str | None = None) -> Sheet:
    """Rows that are not blank. Without a ``delimiter``, the header decides, with a note."""
    chosen = _one_character(delimiter)
    lines, found = _lines(file, chosen)
    if len(lines) < 2:
        raise InputError(f"{file.name} has {len(lines)} lines; expected a header and rows")
    (_, header), *body = lines
    header = [name.strip() for name in header]
    for number, row in body:
        if len(row) != len(header):
            raise InputError(
                f"{file.name}, line {number}: {len(row)} cells; the header has {len(header)}",
                *_other_delimiter(header, chosen),
            )
    told = (f"cells are separated by {_shown(found)}",) if chosen is None and found != "," else ()
    return _named(header, [row for _, row in body], [number for number, _ in body], told)


def _named(
    header: list[str], rows: list[list[str]], lines: list[int], notes: tuple[str, ...]
) -> Sheet:
    """Without the columns that have no name: an index of pandas, the margin of a sheet."""
    kept = [k for k, name in enumerate(header) if name]
    unnamed = [str(k + 1) for k, name in enumerate(header) if not name]
    if not unnamed:
        return Sheet(header, rows, lines, notes)
    several = "columns" if len(unnamed) > 1 else "column"
    notes += (f"left out {several} {', '.join(unnamed)}: no name in the header",)
    return Sheet([header[k] for k in kept], [[row[k] for k in kept] for row in rows], lines, notes)


def _lines(file: Path, delimiter: str | None) -> tuple[list[tuple[int, list[str]]], str]:
    """Lines that are not blank, header first, with their numbers in the file; the delimiter."""
    opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    encoding = "utf-8-sig"
    try:
        with opener(file, "rb") as raw:
            encoding = _encoding(raw.read(4), file)
        with opener(file, "rt", encoding=encoding, newline="") as stream:
            skipped, first = _first_line(stream)
            mark = _SEPARATOR.fullmatch(first.rstrip("\r\n"))
            found = delimiter or (mark[1] if mark else _delimiter_of(first))
            if mark:
                blank, first = _first_line(stream)
                skipped += blank + 1
            reader = csv.reader(chain([first], stream), delimiter=found, skipinitialspace=True)
            return [(skipped + reader.line_num, row) for row in reader if row], found
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except UnicodeDecodeError as error:
        kind = "UTF-16" if encoding == "utf-16" else "UTF-8"
        raise InputError(
            f"{file.name} is not {kind} text: {error}; save it as UTF-8 (in Excel: CSV UTF-8)"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file.name} is no whole gzip file: {error}") from None
    except csv.Error as error:
        raise InputError(
            f"{file.name}, line {skipped + reader.line_num}: no CSV: {error}"
        ) from None


def _encoding(start: bytes, file: Path) -> str:
    if start in WORKBOOKS:
        raise InputError(f"{file.name} is an Excel workbook or a zip file; save it as CSV (UTF-8)")
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


def _other_delimiter(header: list[str], chosen: str | None) -> list[Hint]:
    other = next((d for d in OTHER_DELIMITERS if any(d in name for name in header)), None)
    if chosen is not None or other is None:
        return []
    return [Hint("say what separates cells", f"delimiter={other!r}", f"--delimiter {other!r}")]


def _shown(delimiter: str) -> str:
    return "tabs" if delimiter == "\t" else repr(delimiter)
