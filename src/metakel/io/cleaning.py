"""Text as numbers: what is a number or missing, units, and columns that hold nearly numbers.

Columns are cleaned by their distinct values, not cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError
from metakel.io.columns import Column, Mask
from metakel.io.words import MISSING, is_share
from metakel.space.configurations import (
    as_number,
    has_decimal_comma,
    is_integer_text,
    is_missing,
    is_number_text,
    is_numeric,
    split_unit,
    ungrouped,
)

FLAGS = {"true": True, "false": False}
# A column with this share of numbers among its cells was meant to hold numbers.
MOSTLY = 0.8
LONGEST_INTEGER = 300
# A number that is far from all others of its column: so many values at least, a share of them (at
# least one) that may be odd, and how many ranges of all others it is away, linearly and in logs.
FEWEST, RARE, FAR, FAR_IN_LOGS = 10, 0.01, 10.0, 0.75
# Decimal points make a column span so many times as much as points between thousands do.
JUMP = 3.0
SENTINELS = 0.2  # the share of rows that may hold a number in place of a word, as -999

_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+").fullmatch
_POINTS = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]*)?").fullmatch
# A number with a unit, a per cent sign, or marks between thousands.
_NEARLY = re.compile(r"\s*[+-]?[0-9][0-9.,' ]*[^0-9]*").fullmatch

# A larger share of a column has a unit, or it is not known to be that of the other cells.
UNIT_SHARE = 0.5
# What is only known to be below or above a number, as in "<0.01".
BOUND = re.compile(r"\s*(<=?|>=?|≤|≥)\s*([^<>=≤≥]+)").fullmatch

# Where the row with an index is found: "row 3", "line 5 of runs.csv".
Place = Callable[[int], str]
Meaning = Literal["numbers", "choices", "unknown"]


def typed(cells: Sequence[str]) -> list[Any]:
    """Text as whole numbers, else numbers, else true and false, else text.

    An empty cell is None. In a column of numbers the other words of `MISSING` are None as well.
    """
    words = [normalized(cell) for cell in cells]
    present = [word for word in words if word not in MISSING]
    if not present and "nan" not in words:  # not one number
        return texts(cells)
    for kind, is_kind in ((_whole, is_integer_text), (float, is_number_text)):
        if all(map(is_kind, present)):
            return [None if word in MISSING else kind(word) for word in words]
    if all(word in FLAGS for word in words if word):
        return [FLAGS.get(word) for word in words]
    return texts(cells)


def _whole(word: str) -> int | float:
    """Python refuses to read very long integers; they are beyond all floats as well."""
    return int(word) if len(word) <= LONGEST_INTEGER else float(word)


def texts(cells: Sequence[str]) -> list[Any]:
    """Text without spaces around; an empty cell is None."""
    return [cell.strip() or None for cell in cells]


def normalized(text: str) -> str:
    """The text in the form in which it is compared with a list of words, or read as a number."""
    return ungrouped(text.strip().lower())


def decimal_commas(cells: Sequence[str], *, certain: bool = False) -> list[float | None] | None:
    """The numbers of a column that is written with decimal commas; None if it is not.

    A point in any cell speaks against it. So does a column in which every comma could separate
    thousands (1,234), unless another column makes it ``certain`` that commas are decimal. Then
    points before three digits separate thousands (1.050).
    """
    words = [normalized(cell) for cell in cells]
    present = [word for word in words if word not in MISSING]
    if certain and any(map(_POINTS, present)):
        words = [word.replace(".", "") if _POINTS(word) else word for word in words]
        present = [word for word in words if word not in MISSING]
    else:
        with_comma = [word for word in present if has_decimal_comma(word)]
        if not with_comma or (not certain and all(map(_THOUSANDS, with_comma))):
            return None
    if any("." in word or as_number(word) is None for word in present):
        return None
    return [None if word in MISSING else as_number(word) for word in words]


def read_texts(
    cells: Mapping[str, tuple[Sequence[str], NDArray[np.intp]]], notes: list[str]
) -> dict[str, Column]:
    """Columns of a file by their distinct texts and the index of each row's; notes say how.

    Where one column proves that commas are decimal, they are in the others, too, and points before
    three digits stand between thousands. A column may prove that by itself.
    """
    columns = {name: of_levels(typed(distinct), codes) for name, (distinct, codes) in cells.items()}
    marked = {n: c for n, (c, _) in cells.items() if any("," in cell or "." in cell for cell in c)}
    proved = any(decimal_commas(distinct) is not None for distinct in marked.values())
    certain = {n: c for n, c in marked.items() if proved or has_thousands(c)}
    read = {n: v for n, c in certain.items() if (v := decimal_commas(c, certain=True))}
    columns |= {name: of_levels(values, cells[name][1]) for name, values in read.items()}
    if commas := {n: marked[n] for n in read if any("," in cell for cell in marked[n])}:
        notes.append(comma_note(commas))
    for name, distinct in marked.items():
        points = [cell.strip() for cell in distinct if "." in cell]
        between = [cell for cell in points if _POINTS(cell)]
        if name in read and between:
            number = between[0].replace(".", "").replace(",", ".")
            notes.append(f"{name} has points between thousands: {between[0]} is read as {number}")
        elif name not in read and columns[name].levels is None and points == between != []:
            if any("," in cell for cell in distinct):
                continue
            shown = f"{name}: {points[0]} is read with a decimal point"
            notes.append(f"{shown}; if points stand between thousands, take them out")
    return columns


def of_levels(levels: list[Any], codes: NDArray[np.intp]) -> Column:
    """A column of distinct values and the index of each row's: numbers, where all are."""
    kinds = {type(level) for level in levels if level is not None}
    if kinds in ({int}, {float}):
        missing = np.array([level is None or level != level for level in levels], dtype=bool)
        try:
            known = [0 if level is None else level for level in levels]
            values = np.array(known, dtype=np.int64 if kinds == {int} else np.float64)
        except OverflowError:  # whole numbers of more than 64 bits
            return Column.of_levels(codes, levels)
        if kinds == {float}:
            values[missing] = np.nan
        return Column(values[codes], missing[codes])
    return Column.of_levels(codes, levels)


