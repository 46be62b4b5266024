"""Runs that were stopped early, as evidence: by the end that is to be expected of them.

One rule for pruned trials of studies, long tables and journals. What is expected follows from the
curves of runs that were made to their end, in all tasks together; how far it is usually off is its
noise. It is no better than the best value of the task, as nobody finished it. Long tables have a
row for every step of a run and are folded to one row for every run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from metakel._arrays import is_number
from metakel.curves import Curve, CurveModel, from_one
from metakel.errors import Hint, InputError
from metakel.io.columns import Column
from metakel.io.merge import NOISE
from metakel.io.schema import Table


@dataclass(frozen=True)
class TaskCurves:
    """Curves of a task: values by step, from 1."""

    whole: tuple[Curve, ...]  # of runs that were made to their end
    stopped: tuple[Curve, ...]  # of the others
    best: float  # value of the task; nan where there is none


@dataclass(frozen=True)
class Ends:
    """What is to be expected of the runs of a task."""

    # End and noise of each stopped run; None where nothing can be said of it.
    stopped: tuple[tuple[float, float] | None, ...]
    noise_std: float  # of runs that were made to their end: only ratios of noise count


def expected_ends(tasks: Sequence[TaskCurves], *, minimize: bool) -> list[Ends]:
    """For every task; nothing is said where too few runs were made to their end."""
    silent = [Ends((None,) * len(task.stopped), inf) for task in tasks]
    if not any(task.stopped for task in tasks):
        return silent
    try:
        model = CurveModel.learn([task.whole for task in tasks], minimize=minimize)
    except InputError:  # too few curves
        return silent
    return [
        ends_of(model, task) if task.whole else nothing
        for task, nothing in zip(tasks, silent, strict=True)
    ]


def ends_of(model: CurveModel, task: TaskCurves) -> Ends:
    """By a model that was learned before."""
    curves, steps = [*task.whole, *task.stopped], max(map(max, task.whole))
    found: list[tuple[float, float] | None] = []
    for curve in task.stopped:
        end, noise_std = model.predict(curve, curves, steps)
        if not (isfinite(end) and 0 < noise_std < inf):
            found.append(None)
        elif isfinite(task.best):
            limited = max(end, task.best) if model.minimize else min(end, task.best)
            found.append((limited, noise_std))
        else:
            found.append((end, noise_std))
    usual = model.predict(max(task.whole, key=max), curves, steps)[1]
    return Ends(tuple(found), usual)


@dataclass(frozen=True)
class _Run:
    """The first of its rows, and its values by step, from 1."""

    row: int
    task: Any
    curve: Mapping[int, float]

    @property
    def last(self) -> int:
        return max(self.curve)

    @property
    def end(self) -> float:
        return self.curve[self.last]


def folded(
    source: Table, step: str, *, inputs: Sequence[str] | None, minimize: bool | None
) -> Table:
    """One row per run: its last value, or the end that is expected where it was stopped early.

    Rows of a run are equal in all columns but the step and the output, or in task and ``inputs``
    where these are named, in any order; where a step comes twice, one that does not grow begins
    another run. A run was stopped early if the longest run of its task made more steps. Those whose
    end cannot be predicted are left out.
    """
    if step not in source.columns:
        raise InputError(f"no column {step!r} of steps; found {', '.join(source.columns)}")
    names = [name for name in source.columns if name not in (step, source.output)]
    if inputs is not None:
        names = [source.task, *(name for name in inputs if name in source.columns)]
    runs = _runs(source, step, names)
    if all(len(run.curve) < 2 for run in runs):
        raise InputError(
            f"every row of {source.name} is a run of its own: other columns change with {step!r}",
            Hint("name the parameters", "inputs=[...]", "--input NAME"),
        )
    small = bool(source.minimize if minimize is None else minimize)
    tasks = list(dict.fromkeys(run.task for run in runs))
    longest = {task: max(r.last for r in runs if r.task == task) for task in tasks}
    whole = {t: [r for r in runs if r.task == t and r.last == longest[t]] for t in tasks}
    early = {t: [r for r in runs if r.task == t and r.last < longest[t]] for t in tasks}
    best = min if small else max
    found = expected_ends(
        [
            TaskCurves(
                tuple(r.curve for r in whole[t]),
                tuple(r.curve for r in early[t]),
                best((r.end for r in whole[t] if isfinite(r.end)), default=nan),
            )
            for t in tasks
        ],
        minimize=small,
    )
    rows = {r.row: (r.end, nan) for of in whole.values() for r in of}
    for task, ends in zip(tasks, found, strict=True):
        known = {
            r.row: end for r, end in zip(early[task], ends.stopped, strict=True) if end is not None
        }
        if known:
            rows |= {r.row: (r.end, ends.noise_std) for r in whole[task]} | known
    lost = len(runs) - len(rows)
    taken = sum(map(len, early.values())) - lost
    notes = [f"{len(runs)} runs by {step}, {taken} of them stopped early and taken by their ends"]
    if lost:
        notes.append(f"{lost} runs that were stopped early are left out: too few went on")
    return _one_row_each(source, step, dict(sorted(rows.items())), (*source.notes, *notes), {
        str(task): tuple(r.curve for r in of) for task, of in whole.items()
    })  # fmt: skip


def _runs(source: Table, step: str, names: Collection[str]) -> list[_Run]:
    """In the order of their first rows; rows without a task, a step or a value are no part."""
    keys = [source.columns[name].keys().tolist() for name in names]
    steps, values = (source.columns[name].tolist() for name in (step, source.output))
    tasks = source.columns[source.task].tolist()
    rows: dict[tuple[Any, ...], list[tuple[int, int, float]]] = {}
    for row, (at, value, task) in enumerate(zip(steps, values, tasks, strict=True)):
        if task is None or at is None:
            continue
        if not is_number(at) or at < 0 or at != int(at):
            raise InputError(
                f"{source.place(row)}: the step is {at!r}; expected a whole number >= 0"
            )
        key = tuple(column[row] for column in keys)
        number = float(value) if is_number(value) else nan
        rows.setdefault(key, []).append((row, int(at), number))
    found: list[_Run] = []
    for own in rows.values():
        begins, curve, once = (
            own[0][0],
            dict[int, float](),
            len({at for _, at, _ in own}) == len(own),
        )
        for row, at, number in own:
            if not once and curve and at <= max(curve):
                found.append(_Run(begins, tasks[begins], from_one(curve)))
                begins, curve = row, {}
            curve[at] = number
        found.append(_Run(begins, tasks[begins], from_one(dict(sorted(curve.items())))))
    if not found:
        raise InputError(f"{source.name} has no row with a task and a step {step!r}")
    return sorted(found, key=lambda run: run.row)


def _one_row_each(
    source: Table,
    step: str,
    rows: Mapping[int, tuple[float, float]],
    notes: tuple[str, ...],
    curves: Mapping[str, Any],
) -> Table:
    places = np.array(list(rows), dtype=np.intp)
    columns = {
        name: Column(column.values[places], column.missing[places], column.levels)
        for name, column in source.columns.items()
        if name not in (step, source.output)
    }
    columns[source.output] = Column.of(np.array([end for end, _ in rows.values()]))
    noise = source.noise
    if any(noise_std == noise_std for _, noise_std in rows.values()):
        noise = NOISE
        columns[noise] = Column.of(np.array([noise_std for _, noise_std in rows.values()]))
    return replace(
        source,
        columns=columns,
        noise=noise,
        notes=notes,
        place=lambda i: source.place(int(places[i])),
        curves=curves,
    )
