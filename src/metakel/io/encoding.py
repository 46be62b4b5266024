"""From columns to numeric tasks: what is an input, what is missing, what was counted out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel.errors import Hint, InputError
from metakel.io.cleaning import Place, meaning, outputs, settled
from metakel.io.frames import Columns, missing
from metakel.io.missing import Absence, absence
from metakel.io.parsing import MISSING
from metakel.io.report import Report
from metakel.io.schema import Wanted, check_columns, input_columns
from metakel.space import Space, infer_space
from metakel.space.choices import own_value
from metakel.space.numbers import RANGE_SLACK

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Intake:
    """Numeric rows: ``X`` (n, d0), ``y`` (n,) larger is better, ``labels`` of the tasks."""

    X: Array
    y: Array
    labels: list[str]
    space: Space
    report: Report


def assemble(
    columns: Columns,
    wanted: Wanted,
    *,
    source: str,
    failed: int = 0,
    notes: Sequence[str] = (),
    place: Place = "row {}".format,
) -> Intake:
    """Rows that can be used, as numbers, with a report on the others.

    ``failed`` rows the reader left out itself; its ``notes`` come first in the report. ``place``
    says where a row is to be found.
    """
    check_columns(columns, wanted)
    names, found = input_columns(columns, wanted)
    measured, read = outputs(wanted.output, columns[wanted.output], place)
    columns, more = _settled(columns, names, wanted, place)
    notes = (*notes, *found, *read, *more, *_words_kept(columns, (wanted.task, *names)))
    total = len(measured)
    absent = [absence(name, wanted.space) for name in names]
    table = {
        name: _filled(columns[name], wanted.defaults.get(name), gap)
        for name, gap in zip(names, absent, strict=True)
    }
    _refuse_missing_parameters(table, columns[wanted.task], absent)
    rows, counts = _usable_rows(columns[wanted.task], measured, table, absent)
    counts["failed"] += failed
    if not rows:
        raise InputError(f"{source}: none of the {total} rows can be used ({counts})")
    usable = {name: [table[name][i] for i in rows] for name in names}
    space = wanted.space
    if space is None:
        whole = [name for name in names if _made_floats(columns[name], usable[name])]
        usable |= {name: [int(v) for v in usable[name]] for name in whole}
        space, guesses = infer_space(usable, log=wanted.log, categories=wanted.categories)
        notes = (*notes, *guesses, *(_whole_note(name) for name in whole))
    labels = _labels([columns[wanted.task][i] for i in rows])
    where = (f"{place(i)}, task {task}" for i, task in zip(rows, labels, strict=True))
    X = _encoded(space, usable, where, extrapolate=wanted.extrapolate)
    beyond = int((np.abs(X) > 1 + RANGE_SLACK).any(axis=1).sum())
    if beyond:
        notes = (*notes, f"{beyond} rows lie outside of the ranges of the space")
    sign = -1.0 if wanted.minimize else 1.0
    return Intake(
        X=X,
        y=sign * np.array([measured[i] for i in rows], dtype=np.float64),
        labels=labels,
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


def _usable_rows(
    tasks: Sequence[Any],
    measured: Sequence[float | None],
    table: Columns,
    absent: Sequence[Absence],
) -> tuple[list[int], dict[str, int]]:
    """Numbers of the rows to learn from, and how many others there are, by reason."""
    counts = {"failed": 0, "missing_inputs": 0, "missing_tasks": 0, "duplicates": 0}
    kept: dict[tuple[Any, ...], int] = {}
    for i, (task, value) in enumerate(zip(tasks, measured, strict=True)):
        row = tuple(values[i] for values in table.values())
        if missing(task):
            counts["missing_tasks"] += 1
        elif value is None or not isfinite(value):
            counts["failed"] += 1
        elif any(gap(v) for gap, v in zip(absent, row, strict=True)):
            counts["missing_inputs"] += 1
        elif (task, value, *row) in kept:
            counts["duplicates"] += 1
        else:
            kept[task, value, *row] = i
    return list(kept.values()), counts


def _settled(
    columns: Columns, names: Sequence[str], wanted: Wanted, place: Place
) -> tuple[Columns, list[str]]:
    """The inputs with their numbers as numbers, and notes on that."""
    read, notes = dict(columns), list[str]()
    for name in names:
        said = meaning(name, wanted.space, wanted.categories)
        read[name], found = settled(name, columns[name], said, place)
        notes += found
    return read, notes


def _encoded(space: Space, usable: Columns, where: Iterable[str], *, extrapolate: bool) -> Array:
    """The rows as points; if one of them cannot be, the refusal says which."""
    try:
        return space.encode(usable, extrapolate=extrapolate)
    except InputError:
        for i, place in enumerate(where):
            try:
                space.encode(
                    {name: values[i : i + 1] for name, values in usable.items()},
                    extrapolate=extrapolate,
                )
            except InputError as error:
                raise error.at(place) from None
        raise


def _refuse_missing_parameters(
    table: Columns, tasks: Sequence[Any], absent: Sequence[Absence]
) -> None:
    """A parameter that whole tasks lack cannot be compared over tasks."""
    for (name, values), gap in zip(table.items(), absent, strict=True):
        has = {task for task, value in zip(tasks, values, strict=True) if not gap(value)}
        lacking = [str(t) for t in dict.fromkeys(tasks) if not missing(t) and t not in has]
        if lacking:
            shown = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
            raise InputError(
                f"input {name!r} is missing in every row of {len(lacking)} tasks ({shown}); tasks "
                "of a history share their inputs",
                Hint(
                    "give what they used",
                    f"defaults={{{name!r}: value}}",
                    f"--default '{name}=value'",
                ),
                Hint("name the inputs that they share", "inputs=[...]", "--input NAME"),
            )


def _filled(values: Sequence[Any], default: Any, gap: Absence) -> list[Any]:
    """The default where there is no value, written as the column writes it: True for 'true'."""
    if default is None:
        return list(values)
    own = own_value([v for v in values if not gap(v)], default)
    return [own if gap(v) else v for v in values]


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
        "(a space can say otherwise)"
    )
