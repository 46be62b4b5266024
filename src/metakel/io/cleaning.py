"""Columns that are nearly numbers: settled with a note, or refused by the cell that is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from metakel.errors import Hint, InputError
from metakel.io.frames import missing
from metakel.io.parsing import (
    FAILED,
    MISSING,
    comma_note,
    decimal_commas,
    first_comma,
    is_number,
    number_in,
    typed,
    word_of,
)
from metakel.space import Fixed, Float, Space

# With this share of numbers among its cells, a column was meant to hold numbers.
MOSTLY = 0.8

# A number with something to it: a unit, a per cent sign, marks between thousands.
_NEARLY = re.compile(r"\s*[+-]?\d[\d.,']*\D*").fullmatch

Place = Callable[[int], str]
Meaning = Literal["numbers", "choices", "unsaid"]


def meaning(name: str, space: Space | None, categories: Sequence[str]) -> Meaning:
    """What the caller says that a column holds."""
    if name in categories:
        return "choices"
    if space is None:
        return "unsaid"
    parameter = space[name]
    if isinstance(parameter, Float):
        return "numbers"
    known = (
        [parameter.value] if isinstance(parameter, Fixed) else getattr(parameter, "values", [None])
    )
    return "numbers" if all(is_number(value) for value in known) else "choices"


def settled(
    name: str, values: Sequence[Any], said: Meaning, place: Place
) -> tuple[list[Any], tuple[str, ...]]:
    """An input column, with its texts as numbers where they are, and notes on that."""
    written = [v for v in values if isinstance(v, str)]
    if not written or said == "choices":
        return list(values), ()
    present = [v for v in values if not _no_value(v)]
    numbers = [number_in(v) for v in present]
    like_numbers = sum(number is not None for number in numbers)
    if like_numbers and all(_plain_number(v) for v in present):
        if said == "unsaid" and len(written) == len([v for v in values if not missing(v)]):
            return list(values), (f"{name} holds numbers written as text, taken as choices",)
        return _merged(values, typed(written)), (f"{name} holds numbers written as text",)
    commas = decimal_commas(written)
    if commas is not None and all(is_number(v) for v in present if not isinstance(v, str)):
        return _merged(values, commas), (comma_note({name: first_comma(written)}),)
    mostly = 0 < MOSTLY * len(present) <= like_numbers
    if present and (said == "numbers" or mostly):
        raise _refused(name, values, sum(map(_plain_number, present)), said, place)
    return list(values), _nearly_note(name, present, like_numbers)


def outputs(
    name: str, values: Sequence[Any], place: Place
) -> tuple[list[float | None], tuple[str, ...]]:
    """The output column as numbers, None where a run failed, and notes on how it was read."""
    notes = []
    words = [v for v in values if _says_failed(v)]
    if words:
        shown = ", ".join(map(repr, dict.fromkeys(words)))
        rows = "1 row" if len(words) == 1 else f"{len(words)} rows"
        notes.append(f"{name} says {shown} in {rows}, counted as failed")
    if any(isinstance(v, bool) for v in values):
        notes.append(f"{name} holds true and false, taken as 1 and 0")
    known = [None if _no_value(v) or _says_failed(v) else v for v in values]
    written = [v for v in known if isinstance(v, str)]
    commas = decimal_commas(written)
    if commas is not None:
        notes.append(comma_note({name: first_comma(written)}))
        known = _merged(known, commas)
    found: list[float | None] = []
    for i, value in enumerate(known):
        try:
            found.append(None if value is None else float(value))
        except (TypeError, ValueError):
            raise InputError(
                f"output column {name!r} holds {value!r} in {place(i)}; expected numbers, or "
                "nothing or a word such as 'failed' for a run that gave none"
            ) from None
    return found, tuple(notes)


def _refused(
    name: str, values: Sequence[Any], good: int, said: Meaning, place: Place
) -> InputError:
    i = next(i for i, v in enumerate(values) if not _no_value(v) and not _plain_number(v))
    among = f", among {good} numbers" if good else ""
    doubt = (
        "" if number_in(values[i]) is None else " (decimals or thousands? write a point or none)"
    )
    other_meaning = (
        Hint("declare it as choices", f"categories=[{name!r}]", f"--category {name!r}"),
        Hint("leave it out", "inputs=[...]", "--input NAME"),
    )
    return InputError(
        f"column {name!r} holds {values[i]!r} in {place(i)}{among}; expected numbers{doubt}: fix "
        "the cell, or empty it if the value is not known",
        *(other_meaning if said == "unsaid" else ()),
    )


def _nearly_note(name: str, present: Sequence[Any], like_numbers: int) -> tuple[str, ...]:
    """On cells such as '8 h' or '1,110.0', where nearly all are like that."""
    near = [v for v in present if isinstance(v, str) and number_in(v) is None and _NEARLY(v)]
    if not near or len(near) + like_numbers < MOSTLY * len(present):
        return ()
    return (f"{name} holds {near[0]!r}, which is no plain number: its values are taken as choices",)


def _no_value(value: Any) -> bool:
    return missing(value) or (isinstance(value, str) and word_of(value) in MISSING)


def _says_failed(value: Any) -> bool:
    return isinstance(value, str) and word_of(value) in FAILED


def _plain_number(value: Any) -> bool:
    return number_in(value) is not None and not (isinstance(value, str) and "," in value)


def _merged(values: Sequence[Any], read: Sequence[Any]) -> list[Any]:
    """The values, with what was read in the places of the texts."""
    numbers = iter(read)
    return [next(numbers) if isinstance(v, str) else v for v in values]
