"""Numbers as people write them: decimal points and commas, thousands, units."""

from __future__ import annotations

import re
from math import inf
from numbers import Real
from typing import Any

from metakel.errors import InputError

# Python also reads 1_000 and digits of other scripts as numbers; here they stay text.
is_integer_text = re.compile(r"[+-]?[0-9]+").fullmatch
is_number_text = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)"
).fullmatch
has_decimal_comma = re.compile(r"[+-]?([0-9]+,[0-9]*|,[0-9]+)(e[+-]?[0-9]+)?").fullmatch
# 1,234 is a decimal number in one country and a thousand in another.
is_ambiguous = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(?![0-9])(\s*[^0-9\s].*)?").fullmatch
# A unit has no digits, as in "87,5 %" or "49.4 °C", so that a time of day is none.
_WITH_UNIT = re.compile(
    r"([+-]?[0-9.,]*[0-9][.,]?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9.,:+-][^0-9:]*)"
).fullmatch


def is_numeric(value: Any) -> bool:
    """Whether it is a number already: text, true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_number(value: Any) -> float | None:
    """The number that a cell holds, with a decimal point or comma; None if it holds none."""
    if not isinstance(value, str):
        return as_float(value) if is_numeric(value) else None
    word = value.strip().lower()
    if has_decimal_comma(word):
        return float(word.replace(",", "."))
    return float(word) if is_number_text(word) else None


def as_float(value: Any) -> float | None:
    """A number as a float, infinite where it is beyond all floats; None if it is none."""
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return inf if value > 0 else -inf
    except (TypeError, ValueError):
        return None


def split_unit(text: str) -> tuple[str, str] | None:
    """The number and the unit of a text such as "87,5 %"; None where it is something else."""
    found = _WITH_UNIT(text.strip())
    return (found[1], found[2].strip()) if found else None


def quantity(value: Any) -> float | None:
    """The number that people write: ``0.93``, ``0,93``, ``49,4 °C``; None for anything else."""
    if not isinstance(value, str):
        return None if value is None or isinstance(value, bool) else as_float(value)
    text = value.strip()
    if is_ambiguous(text):
        raise InputError(
            f"found {text!r}, which may be {text.replace(',', '.')} or {text.replace(',', '')}; "
            "expected a decimal point, or no comma"
        )
    number = as_number(text)
    if number is None and (found := split_unit(text)):
        return quantity(found[0])
    return number