def has_thousands(cells: Sequence[str]) -> bool:
    """Whether points in a column stand between thousands, as in 950, 1.050 and 2.000.

    All numbers with a point have three digits after it, and with decimal points the column would
    span far more than it does with thousands.
    """
    words = [word for cell in cells if (word := normalized(cell)) not in MISSING]
    points = [word for word in words if "." in word]
    if not points or not all(map(_POINTS, points)):
        return False
    below = [as_number(word) for word in words if "." not in word]
    sizes = [abs(number) for number in below if number]
    if None in below or any(word.count(".") > 1 for word in points):
        return None not in below
    decimals, thousands = (
        [*sizes, *(abs(as_number(word.replace(".", mark)) or 1) for word in points)]
        for mark in (".", "")
    )
    return JUMP * max(thousands) / min(thousands) < max(decimals) / min(decimals)


def comma_note(columns: Mapping[str, Sequence[str]]) -> str:
    """A note on columns with decimal commas, from their texts by name."""
    name, *more = columns
    cell = next(text.strip() for text in columns[name] if "," in text)
    others = f" (also in {', '.join(more)})" if more else ""
    number = as_number(cell.replace(".", ""))
    return f"{name} has decimal commas: {cell} is read as {number:g}{others}"


def _is_empty(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and normalized(value) in MISSING)


def _is_number(value: Any) -> bool:
    return not _is_empty(value) and as_number(value) is not None


def recognized(levels: Sequence[Any]) -> tuple[Mask, Mask, Mask]:
    """Which values are missing ones, which are numbers, and which of these have no comma."""
    empty, number = (
        np.array(list(map(is_so, levels)), dtype=bool) for is_so in (_is_empty, _is_number)
    )
    return empty, number, number & np.array(["," not in str(v) for v in levels], dtype=bool)


def odd_one(column: Column, odd: Mask, number: Mask) -> tuple[int, str]:
    """The row of an odd value, and what may be meant, if it has a comma; rather of a word."""
    words = odd & ~number
    row = int(np.argmax((words if words.any() else odd)[column.values]))
    doubt = " (decimals or thousands? write a point or none)"
    return row, doubt if number[column.values[row]] else ""


def without_unit(name: str, column: Column) -> tuple[Column, str]:
    """The column without the one unit of its numbers, and that unit; "" where it has none.

    Cells without a unit may be among them: as most have it, as the name of the column says it, or
    as plain numbers above 1 are no shares, so that per cent is meant. Beside shares, as cells of a
    workbook in the format per cent are, a few cells with a per cent sign are shares, too.
    """
    levels = column.levels or []
    numbers: dict[str, str] = {}  # by the text that they are written in, without a unit
    signs = dict[str, str]()  # of bounds, as in "<5 %"
    units = set[str]()
    for text in levels:
        if not isinstance(text, str) or not any(map(str.isdigit, text)):
            continue
        bound = BOUND(text)
        sign, number = (bound[1], bound[2].strip()) if bound else ("", text)
        found = (number, "") if _is_number(number) else split_unit(number)
        if found is None or len(units | {found[1]} - {""}) > 1:
            return column, ""
        numbers[text], signs[text] = found[0], sign
        units |= {found[1]} - {""}
    if not units:
        return column, ""
    (unit,) = units
    bare = {text: signs[text] + number for text, number in numbers.items()}
    with_unit = column.counts[[isinstance(v, str) and bare.get(v, v) != v for v in levels]].sum()
    named = re.search(rf"(?<!\w){re.escape(unit)}(?!\w)", name)
    scale = 1.0
    if with_unit <= UNIT_SHARE * (~column.missing).sum() and not named:
        plain = np.abs([as_number(v) or 0.0 for v in levels if _is_number(v)])
        if unit != "%" or (np.median(plain) <= 1 and not (is_share(name) and plain.max() <= 1)):
            return column, ""
        scale = 1.0 if np.median(plain) > 1 else 100.0
    cells = list(numbers.values())
    commas = decimal_commas(cells, certain=has_thousands(cells))
    read = dict(zip(numbers, commas or typed(cells), strict=True))
    if any(isinstance(v, str) for v in read.values()):  # perhaps thousands
        return column, ""
    if scale != 1:
        signed = [text for text, number in bare.items() if number != text]
        read |= {text: float(f"{read[text] / scale:.15g}") for text in signed}
    read |= {text: f"{sign}{read[text]}" for text, sign in signs.items() if sign}
    values = [read.get(v, v) if isinstance(v, str) else v for v in levels]
    return Column.of([values[code] for code in column.values.tolist()]), unit


