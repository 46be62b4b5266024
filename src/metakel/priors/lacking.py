"""Parameters that some past tasks did not record.

Such a parameter had one unknown value in all runs of the task. What it does to the level of the
task is taken out with the level. For a stationary kernel the unknown value drops out of differences
between runs. For the functions that tasks have in common, the features of a run are averaged over
values that other tasks recorded: the task says what is good on average over the parameter, and
nothing about the parameter itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.kernels.nystrom import spread_rows
from metakel.priors.standardize import StandardizedTasks

# Values that are averaged over; more change nothing that can be seen.
DRAWS = 16


def complete_first(history: History) -> History:
    """Tasks that lack less come first, so that every part of a split has some of them."""
    if len(history.complete) == history.m:
        return history
    return replace(history, tasks=tuple(sorted(history.tasks, key=lambda task: len(task.lacks))))


def fillings(tasks: StandardizedTasks, s: int, teachers: Sequence[int]) -> list[Array]:
    """The points (n, d0) of task s with what it lacks at values that ``teachers`` recorded.

    Once as they are where it lacks nothing; unknown values stay 0 where no teacher recorded one.
    """
    X, lacks = tasks.X[s], tasks.lacks[s] if tasks.lacks else ()
    if not lacks:
        return [X]
    filled = [X.copy() for _ in range(DRAWS)]
    # Columns that the same tasks lack were recorded together, as those of one choice are.
    patterns: dict[tuple[bool, ...], list[int]] = {}
    for i in lacks:
        patterns.setdefault(tuple(i in other for other in tasks.lacks), []).append(i)
    for pattern, columns in patterns.items():
        known = [tasks.X[t][:, columns] for t in teachers if not pattern[t]]
        if not known:
            continue
        values = spread_rows(np.concatenate(known), DRAWS)
        for k, points in enumerate(filled):
            points[:, columns] = values[(s + k) % len(values)]
    return filled
