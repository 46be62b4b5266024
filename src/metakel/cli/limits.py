"""Limits that are typed, and configurations that a user vouches for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated, Any

import typer

from metakel.cli.console import note, short
from metakel.cli.values import assignments, quantity
from metakel.confidence import Alarm
from metakel.errors import InputError
from metakel.optimize import NoSafePoint
from metakel.optimize.limits import Range
from metakel.space import Space
from metakel.tuner import Tuner

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="What no run may violate, as in 'temperature <= 90'; also of the output itself. Only "
        "configurations are tried that respect all limits, with probability 1 - delta for the "
        "whole run. Confidence bounds then decide instead of the prior's mixture.",
    ),
]
Start = Annotated[
    list[str] | None,
    typer.Option(
        "--start",
        help="name=value,name=value of a configuration that you know to respect all limits. "
        "[default: past tasks vouch for some]",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="Probability with which the certificate may fail, or a limit be violated. "
        "[default: 0.2, with limits 0.1]"
    ),
]
AcceptAlarm = Annotated[
    bool,
    typer.Option("--accept-alarm", help="Go on after an alarm that has stopped a run with limits."),
]
_LIMIT = re.compile(r"\s*(.+?)\s*(<=|>=|≤|≥|<|>)\s*(.+?)\s*").fullmatch


def read_limits(texts: Sequence[str] | None) -> dict[str, tuple[float | None, float | None]]:
    """Pairs (smallest, largest) by output, from ``name <= value`` and ``name >= value``."""
    found: dict[str, Range] = {}
    for text in texts or ():
        parts = _LIMIT(text)
        number = None if parts is None else quantity(parts[3])
        if parts is None or number is None:
            raise InputError(f"--limit {text!r}; expected name <= number, or name >= number")
        name, low, high = parts[1], -inf, inf
        if parts[2] in ("<=", "≤", "<"):
            high = number
        else:
            low = number
        known = found.get(name, Range())
        found[name] = Range(max(known.low, low), min(known.high, high))
    pairs = ((name, allowed.to_list()) for name, allowed in found.items())
    return {name: (ends[0], ends[1]) for name, ends in pairs}


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


def announce(tuner: Tuner) -> None:
    """Say what a run with limits rests on."""
    limits = tuner.options.limits
    if not limits:
        return
    whose = "you vouch for" if limits.start else "past tasks vouch for"
    note(
        f"limits: {limits}. The search begins where {whose} it, and tries no configuration that "
        f"violates one, with probability {1 - tuner.options.delta:g} for the whole run"
    )


def why_stopped(tuner: Tuner, error: Alarm | NoSafePoint) -> str:
    """Why a run with limits asks for nothing, in the words of the command line."""
    if isinstance(error, Alarm):
        reason = tuner.alarm.reason if tuner.alarm is not None else str(error)
        return (
            f"alarm: {reason}. Nothing is promised of untried configurations now. Find out why; "
            "--accept-alarm goes on with wider bounds"
        )
    if not error.margin:
        return error.found
    return (
        f"{error.found}. Name configurations that you vouch for (--start), or accept a larger "
        "--delta"
    )


def violations(tuner: Tuner, value: float, outputs: Mapping[str, float]) -> list[str]:
    """Measured values beyond a limit; with noise, this alone is no violation."""
    measured = {tuner.output: value, **outputs}
    return [
        f"{name} {short(measured[name])} is not {allowed}"
        for name, allowed in tuner.options.limits.ranges.items()
        if name in measured and not allowed.low <= measured[name] <= allowed.high
    ]