def clean_input(name: str, column: Column, said: Meaning, place: Place, notes: list[str]) -> Column:
    """An input column with text turned into numbers where it means numbers; notes say so."""
    levels, written = column.levels or [], column.texts
    mixed = any(isinstance(v, tuple | bool) for v in levels) and any(map(is_numeric, levels))
    if said == "choices" or not (written or mixed):
        return column
    empty, number, plain = recognized(levels)
    text = np.array([isinstance(v, str) for v in levels], dtype=bool)
    if number.any() and (empty | plain).all():
        if said == "unknown" and all(isinstance(v, str) or is_missing(v) for v in levels):
            notes.append(f"{name} holds numbers written as text, taken as choices")
            return column
        if (text & ~empty).any():
            notes.append(f"{name} holds numbers written as text")
        pairs = zip(written, typed(written), strict=True)
        return _replaced(column, [None if _is_empty(text) else value for text, value in pairs])
    commas = decimal_commas(written)
    if commas is not None and (empty | number | text).all():
        notes.append(comma_note({name: written}))
        return _replaced(column, commas)
    counts = column.counts
    present = counts[~empty].sum()
    if present and (said == "numbers" or 0 < MOSTLY * present <= counts[number].sum()):
        row, doubt = odd_one(column, ~empty & ~plain, number)
        count = int(counts[plain if doubt else number].sum())
        if isinstance(column[row], str) and column[row] == name:
            doubt = " (is it the header again?)"
        among = f", among {count} numbers" if count else ""
        choices = Hint("declare it as choices", f"categories=[{name!r}]", f"--category {name!r}")
        raise InputError(
            f"column {name!r} holds {column[row]!r} in {place(row)}{among}; expected numbers"
            f"{doubt}: correct the cell, or empty it if the value is not known",
            *([choices] if said == "unknown" else ()),
        )
    near = text & ~empty & ~number & np.array([bool(_NEARLY(str(v))) for v in levels], dtype=bool)
    if near.any() and counts[near | number].sum() >= MOSTLY * present:
        shown = repr(levels[int(np.argmax(near))])
        notes.append(
            f"{name} holds {shown}, which is no plain number: its values are taken as choices"
        )
    return column


def _replaced(column: Column, read: Sequence[Any]) -> Column:
    """The column with what was read in the places of its texts."""
    numbers = iter(read)
    levels = [next(numbers) if isinstance(v, str) else v for v in column.levels or ()]
    return Column.of_levels(column.values, levels)


def missing_words_note(name: str, column: Column) -> list[str]:
    """A note on texts of a column that mean a missing value elsewhere."""
    words = [repr(text) for text in column.texts if normalized(text) in MISSING]
    note = f"{name} has the text {', '.join(words)}, taken as a value and not as missing"
    return [note] if words else []


def odd_values(name: str, values: Array, place: Place) -> str:
    """A note on the few values that are far beyond all others; empty where there are none."""
    rows = np.flatnonzero(np.isfinite(values))
    if len(rows) < FEWEST:
        return ""
    order = rows[np.argsort(values[rows], kind="stable")]
    sorted_ = values[order]
    counts = {*range(1, max(1, int(RARE * len(rows))) + 1)}
    if len(np.unique(sorted_)) > FEWEST:  # no grid, so that one value many times may be a word
        alike = {int((sorted_ == end).sum()) for end in sorted_[[0, -1]]}
        counts |= {count for count in alike if count <= SENTINELS * len(rows)}
    for count in sorted(counts):
        for odd, others in ((order[-count:], sorted_[:-count]), (order[:count], sorted_[count:])):
            near = float(values[odd[0]] if values[odd[0]] > others[-1] else values[odd[-1]])
            if _far(near, float(others[0]), float(others[-1])):
                first = int(odd[0])
                more = f" and {count - 1} more" if count > 1 else ""
                return (
                    f"{name} is {values[first]:g} in {place(first)}{more}, and between "
                    f"{others[0]:g} and {others[-1]:g} in all other rows: is this right?"
                )
    return ""


def _far(value: float, low: float, high: float) -> bool:
    """Whether a value is far beyond a range, on a linear and on a log scale."""
    beyond = max(value - high, low - value)
    if high <= low or beyond <= FAR * (high - low):
        return False
    if low <= 0 or value <= 0:
        return True
    return max(log(value / high), log(low / value)) > FAR_IN_LOGS * log(high / low)
