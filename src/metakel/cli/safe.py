"""Limits as people type them: the one file of the command line that knows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from metakel.cli.options import assignments
from metakel.errors import InputError
from metakel.priors import Prior
from metakel.safe import SafePrior
from metakel.space import Space
from metakel.space.configurations import quantity
from metakel.tuner import Source
from metakel.tuner.source import as_source

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
