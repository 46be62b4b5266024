"""Columns of a table, and lines that are no rows: titles, comments, units, the header again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.space.configurations import (
    as_number,
    distinct,
    is_empty,
    is_missing,
    is_numeric,
    split_unit,
    to_python,
)

# How pandas calls a column without a name, such as an index that was saved.
UNNAMED = re.compile(r"\s*|Unnamed: \d+")
# Fewer rows than that may hold 1, 2, 3, ... or as many texts on purpose.
MIN_ROWS = 10
Mask = NDArray[np.bool_]
NUMERIC = (bool, int, float)
# A title and remarks may stand in so many lines above a table.
TITLE_ROWS = 10
TITLE = 0.5  # a line with no more than this share of the cells of others says who or when
COMMENT = "#"
LOOKED_AT = 3  # rows below a line of units, which tell that their columns hold numbers
_UNIT = re.compile(
    r"[\[(]?((1/)?[^\W\d_°%µμ]{0,4}[°%µμ]?[A-Za-zµμΩ°%·*/^.\- ]{0,8}[-−]?[0-9²³]?|[-–])[\])]?"
)


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: an array of numbers, or indices into its distinct values.

    Parameters
    ----------
    values : (n,) array
        Numbers or flags. With ``levels``, the index of each row's value among them.
    missing : (n,) array of bool
        Rows without a value.
    levels : list, optional
        Distinct values, by type and value, of a column that holds anything else.
    """

    values: NDArray[Any]
    missing: Mask
    levels: list[Any] | None = None

    @classmethod
    def of(cls, values: Sequence[Any] | NDArray[Any]) -> Column:
        """From any values: None, nan, pandas' NA and what a mask hides are missing ones."""
        if isinstance(values, np.ma.MaskedArray):
            hidden = np.ma.is_masked(values)
            values = np.ma.filled(values.astype(object), None) if hidden else values.data
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            floats = values.dtype.kind == "f"
            return cls(values, np.isnan(values) if floats else np.zeros(len(values), dtype=bool))
        cells = list(values)  # `tolist` would turn the times of an array into numbers
        kinds = set(map(type, cells))
        if len(kinds) == 1 and kinds <= set(NUMERIC):
            try:
                return cls.of(np.array(cells, dtype=kinds.pop()))
            except OverflowError:  # whole numbers of more than 64 bits
                pass
        if any(issubclass(kind, np.generic | list) for kind in kinds):
            cells = [to_python(value) for value in cells]
        levels, codes = distinct(cells)
        return cls.of_levels(codes, levels)

    @classmethod
    def of_levels(cls, codes: NDArray[np.intp], levels: list[Any]) -> Column:
        """From distinct values and the index of each row's value among them."""
        absent = np.array([is_missing(level) for level in levels], dtype=bool)
        return cls(codes, absent[codes], levels)

    @classmethod
    def joined(cls, parts: Sequence[Column]) -> Column:
        """The rows of all; numbers where all of them hold numbers."""
        held = [part for part in parts if not part.missing.all()]
        flags = {part.values.dtype.kind == "b" for part in held}
        if len(flags) > 1 or any(part.levels is not None for part in held):
            return cls.of([value for part in parts for value in part.tolist()])
        dtype = np.result_type(*(part.values.dtype for part in held)) if held else np.float64
        values = [p.values.astype(dtype) if p in held else np.zeros(len(p), dtype) for p in parts]
        return cls(np.concatenate(values), np.concatenate([p.missing for p in parts]))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Any:
        return self.values[row].item() if self.levels is None else self.levels[self.values[row]]

    def take(self, rows: Mask) -> NDArray[Any]:
        """The values of some rows, none of them missing: numbers if all are, else objects."""
        values = self.values if rows.all() else self.values[rows]
        if self.levels is None:
            return values
        used = np.bincount(values, minlength=len(self.levels)) > 0
        found = Column.of([self.levels[i] for i in np.flatnonzero(used)])
        if found.levels is None:
            table = np.zeros(len(used), dtype=found.values.dtype)
            table[used] = found.values
        else:
            table = np.fromiter(self.levels, dtype=object, count=len(used))
        return np.asarray(table[values])

    def tolist(self) -> list[Any]:
        """Python's own values, None where one is missing."""
        if self.levels is not None:
            listed = [None if is_missing(level) else level for level in self.levels]
            return [listed[i] for i in self.values]
        listed = list(self.values.tolist())
        for i in np.flatnonzero(self.missing):
            listed[i] = None
        return listed

    def coded(self) -> tuple[list[Any], NDArray[np.intp]]:
        """Distinct values, and (n,) which of them each row has, -1 where it has none."""
        if self.levels is not None:
            return self.levels, np.where(self.missing, -1, self.values)
        codes = np.full(len(self), -1, dtype=np.intp)
        found, codes[~self.missing] = np.unique(self.values[~self.missing], return_inverse=True)
        return found.tolist(), codes

    def keys(self) -> NDArray[Any]:
        """(n,) numbers that are equal where the values are."""
        if self.levels is None:
            return self.values
        first: dict[Any, int] = {}
        try:
            same = [first.setdefault(level, i) for i, level in enumerate(self.levels)]
        except TypeError:  # values that cannot be hashed
            return self.values
        return np.asarray(np.array(same)[self.values])

    @property
    def counts(self) -> NDArray[np.intp]:
        """How many rows have each of the distinct values."""
        return np.bincount(self.values, minlength=len(self.levels or ()))

    @property
    def texts(self) -> list[str]:
        """Distinct values that are text."""
        return [level for level in self.levels or () if isinstance(level, str)]


