"""The best runs of past tasks, which a prior keeps: found in a history, and as part of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from metakel._arrays import Array, as_numbers
from metakel._files import Content
from metakel.data import History
from metakel.errors import InputError
from metakel.optimize.model import BestRuns
from metakel.space import Space

if TYPE_CHECKING:
    from metakel.priors.prior import PriorInfo

KEPT = 3  # of every task
MOST = 999  # of all tasks; beyond, every other task is left out, or more


def best_runs(
    history: History, space: Space, lengthscales: Array, info: PriorInfo
) -> BestRuns | None:
    """The best few runs of every task that lacks no parameter; not of all where there are many."""
    sign, complete = -1.0 if info.minimize else 1.0, history.complete
    if not complete:
        return None
    step = -(-len(complete) * KEPT // MOST)
    X, tasks, values, typical = [], [], [], []
    for task in complete[::step]:
        top = np.argsort(-task.y, kind="stable")[:KEPT]
        X.append(task.X[top])
        tasks += [task.name] * len(top)
        values.append(sign * task.y[top])
        typical.append(np.full(len(top), sign * np.median(task.y)))
    points = np.concatenate(X)
    return BestRuns(
        points=tuple(space.decode(points)),
        X=points,
        tasks=tuple(tasks),
        values=np.concatenate(values),
        typical=np.concatenate(typical),
        lengthscales=lengthscales,
        output=info.output,
    )


def to_dict(past: BestRuns) -> Content:
    """As plain lists; the length scales and the output are elsewhere in the file of a prior."""
    return {
        "X": past.X.tolist(),
        "tasks": list(past.tasks),
        "values": past.values.tolist(),
        "typical": past.typical.tolist(),
    }


def from_dict(
    data: Mapping[str, Any], space: Space, lengthscales: Array, info: PriorInfo
) -> BestRuns:
    """Inverse of `to_dict`."""
    tasks = data["tasks"]
    if not isinstance(tasks, list) or not set(tasks) <= set(info.tasks):
        raise InputError(f"best runs are of {tasks!r}; expected a list of names of past tasks")
    X = as_numbers("X", data["X"], (len(tasks), space.d0))
    values, typical = (
        as_numbers(name, data[name], (len(tasks),)) for name in ("values", "typical")
    )
    points = tuple(space.decode(X))
    return BestRuns(points, X, tuple(tasks), values, typical, lengthscales, info.output)
