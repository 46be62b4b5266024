"""Text that people type, as values of a space."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Space
from metakel.space.parameters import own_value


def typed(space: Space, name: str, value: Any) -> Any:
    """The value of a parameter that some text or number stands for."""
    parameter = space[name]
    if isinstance(parameter, Categorical | Ordinal | Fixed):
        known = (parameter.value,) if isinstance(parameter, Fixed) else parameter.values
        meant = own_value(known, value)
        return next((v for v in known if v == meant or str(v) == str(meant)), meant)
    assert isinstance(parameter, Float)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"parameter {name!r} is {value!r}; expected {parameter.describe()}"
        ) from None
    whole = isinstance(parameter, Integer) and isfinite(number) and number == round(number)
    return round(number) if whole else number


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
