"""Parameters that only some rows have, and None where it is a choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Any

from metakel.errors import Hint, InputError
from metakel.io.frames import Columns, missing
from metakel.space import Categorical, Fixed, Space

# A parameter that a trial did not have; None may be one of its choices.
ABSENT = float("nan")

Absence = Callable[[Any], bool]


def absence(name: str, space: Space | None) -> Absence:
    """What says that a row has no value of a parameter."""
    if space is not None and name in space.names:
        parameter = space[name]
        values = (parameter.value,) if isinstance(parameter, Fixed) else ()
        choices = parameter.values if isinstance(parameter, Categorical) else values
        if None in choices:
            return lambda value: value is not None and missing(value)
    return missing


def without_holes(
    space: Space, columns: Columns, rows: Sequence[int], defaults: Collection[str]
) -> tuple[Space, tuple[str, ...]]:
    """The parameters that all ``rows`` have, and notes on the others.

    The rows that happen to have a conditional parameter are no fair sample of all: to keep them
    alone would favour the choice that it belongs to.
    """
    kept, notes = [], []
    for parameter in space.parameters:
        name = parameter.name
        absent = absence(name, space)
        lacking = 0 if name in defaults else sum(absent(columns[name][i]) for i in rows)
        if not lacking:
            kept.append(parameter)
            continue
        notes.append(
            f"{name} is missing in {lacking} of {len(rows)} rows and is not taken as an input, "
            "unless a default says what they used"
        )
    if all(isinstance(parameter, Fixed) for parameter in kept):
        raise InputError(
            f"no parameter that varies is in every one of the {len(rows)} completed trials; found "
            f"{', '.join(space.names)}, each in some of them only",
            Hint("say what the others used", "defaults={name: value}", "--default NAME=VALUE"),
        )
    return Space(tuple(kept)), tuple(notes)


def finite(value: Any) -> bool:
    """Whether it is a number that can be learned from."""
    return not missing(value) and isfinite(value)
