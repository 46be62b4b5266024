"""Runs that were stopped early, as evidence: by the end that is to be expected of them.

One rule for pruned trials of studies, long tables and journals. What is expected follows from the
curves of runs that were made to their end, in all tasks together; how far it is usually off is its
noise. It is no better than the best value of the task, as nobody finished it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from metakel.curves import Curve, CurveModel
from metakel.errors import InputError


@dataclass(frozen=True)
class TaskCurves:
    """Curves of a task.

    Parameters
    ----------
    whole : tuple of dict
        Values by step, from 1, of runs that were made to their end.
    stopped : tuple of dict
        Those of the others.
    best : float
        The best value of the task; nan where there is none.
    """

    whole: tuple[Curve, ...]
    stopped: tuple[Curve, ...]
    best: float


@dataclass(frozen=True)
class Ends:
    """What is to be expected of the runs of a task.

    Parameters
    ----------
    stopped : tuple of (float, float) or None
        End and noise of each stopped run; None where nothing can be said of it.
    noise_std : float
        Of runs that were made to their end: only ratios of noise count.
    """

    stopped: tuple[tuple[float, float] | None, ...]
    noise_std: float


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
