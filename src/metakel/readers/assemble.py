"""From columns to numeric tasks: what is an input, what is missing, what was counted out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.readers.files import MISSING
from metakel.readers.frames import Columns, missing
from metakel.readers.wanted import Wanted, check_columns, input_columns
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


def assemble(
    columns: Columns, wanted: Wanted, *, source: str, failed: int = 0, notes: Sequence[str] = ()
) -> Intake:
    """Rows that can be used, as numbers, with a report on the others.

    ``failed`` rows the reader left out itself; its ``notes`` come first in the report.
    """
    check_columns(columns, wanted)
    names, found = input_columns(columns, wanted)
    notes = (*notes, *found, *_words_kept(columns, (wanted.task, *names)))
    total = len(columns[wanted.output])
    table = {name: _filled(columns[name], wanted.defaults.get(name)) for name in names}
    _refuse_missing_parameters(table, columns[wanted.task])
    counts = {"failed": failed, "missing_inputs": 0, "missing_tasks": 0, "duplicates": 0}
    kept: dict[tuple[Any, ...], int] = {}
    for i, (task, value) in enumerate(
        zip(columns[wanted.task], columns[wanted.output], strict=True)
    ):
        row = tuple(table[name][i] for name in names)
        if missing(task):
            counts["missing_tasks"] += 1
        elif missing(value) or not isfinite(float(value)):
            counts["failed"] += 1
        elif any(missing(v) for v in row):
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
        whole = [name for name in names if _made_floats(columns[name], usable[name])]
        usable |= {name: [int(v) for v in usable[name]] for name in whole}
        space, guesses = infer_space(usable, log=wanted.log)
        notes = (*notes, *guesses, *(_whole_note(name) for name in whole))
    sign = -1.0 if wanted.minimize else 1.0
    return Intake(
        X=space.encode(usable),
        y=sign * np.array([float(columns[wanted.output][i]) for i in rows]),
        labels=_labels([columns[wanted.task][i] for i in rows]),
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


def _refuse_missing_parameters(table: Columns, tasks: Sequence[Any]) -> None:
    """A parameter that whole tasks lack cannot be compared over tasks."""
    for name, values in table.items():
        has = {task for task, value in zip(tasks, values, strict=True) if not missing(value)}
        lacking = [str(t) for t in dict.fromkeys(tasks) if not missing(t) and t not in has]
        if lacking:
            shown = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
            raise InputError(
                f"input {name!r} is missing in every row of {len(lacking)} tasks ({shown}); tasks "
                f"of a history share their inputs: give what they used by defaults={{{name!r}: "
                "value}, or name the inputs they share by inputs=[...]"
            )


def _filled(values: Sequence[Any], default: Any) -> list[Any]:
    return [default if missing(v) else v for v in values] if default is not None else list(values)


def _labels(found: Sequence[Any]) -> list[str]:
    """Tasks by name; 1 and "1" in one column may be one task or two, and are refused."""
    named: dict[str, Any] = {}
    for label in found:
        other = named.setdefault(str(label), label)
        if other != label:
            raise InputError(
                f"task labels {other!r} and {label!r} are written alike; expected labels of one "
                "type, or two that differ as text"
            )
    return [str(label) for label in found]


def _words_kept(columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
    """Notes on texts that mean a missing value elsewhere."""
    notes = []
    for name in names:
        texts = dict.fromkeys(v for v in columns[name] if isinstance(v, str))
        words = [text for text in texts if text.strip().lower() in MISSING]
        if words:
            shown = ", ".join(map(repr, words))
            notes.append(f"{name} has the text {shown}, taken as a value and not as missing")
    return tuple(notes)


def _made_floats(recorded: Sequence[Any], usable: Sequence[Any]) -> bool:
    """Whether whole numbers became floats only to make room for missing ones."""
    return (
        any(missing(v) for v in recorded)
        and any(isinstance(v, float) for v in usable)
        and all(isinstance(v, (int, float)) and float(v).is_integer() for v in usable)
    )


def _whole_note(name: str) -> str:
    return (
        f"{name} is taken as whole numbers, as all its values are but the missing ones "
        "(space= says otherwise)"
    )
