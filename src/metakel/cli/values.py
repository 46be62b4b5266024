"""Text that people type, as values of a space."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from metakel.errors import InputError
from metakel.io.cleaning import as_number
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Space
from metakel.space.parameters import own_value

# 1,234 is a decimal number in one country and a thousand in another.
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(?![0-9])(\s*[^0-9\s].*)?").fullmatch
# A unit has no digits, as in "87,5 %" or "49.4 °C", so that a time of day is none.
_WITH_UNIT = re.compile(
    r"([+-]?[0-9.,]*[0-9][.,]?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9.,:+-][^0-9:]*)"
).fullmatch


def typed(space: Space, name: str, value: Any) -> Any:
    """The value of a parameter that some text or number stands for."""
    parameter = space[name]
    if isinstance(parameter, Categorical | Ordinal | Fixed):
        known = (parameter.value,) if isinstance(parameter, Fixed) else parameter.values
        meant = own_value(known, value)
        return next((v for v in known if v == meant or str(v) == str(meant)), meant)
    assert isinstance(parameter, Float)
    found = quantity(value)
    if found is None:
        raise InputError(f"parameter {name!r} is {value!r}; expected {parameter.describe()}")
    number = found
    whole = isinstance(parameter, Integer) and isfinite(number) and number == round(number)
    return round(number) if whole else number


def quantity(value: Any) -> float | None:
    """The number that people write: ``0.93``, ``0,93``, ``49,4 °C``; None for anything else."""
    if not isinstance(value, str):
        return None if value is None or isinstance(value, bool) else float(value)
    text = value.strip()
    if _THOUSANDS(text):
        raise InputError(
            f"found {text!r}, which may be {text.replace(',', '.')} or {text.replace(',', '')}; "
            "expected a decimal point, or no comma"
        )
    number = as_number(text)
    if number is None and (found := _WITH_UNIT(text)):
        return quantity(found[1])
    return number


def assignments(space: Space, texts: Sequence[str]) -> dict[str, Any]:
    """Parameters from ``name=value``."""
    found = {}
    for text in texts:
        # Names may hold "=" themselves, so the longest name that fits is meant.
        names = [name for name in space.names if text.startswith(f"{name}=")]
        if not names:
            known = ", ".join(space.names)
            raise InputError(f"found {text!r}; expected name=value with a name among {known}")
        name = max(names, key=len)
        found[name] = typed(space, name, text[len(name) + 1 :])
    return found
