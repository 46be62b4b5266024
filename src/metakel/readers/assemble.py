"""From columns to numeric tasks: what is an input, what is missing, what was counted out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.readers.frames import Columns
from metakel.space import Space, infer_space

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Report:
    """What was read and what was left out, so that nothing is dropped in silence."""

    source: str
    task: str
    output: str
    minimize: bool
    rows: int
    kept: int
    failed: int = 0
    missing_inputs: int = 0
    missing_tasks: int = 0
    duplicates: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "minimise" if self.minimize else "maximise"
        counted = {
            "failed or without a finite output": self.failed,
            "with a missing input": self.missing_inputs,
            "without a task": self.missing_tasks,
            "exact copies of another row": self.duplicates,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counted.items() if count)
        head = f"read {self.kept} of {self.rows} rows from {self.source} ({verb} {self.output})"
        lines = [head + (f"; left out: {left_out}" if left_out else "")]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True, eq=False)
class Intake:
    """Numeric rows: ``X`` (n, d0), ``y`` (n,) larger is better, ``labels`` of the tasks."""

    X: Array
    y: Array
    labels: list[str]
    space: Space
    report: Report


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


def assemble(
    columns: Columns, wanted: Wanted, *, source: str, failed: int = 0, notes: Sequence[str] = ()
) -> Intake:
    """Rows that can be used, as numbers, with a report on the others.

    ``failed`` rows the reader left out itself; its ``notes`` come first in the report.
    """
    _check_columns(columns, wanted)
    names, found = _inputs(columns, wanted)
    notes = (*notes, *found)
    total = len(columns[wanted.output])
    table = {name: _filled(columns[name], wanted.defaults.get(name)) for name in names}
    _refuse_missing_parameters(table, columns[wanted.task])
    counts = {"failed": failed, "missing_inputs": 0, "missing_tasks": 0, "duplicates": 0}
    kept: dict[tuple[Any, ...], int] = {}
    for i, (task, value) in enumerate(
        zip(columns[wanted.task], columns[wanted.output], strict=True)
    ):
        row = tuple(table[name][i] for name in names)
        if _missing(task):
            counts["missing_tasks"] += 1
        elif _missing(value) or not isfinite(float(value)):
            counts["failed"] += 1
        elif any(_missing(v) for v in row):
            counts["missing_inputs"] += 1
        elif (task, value, *row) in kept:
            counts["duplicates"] += 1
        else:
            kept[task, value, *row] = i
    rows = list(kept.values())
    if not rows:
        raise InputError(f"{source}: none of the {total} rows can be used ({counts})")
    usable = {name: [table[name][i] for i in rows] for name in names}
    space = wanted.space
    if space is None:
        space, guesses = infer_space(usable, log=wanted.log)
        notes = (*notes, *guesses)
    sign = -1.0 if wanted.minimize else 1.0
    return Intake(
        X=space.encode(usable),
        y=sign * np.array([float(columns[wanted.output][i]) for i in rows]),
        labels=[str(columns[wanted.task][i]) for i in rows],
        space=space,
        report=Report(
            source,
            wanted.task,
            wanted.output,
            wanted.minimize,
            total + failed,
            len(rows),
            notes=tuple(notes),
            **counts,
        ),
    )


def _check_columns(columns: Columns, wanted: Wanted) -> None:
    asked = [wanted.task, wanted.output, *(wanted.inputs or ())]
    for name in asked:
        if name not in columns:
            raise InputError(f"no column {name!r}; found {', '.join(columns)}")
    values = [v for v in columns[wanted.output] if not _missing(v)]
    text = next((v for v in values if isinstance(v, str)), None)
    if text is not None:
        raise InputError(f"output column {wanted.output!r} holds {text!r}; expected numbers")


def _inputs(columns: Columns, wanted: Wanted) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Input columns: as given, by the space, or all that are not descriptions of the task."""
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
    differ = len({v for v in values if not _missing(v)}) > 1
    return differ and all(
        _missing(v) or seen.setdefault(t, v) == v for t, v in zip(tasks, values, strict=True)
    )


def _refuse_missing_parameters(table: Columns, tasks: Sequence[Any]) -> None:
    """A parameter that whole tasks lack cannot be compared over tasks."""
    for name, values in table.items():
        has = {task for task, value in zip(tasks, values, strict=True) if not _missing(value)}
        lacking = [str(t) for t in dict.fromkeys(tasks) if not _missing(t) and t not in has]
        if lacking:
            shown = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
            raise InputError(
                f"input {name!r} is missing in every row of {len(lacking)} tasks ({shown}); tasks "
                f"of a history share their inputs: give what they used by defaults={{{name!r}: "
                "value}, or name the inputs they share by inputs=[...]"
            )


def _filled(values: Sequence[Any], default: Any) -> list[Any]:
    return [default if _missing(v) else v for v in values] if default is not None else list(values)


def _missing(value: Any) -> bool:
    return value is None or value != value
