"""What the caller says about the columns, and which of them are inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metakel.errors import InputError
from metakel.readers.frames import Columns, missing
from metakel.space import Space


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

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str):
            raise InputError(
                f"inputs is the text {self.inputs!r}; expected names in a list: [{self.inputs!r}]"
            )


def check_columns(columns: Columns, wanted: Wanted) -> None:
    """Refuse names that no column has, and an output that is not a number."""
    for name in (wanted.task, wanted.output, *(wanted.inputs or ()), *wanted.defaults):
        if name not in columns:
            raise InputError(f"no column {name!r}; found {', '.join(columns)}")
    values = [v for v in columns[wanted.output] if not missing(v)]
    text = next((v for v in values if isinstance(v, str)), None)
    if text is not None:
        raise InputError(f"output column {wanted.output!r} holds {text!r}; expected numbers")


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
    if len(set(tasks)) == len(tasks):  # one row per task: nothing to tell them apart by
        return tuple(others), ()
    describing = [name for name in others if _constant_in_tasks(columns[name], tasks)]
    kept = tuple(name for name in others if name not in describing)
    notes = tuple(
        f"{name} has one value in every task and is not taken as an input" for name in describing
    )
    if not kept:
        raise InputError(f"no column varies within a task; found {', '.join(columns)}")
    return kept, notes


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
