"""Text of cells as values: numbers, true and false, or text, and what is no value at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

# Missing in a column of numbers. In a column of text "none" may be a choice like any other.
MISSING = frozenset({"", "na", "nan", "n/a", "#n/a", "null", "none"})
# What people write instead of an output when a run gave none; case does not matter.
FAILED = frozenset(
    {"failed", "fail", "failure", "error", "crash", "crashed", "timeout", "aborted", "killed"}
    | {"#div/0!", "#num!", "#value!"}
)
FLAGS = {"true": True, "false": False}

_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


def typed(cells: Sequence[str]) -> list[Any]:
    """Text as whole numbers, else numbers, else true and false, else text.

    An empty cell is None, in a column of numbers the other words of `MISSING` as well.
    """
    words = [word_of(cell) for cell in cells]
    present = [word for word in words if word not in MISSING]
    if not present and "nan" not in words:  # not one number
        return texts(cells)
    for kind in (int, float):
        try:
            for word in present:
                kind(word)
        except ValueError:
            continue
        return [None if word in MISSING else kind(word) for word in words]
    if all(word in FLAGS for word in words if word):
        return [FLAGS.get(word) for word in words]
    return texts(cells)


def texts(cells: Sequence[str]) -> list[Any]:
    """Without spaces around; an empty cell is None."""
    return [cell.strip() or None for cell in cells]


def word_of(text: str) -> str:
    """As it is compared with the words of a list."""
    return text.strip().lower()


def decimal_commas(cells: Sequence[str], *, sure: bool = False) -> list[float | None] | None:
    """The numbers of a column that is written with decimal commas; None if it is not.

    A point in any cell speaks against it. So does a column in which every comma could stand
    between thousands (1,234), unless one is ``sure`` of the commas from elsewhere.
    """
    words = [word_of(cell) for cell in cells]
    present = [word for word in words if word not in MISSING]
    marked = [word for word in present if _COMMA.fullmatch(word)]
    if not marked or not (sure or not all(map(_THOUSANDS.fullmatch, marked))):
        return None
    if any("." in word or number_in(word) is None for word in present):
        return None
    return [None if word in MISSING else number_in(word) for word in words]


def number_in(value: Any) -> float | None:
    """The number that a cell means, be it written with a decimal comma; None if it means none."""
    if not isinstance(value, str):
        return float(value) if is_number(value) else None
    word = word_of(value)
    try:
        return float(word.replace(",", ".") if _COMMA.fullmatch(word) else word)
    except ValueError:
        return None


def is_number(value: Any) -> bool:
    """Whether it is a number already: text is none, nor are true and false."""
    return isinstance(value, Real) and not isinstance(value, bool)


def comma_note(examples: dict[str, str]) -> str:
    """On columns with decimal commas, by name, with a cell of each."""
    name, cell = next(iter(examples.items()))
    others = f" (also in {', '.join(list(examples)[1:])})" if len(examples) > 1 else ""
    return f"{name} has decimal commas: {cell} is read as {number_in(cell):g}{others}"


def first_comma(cells: Sequence[Any]) -> str:
    """A cell that shows them."""
    return next(cell.strip() for cell in cells if isinstance(cell, str) and "," in cell)
