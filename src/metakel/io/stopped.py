"""Runs that were stopped early, as evidence: by the end that is to be expected of them.

One rule for pruned trials of studies, long tables and journals. What is expected follows from the
curves of runs that were made to their end, in all tasks together; how far it is usually off is its
noise. It is no better than the best value of the task, as nobody finished it. Long tables have a
row for every step of a run and are folded to one row for every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any, TypeVar

import numpy as np

from metakel._arrays import is_number
from metakel.curves import Curve, CurveModel, from_one
from metakel.errors import Hint, InputError
from metakel.io.columns import Column
from metakel.io.schema import Table

NOISE = "metakel.noise"  # a column with what is known of how far ends may be off
T = TypeVar("T")
Run = tuple[int, Curve]  # its first row, and its values by step, from 1


@dataclass(frozen=True)
class TaskCurves:
    """Curves of a task: values by step, from 1."""

    whole: tuple[Curve, ...]  # of runs that were made to their end
    stopped: tuple[Curve, ...]  # of the others
    best: float  # value of the task; nan where there is none

    @classmethod
    def of(
        cls,
        whole: Iterable[Curve],
        stopped: Iterable[Curve],
        values: Iterable[float],
        minimize: bool,
    ) -> TaskCurves:
        """With the best of the finite values."""
        best = (min if minimize else max)(filter(isfinite, values), default=nan)
        return cls(tuple(whole), tuple(stopped), best)


@dataclass(frozen=True)
class Ends:
    """What is to be expected of the runs of a task."""

    # End and noise of each stopped run; None where nothing can be said of it.
    stopped: tuple[tuple[float, float] | None, ...]
    noise_std: float  # of runs that were made to their end: only ratios of noise count

    def of_runs(
        self, whole: Iterable[tuple[T, float]], stopped: Iterable[T]
    ) -> list[tuple[T, float, float]]:
        """Each run that counts, its value or expected end, and its noise, where ends count."""
        pairs = zip(stopped, self.stopped, strict=True)
        early = [(run, *end) for run, end in pairs if end is not None]
        noise_std = self.noise_std if early else nan
        return [*((run, value, noise_std) for run, value in whole), *early]


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
        known = isfinite(end) and 0 < noise_std < inf
        if isfinite(task.best):
            end = (max if model.minimize else min)(end, task.best)
        found.append((end, noise_std) if known else None)
    usual = model.predict(max(task.whole, key=max), curves, steps)[1]
    return Ends(tuple(found), usual)


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
    if all(len(curve) < 2 for of in runs.values() for _, curve in of):
        raise InputError(
            f"every row of {source.name} is a run of its own: other columns change with {step!r}",
            Hint("name the parameters", "inputs=[...]", "--input NAME"),
        )
    small = bool(source.minimize if minimize is None else minimize)
    tasks, whole, early = list[TaskCurves](), dict[Any, list[Run]](), dict[Any, list[Run]]()
    for task, of in runs.items():
        longest = max(max(curve) for _, curve in of)
        whole[task] = [run for run in of if max(run[1]) == longest]
        early[task] = [run for run in of if max(run[1]) < longest]
        values = [curve[longest] for _, curve in whole[task]]
        made, ended = ([curve for _, curve in part] for part in (whole[task], early[task]))
        tasks.append(TaskCurves.of(made, ended, values, small))
    rows = dict[int, tuple[float, float]]()  # the end and the noise of each, by their first rows
    for task, ends in zip(runs, expected_ends(tasks, minimize=small), strict=True):
        done = [(row, curve[max(curve)]) for row, curve in whole[task]]
        counted = ends.of_runs(done, [row for row, _ in early[task]])
        rows |= {row: (end, noise_std) for row, end, noise_std in counted}
    count, taken = sum(map(len, runs.values())), len(rows) - sum(map(len, whole.values()))
    notes = [f"{count} runs by {step}, {taken} of them stopped early and taken by their ends"]
    if lost := count - len(rows):
        notes.append(f"{lost} runs that were stopped early are left out: too few went on")
    places = np.array(sorted(rows), dtype=np.intp)
    columns = {
        name: Column(column.values[places], column.missing[places], column.levels)
        for name, column in source.columns.items()
        if name not in (step, source.output)
    }
    values, noises = np.array([rows[row] for row in places.tolist()]).T
    columns[source.output] = Column.of(values)
    noise = source.noise if np.isnan(noises).all() else NOISE
    if noise == NOISE:
        columns[noise] = Column.of(noises)
    return replace(
        source,
        columns=columns,
        noise=noise,
        notes=(*source.notes, *notes),
        place=lambda i: source.place(int(places[i])),
        curves={str(t): found.whole for t, found in zip(runs, tasks, strict=True)},
    )


def _runs(source: Table, step: str, names: Sequence[str]) -> dict[Any, list[Run]]:
    """By task, in the order of their rows; rows without a task, a step or a value are no part."""
    keys = zip(*(source.columns[name].keys().tolist() for name in names), strict=True)
    tasks, steps, values = (
        source.columns[name].tolist() for name in (source.task, step, source.output)
    )
    rows: dict[tuple[Any, ...], list[tuple[int, int, float]]] = {}
    for row, (key, task, at, value) in enumerate(zip(keys, tasks, steps, values, strict=True)):
        if task is None or at is None:
            continue
        if not is_number(at) or at < 0 or at != int(at):
            raise InputError(
                f"{source.place(row)}: the step is {at!r}; expected a whole number >= 0"
            )
        number = float(value) if is_number(value) else nan
        rows.setdefault(key, []).append((row, int(at), number))
    found: list[Run] = []
    for own in rows.values():
        once = len({at for _, at, _ in own}) == len(own)
        parts = [own[:1]]
        for entry in own[1:]:
            if once or entry[1] > parts[-1][-1][1]:
                parts[-1].append(entry)
            else:
                parts.append([entry])
        for part in parts:
            curve = {at: number for _, at, number in sorted(part, key=lambda entry: entry[1])}
            found.append((part[0][0], from_one(curve)))
    if not found:
        raise InputError(f"{source.name} has no row with a task and a step {step!r}")
    by_task: dict[Any, list[Run]] = {}
    for run in sorted(found, key=lambda run: run[0]):
        by_task.setdefault(tasks[run[0]], []).append(run)
    return by_task
