"""What people type: options that several commands share, and text as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel._arrays import is_number
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.optimize.model import NothingToAsk
from metakel.space import Parameter, Space
from metakel.space.configurations import quantity
from metakel.tuner import Tuner

PriorPath = Annotated[
    Path, typer.Argument(help="The file that `metakel learn` wrote, or library:NAME[:METRIC].")
]
OutputColumn = Annotated[str, typer.Option(help="Column with the measured value.")]
NoParameter = Annotated[
    list[str] | None, typer.Option(help="A column that is no parameter, or several (a,b).")
]
Minimize = Annotated[
    bool | None,
    typer.Option(
        "--minimize/--maximize",
        help="Whether smaller is better. [default: larger, asked for a loss]",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Separates cells, such as ';' or tab. [default: the header decides]"),
]
TaskColumn = Annotated[str, typer.Option(help="Column that names the past task.")]
Sheets = Annotated[
    list[str] | None,
    typer.Option(
        "--sheet",
        help="Sheet of a workbook, or several, each a task where no column names it; '*' for all "
        "with the output. [default: the first with a table]",
    ),
]
Rename = Annotated[
    list[str] | None,
    typer.Option(help="old=new: another name of a column, where tables differ in it."),
]
JournalArgument = Annotated[
    Path, typer.Argument(help="The journal of `metakel suggest` or `metakel tune`.")
]
JournalPath = Annotated[Path | None, typer.Option(help="Journal to continue or to begin.")]
CandidatesPath = Annotated[
    Path | None,
    typer.Option(
        "--candidates",
        help="Table with the only configurations that can be tried, one in a row; columns that "
        "are no parameters are ignored. Certificates are then about these.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]


def assignments(space: Space, texts: Sequence[str]) -> dict[str, Any]:
    """Parameters from ``name=value``."""
    return {name: space.parse(name, value) for name, value in map(partial(_said, space), texts)}


def _said(space: Space, text: str) -> tuple[str, str]:
    """The name and the value of ``name=value``."""
    # Names may hold "=" themselves, so the longest name that fits is meant.
    names = [name for name in space.names if text.startswith(f"{name}=")]
    if not names:
        known = ", ".join(space.names)
        raise InputError(f"found {text!r}; expected name=value with a name among {known}")
    name = max(names, key=len)
    return name, text[len(name) + 1 :]


_RANGE = re.compile(r"(.+?)=\s*(.+?)\s*\.\.\s*(.+?)\s*").fullmatch


def read_space(
    space: Space,
    ranges: Sequence[str] | None,
    exclude: Sequence[str] | None,
    sums: Sequence[str] | None,
) -> Space | None:
    """The space within ``name=low..high``, without ``name=value`` and with sums.

    None where none is said.
    """
    if not ranges and not exclude and not sums:
        return None
    narrowed: dict[str, tuple[float, float]] = {}
    for text in ranges or ():
        parts = _RANGE(text)
        low, high = (quantity(parts[2]), quantity(parts[3])) if parts else (None, None)
        if parts is None or low is None or high is None:
            raise InputError(f"--range {text!r}; expected name=low..high, as in rate=0.001..0.1")
        narrowed[parts[1]] = low, high
    gone: dict[str, list[Any]] = {}
    for name, value in map(partial(_said, space), exclude or ()):
        gone.setdefault(name, []).extend(_choices_meant(space[name], value))
    return space.restricted(narrowed, gone, sums or ())


def _choices_meant(parameter: Parameter, said: str) -> list[Any]:
    """The choices that a text names: one, several with commas, or numbers ``low..high``."""
    known, ends = parameter.choices, said.split("..")
    if not known or parameter.parse(said) in known:
        return [said]
    low, high = map(quantity, ends) if len(ends) == 2 else (None, None)
    if low is not None and high is not None:
        return [v for v in known if is_number(v) and low <= v <= high] or [said]
    return [parameter.parse(part.strip()) for part in said.split(",")]


def read_named_numbers(texts: Sequence[str] | None, option: str) -> dict[str, float]:
    """Numbers from ``name=value``."""
    found = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        number = quantity(value) if equals else None
        if number is None:
            raise InputError(f"{option} {text!r}; expected name=number")
        found[name] = number
    return found


def why_stopped(tuner: Tuner, error: Alarm | NothingToAsk) -> str:
    """Why nothing is asked for, in the words of the command line."""
    if isinstance(error, NothingToAsk):
        return error.as_typed()
    reason = tuner.alarm.reason if tuner.alarm is not None else str(error)
    return (
        f"alarm: {reason}. Nothing is promised of untried configurations now. Find out why; "
        "--accept-alarm goes on with wider bounds"
    )