Columns = dict[str, Column]


@dataclass(frozen=True, eq=False)
class TaskLabels:
    """Which task each row belongs to: ``codes`` (n,) into ``names``; -1 without a task."""

    codes: NDArray[np.intp]
    names: tuple[str, ...]

    @classmethod
    def of(cls, column: Column, notes: list[str]) -> TaskLabels:
        """1 and "1" in one column may be one task or two, and are refused.

        Labels that differ only in case or spaces are one task, with a note.
        """
        levels, codes = column.coded()
        present = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(levels)))
        labels: dict[str, Any] = {}
        spellings: dict[str, dict[str, None]] = {}
        for label in (levels[i] for i in present):
            if isinstance(label, dict | set | np.ndarray):
                raise InputError(f"a task is called {label!r}; expected text or numbers")
            other = labels.setdefault(str(label), label)
            if other != label:
                raise InputError(
                    f"task labels {other!r} and {label!r} are written alike; expected labels of "
                    "one type, or two that differ as text"
                )
            spellings.setdefault(" ".join(str(label).split()).casefold(), {})[str(label)] = None
        names = [next(iter(several)) for several in spellings.values()]
        index = {label: i for i, several in enumerate(spellings.values()) for label in several}
        twins = [list(several) for several in spellings.values() if len(several) > 1]
        if twins:
            shown = " and ".join(map(repr, twins[0]))
            more = f" (and {len(twins) - 1} more)" if len(twins) > 1 else ""
            notes.append(f"task labels {shown} differ only in case or spaces: one task{more}")
        # The last entry is for the code -1.
        table = np.full(len(levels) + 1, -1, dtype=np.intp)
        table[present] = [index[str(levels[i])] for i in present]
        return cls(table[codes], tuple(names))


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse a table with two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{where} has several columns {name!r}; expected every name once")
        seen.add(name)


def numbered(names: Sequence[str]) -> list[str]:
    """The names, with a number where several are the same."""
    times, taken = Counter(names), set(names)
    numbers = {name: count(1) for name in times}
    found = []
    for name in names:
        if times[name] > 1:
            name = next(new for i in numbers[name] if (new := f"{name} ({i})") not in taken)
        found.append(name)
    return found


def grouped(codes: NDArray[np.intp]) -> list[tuple[int, NDArray[np.intp]]]:
    """The rows of every code, in the order in which the codes first appear."""
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    # Without rows, NumPy makes one part of them.
    groups = zip(found.tolist(), np.split(order, starts[1:]), strict=False)
    return sorted(groups, key=lambda group: int(group[1][0]))


def counts_rows(column: Column) -> bool:
    """Whether its whole numbers are first, first + 1, ..., each in one row of the table.

    Rows that were added later may have none.
    """
    present = column.take(~column.missing)
    n = len(present)
    if n < MIN_ROWS or 2 * n <= len(column) or present.dtype.kind not in "iu":
        return False
    return int(present.max()) - int(present.min()) == n - 1 and len(np.unique(present)) == n


def numbers_rows(name: str, column: Column) -> bool:
    """Whether it only says where in the table a row is: an index, or a running number."""
    return bool(UNNAMED.fullmatch(name)) or counts_rows(column)


# Lines of a table that are no rows of it


def header_at(lines: Sequence[Sequence[Any]]) -> int:
    """Which line is the header: the first with several cells, or the first of all.

    Fewer cells than in the lines below are part of a title.
    """
    filled = [[cell for cell in line if not is_empty(cell)] for line in lines]
    present = [i for i, cells in enumerate(filled) if cells]
    near = filled[: present[0] + TITLE_ROWS + 1] if present else []
    widest = max(map(len, near), default=0)
    for i in present:
        if i > present[0] + TITLE_ROWS:  # a single column has a single name
            break
        following = next((lines[k] for k in present if k > i), None)
        comment = str(filled[i][0]).startswith(COMMENT) and following is not None
        if comment and len(following or ()) != len(lines[i]):
            continue
        if len(filled[i]) > max(1, TITLE * widest):
            return i
    return present[0] if present else 0


def is_header(cells: Sequence[Any], header: Sequence[str]) -> bool:
    """Whether a line repeats the header, without columns that were added later."""
    names = ["" if cell is None else str(cell).strip() for cell in cells]
    same = [name == said for name, said in zip(names, header, strict=False) if name]
    return len(same) > 1 and all(same)


def is_units(cells: Sequence[Any], below: Sequence[Sequence[Any]]) -> bool:
    """Whether the line below a header holds units: texts above numbers, and nothing above texts."""
    rows = list(below[:LOOKED_AT])
    if not rows:
        return False
    units = 0
    for k, cell in enumerate(cells):
        column = [row[k] for row in rows if k < len(row) and not is_empty(row[k])]
        # Not all of them: a run may have failed, and people write 2,5 eq below eq as well.
        numbers = any(_is_number(v) or (split_unit(str(v)) or ("", ""))[1] == cell for v in column)
        if is_empty(cell) or cell == "-":
            continue
        if not numbers or _is_number(cell) or not _UNIT.fullmatch(str(cell).strip()):
            return False
        units += 1
    return units > 0


def units_note(cells: Sequence[Any]) -> list[str]:
    """A note on the units below a header, where there are any."""
    units = ", ".join(str(cell) for cell in cells if not is_empty(cell))
    return [f"units below the header are not read: {units}"] if units else []


def _is_number(cell: Any) -> bool:
    return is_numeric(cell) or (isinstance(cell, str) and as_number(cell) is not None)
