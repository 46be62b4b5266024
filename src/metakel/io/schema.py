"""What the caller says about the columns, and which of them are inputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metakel.errors import InputError
from metakel.io.frames import Columns, missing
from metakel.space import Space

# How pandas calls a column without a name, such as an index that was saved.
_UNNAMED = re.compile(r"\s*|Unnamed: \d+")
# Fewer rows than that may hold 1, 2, 3, ... by intent.
FEWEST_COUNTED = 10

# What the caller may say besides; `History.from_frame` explains them.
OPTIONS = ("inputs", "minimize", "log", "space", "defaults", "categories", "extrapolate")


@dataclass(frozen=True)
class Wanted:
    """What the caller says about the columns; the rest is found out."""

    task: str
    output: str
    inputs: Sequence[str] | None = None
    minimize: bool = False
    log: Collection[str] | None = None
    space: Space | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    categories: Sequence[str] = ()
    extrapolate: bool = False

    def __post_init__(self) -> None:
        for option in ("inputs", "categories"):
            names = getattr(self, option)
            if isinstance(names, str):
                raise InputError(
                    f"{option} is the text {names!r}; expected names in a list: [{names!r}]"
                )
        if self.space is not None and self.categories:
            raise InputError("categories beside a space: the space says which columns hold choices")


def check_columns(columns: Columns, wanted: Wanted) -> None:
    """Refuse names that no column has."""
    inputs, choices = wanted.inputs or (), wanted.categories
    for name in (wanted.task, wanted.output, *inputs, *choices, *wanted.defaults):
        if name not in columns:
            raise InputError(f"no column {name!r}; found {', '.join(columns)}")


def input_columns(columns: Columns, wanted: Wanted) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the inputs, and notes on the columns that are none."""
    names, notes = _inputs(columns, wanted)
    _check_roles(wanted, names)
    return names, notes


def _inputs(columns: Columns, wanted: Wanted) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As given, by the space, or all that are not descriptions of the task."""
    if wanted.inputs is not None:
        return tuple(wanted.inputs), ()
    if wanted.space is not None:
        return tuple(name for name in wanted.space.names if name in columns), ()
    others = [name for name in columns if name not in (wanted.task, wanted.output)]
    tasks = columns[wanted.task]
    notes = {name: "has no name of its own" for name in others if _UNNAMED.fullmatch(name)}
    several = len(set(tasks)) > 1
    notes |= {n: "is a running number" for n in others if several and _counts_rows(columns[n])}
    if len(set(tasks)) < len(tasks):  # with one row per task there is nothing to tell them apart by
        describing = [name for name in others if _constant_in_tasks(columns[name], tasks)]
        notes |= dict.fromkeys(describing, "has one value in every task")
    kept = tuple(name for name in others if name not in notes)
    if not kept:
        raise InputError(f"no column varies within a task; found {', '.join(columns)}")
    return kept, tuple(
        f"{name} {why} and is not taken as an input, unless it is named as one"
        for name, why in notes.items()
    )


def _counts_rows(values: Sequence[Any]) -> bool:
    """Whether its whole numbers are first, first + 1, ..., each in one row of the table."""
    if len(values) < FEWEST_COUNTED or not all(isinstance(v, int) for v in values):
        return False
    return set(values) == set(range(min(values), min(values) + len(values)))


def _constant_in_tasks(values: Sequence[Any], tasks: Sequence[Any]) -> bool:
    seen: dict[Any, Any] = {}
    differ = len({v for v in values if not missing(v)}) > 1
    return differ and all(
        missing(v) or seen.setdefault(t, v) == v for t, v in zip(tasks, values, strict=True)
    )


def _check_roles(wanted: Wanted, inputs: Sequence[str]) -> None:
    """A column is the task, or the output, or one input."""
    roles: dict[str, str] = {}
    asked = [("the task", wanted.task), ("the output", wanted.output)]
    for role, name in (*asked, *(("an input", name) for name in inputs)):
        if name in roles:
            raise InputError(
                f"column {name!r} is named as {roles[name]} and as {role}; expected one of them"
            )
        roles[name] = role
