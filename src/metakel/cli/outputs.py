"""Text as values and outputs: what people type, and what a command prints as its result."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Annotated, Any

import typer

from metakel._arrays import is_number
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.optimize.model import NothingToAsk
from metakel.space import Parameter, Space
from metakel.space.text import quantity
from metakel.tuner import Tuner


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


# A number that stands alone or after its name, as in "0.93", "auc: 0.93" or "epoch 3, loss 0.2".
# After another number, as in 14:05:33, "1 234.5" or "- 0.5", it may be a part of something else.
# Digits are those of ASCII; 1_000 is a thousand, and 3_3 is the name of something.
DIGITS = r"(?:[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+)"
NUMBER = rf"[-+]?(?:{DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
VALUE = re.compile(
    rf"(?:^|(?:^|[\s:=,])(?:[^\W\d]|[(\['\"])[^\s:=,]*(?:\s*[:=,]\s*|\s+))({NUMBER})\s*$"
)


@dataclass(frozen=True)
class RunResult:
    """A value and what else was measured, or the reason why there is no value.

    ``curve`` has values by step, and ``stopped`` says that it ended the program early.
    """

    value: float | None
    reason: str = ""
    outputs: Mapping[str, float] = field(default_factory=dict)
    curve: Mapping[int, float] = field(default_factory=dict)
    stopped: bool = False


def read_result(text: str, objective: str = "", others: Sequence[str] = ()) -> RunResult:
    """The outputs that a program has printed.

    The last line is a JSON object of numbers by name; or there are lines such as
    ``temperature=71.3``, of which the last of each name counts; or the last line is the value of
    the only output, alone or after a name.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    found = _from_json(last)
    if found is None and others:
        found = {name: n for name in (objective, *others) if (n := _named(lines, name)) is not None}
        if objective not in found and re.fullmatch(NUMBER, last):
            found[objective] = float(last)
    if found is None:
        return read_value(last)
    return _chosen(found, objective, others, last)


def read_value(text: str) -> RunResult:
    """The number that a line is, or ends with after its name, as in ``0.93`` or ``auc: 0.93``."""
    found = VALUE.search(text)
    if found is None:
        what = f"found {text[:80]!r}" if text else "found nothing"
        return RunResult(
            None, f"{what}; expected a number, alone or after its name, as in loss: 0.25"
        )
    value = float(found[1])
    return RunResult(value) if isfinite(value) else RunResult(None, f"the value is {value}")


def _from_json(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _named(lines: Sequence[str], name: str) -> float | None:
    """The number of the last line that begins with a name."""
    line_of = re.compile(rf"{re.escape(name)}\s*[:=]\s*({NUMBER}|nan|[-+]?inf)", re.IGNORECASE)
    found = (match for line in reversed(lines) if (match := line_of.fullmatch(line)))
    match = next(found, None)
    return None if match is None else float(match[1])


def _chosen(
    found: Mapping[str, Any], objective: str, others: Sequence[str], last: str
) -> RunResult:
    numbers = {name: float(v) for name, v in found.items() if is_number(v)}
    lacking = [name for name in (objective, *others) if name not in numbers]
    if lacking:
        what = f"found {last[:80]!r}" if last else "found nothing"
        example = json.dumps(dict.fromkeys((objective, *others), 0.25))
        return RunResult(
            None,
            f"{what}; expected numbers for {', '.join(lacking)}: a JSON object as the last line, "
            f"as in {example}, or lines as in {lacking[0]}=0.25",
        )
    value = numbers.pop(objective)
    measured = {name: number for name, number in numbers.items() if isfinite(number)}
    if not isfinite(value):
        return RunResult(None, f"the value is {value}", measured)
    return RunResult(value, "", measured)


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
Sheet = Annotated[
    str | None, typer.Option(help="Sheet of a workbook. [default: the first with a table]")
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="Probability with which what is promised may fail, as the certificate. "
        "[default: 0.2, with --limit 0.1]"
    ),
]
AcceptAlarm = Annotated[
    bool,
    typer.Option("--accept-alarm", help="Go on after an alarm that has stopped the run."),
]


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
