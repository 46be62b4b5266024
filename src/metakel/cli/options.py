"""What people type: options that several commands share, and text as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from metakel._arrays import is_number
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.optimize.model import NothingToAsk
from metakel.priors import Prior
from metakel.safe import SafePrior
from metakel.space import Parameter, Space
from metakel.space.configurations import quantity
from metakel.tuner import Source, Tuner
from metakel.tuner.source import as_source

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
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="What no run may violate, as in 'temperature <= 90'; also of the output itself. Only "
        "configurations are tried that respect all limits, with probability 1 - delta for the "
        "whole run, if the learned kernels and noise levels hold. "
        "Confidence bounds then decide instead of the prior's mixture.",
        metavar="LIMIT",
        rich_help_panel="Promises",
    ),
]
Start = Annotated[
    list[str] | None,
    typer.Option(
        "--start",
        help="name=value,name=value of a configuration that you know to respect all limits. "
        "[default: past tasks vouch for some]",
        metavar="NAME=VALUE",
        rich_help_panel="Promises",
    ),
]
AlsoRecorded = Annotated[
    list[str] | None,
    typer.Option(
        "--limit-output",
        help="Column with another measured output, or several (a,b), or the output itself, "
        "that `metakel tune --limit` will limit.",
        metavar="COLUMN",
        rich_help_panel="Promises",
    ),
]
Noise = Annotated[
    list[str] | None,
    typer.Option(
        help="name=value: noise (standard deviation) of an output that will be limited. "
        "[default: what the first half of the tasks leaves unexplained]",
        metavar="NAME=VALUE",
        rich_help_panel="Promises",
    ),
]


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


# Limits


_LIMIT = re.compile(r"\s*(.+?)\s*(<=|>=|≤|≥|<|>)\s*(.+?)\s*").fullmatch


def read_limits(texts: Sequence[str] | None) -> dict[str, tuple[float | None, float | None]]:
    """Pairs (smallest, largest) by output, from ``name <= value`` and ``name >= value``."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for text in texts or ():
        parts = _LIMIT(text)
        number = None if parts is None else quantity(parts[3])
        if parts is None or number is None:
            raise InputError(f"--limit {text!r}; expected name <= number, or name >= number")
        low, high = found.get(parts[1], (None, None))
        if parts[2] in ("<=", "≤", "<"):
            found[parts[1]] = low, number if high is None else min(high, number)
        else:
            found[parts[1]] = number if low is None else max(low, number), high
    return found


def read_start(space: Space, texts: Sequence[str] | None) -> list[dict[str, Any]]:
    """Configurations from ``name=value,name=value``; every parameter that varies is named."""
    names = "|".join(re.escape(name) for name in sorted(space.names, key=len, reverse=True))
    rows = []
    for text in texts or ():
        parts = re.split(rf"\s*,\s*(?=(?:{names})=)", text.strip())
        row = assignments(space, parts)
        lacking = [name for name in space.free if name not in row]
        if lacking:
            raise InputError(f"--start {text!r} has no {', '.join(lacking)}; expected all of them")
        rows.append(row)
    return rows


def with_limits(prior: Prior, limit: Sequence[str] | None, start: Sequence[str] | None) -> Source:
    """The prior as a source of decisions, with the limits that were typed, if there are any."""
    rows = read_start(prior.space, start)
    if not limit and rows:
        raise InputError("--start is given without a limit; expected --limit, too")
    return SafePrior(prior, read_limits(limit), rows) if limit else as_source(prior)


def source_of_journal(prior: Prior, header: Mapping[str, Any]) -> Source:
    """The prior as a source of decisions, with the limits that a journal was begun with."""
    rules = header.get("rules", {})
    return SafePrior(prior, rules["limits"], rules["start"]) if rules else as_source(prior)
