"""Tasks to learn a prior from, drawn out of more tasks than fit in memory.

Every row of every task is read once, where it is: a value that is no number is found, and the
ranges of the inputs, levels and spreads are those of all tasks. The tasks of the sample are drawn
uniformly, so that they are exchangeable with the others and with the next task, which is all that
certificates need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.errors import InputError
from metakel.kernels.nystrom import spread_rows
from metakel.scale.blocks import Rows, TaskSource
from metakel.scale.evaluator import Index
from metakel.space import Fixed, Float, Integer, Parameter, Space

TASKS = 1000
# What learning takes in at most: memory and time grow with the rows.
ROWS, ROWS_OF_A_TASK = 100_000, 1000


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen of some tasks.

    Parameters
    ----------
    levels, spreads : (k,) arrays
        Mean and standard deviation of the values of each task.
    low, high : (d0,) arrays
        Ranges of the inputs.
    taken : Rows
        Observations of the tasks in the sample, at most 1000 each.
    """

    levels: Array
    spreads: Array
    low: Array
    high: Array
    taken: Rows

    @classmethod
    def joined(cls, looks: Sequence[Look]) -> Look:
        """Of the tasks of all of them, in this order."""
        taken = [look.taken for look in looks]
        return cls(
            np.concatenate([look.levels for look in looks]),
            np.concatenate([look.spreads for look in looks]),
            np.min([look.low for look in looks], axis=0),
            np.max([look.high for look in looks], axis=0),
            Rows(
                np.concatenate([rows.X for rows in taken]),
                np.concatenate([rows.y for rows in taken]),
                np.concatenate([rows.sizes for rows in taken]),
            ),
        )


@dataclass(frozen=True, eq=False)
class LookingShard:
    """Sources of tasks, and which of them are in the sample: places counted from the first task."""

    sources: tuple[TaskSource, ...]
    chosen: Index

    def look(self) -> Look:
        """Read everything once."""
        looks, first = [], 0
        for source in self.sources:
            rows = source.read()
            last = first + rows.sizes.size
            here = self.chosen[(self.chosen >= first) & (self.chosen < last)] - first
            looks.append(_look(rows, here))
            first = last
        return Look.joined(looks)

    def __str__(self) -> str:
        return ", ".join(map(str, self.sources[:2])) + (" ..." if len(self.sources) > 2 else "")


def _look(rows: Rows, chosen: Index) -> Look:
    levels = np.add.reduceat(rows.y, rows.starts) / rows.sizes
    squares = (rows.y - np.repeat(levels, rows.sizes)) ** 2
    spreads = np.sqrt(np.add.reduceat(squares, rows.starts) / rows.sizes)
    places = [
        rows.starts[s] + spread_rows(np.arange(rows.sizes[s]), ROWS_OF_A_TASK)
        for s in chosen.tolist()
    ]
    index = np.concatenate([np.empty(0, np.intp), *places])
    sizes = np.array([len(place) for place in places], dtype=np.intp)
    taken = Rows(rows.X[index], rows.y[index], sizes)
    return Look(levels, spreads, rows.X.min(axis=0), rows.X.max(axis=0), taken)


def draw(sizes: Index, tasks: int, seed: int) -> Index:
    """Which tasks are in the sample: ``tasks`` of them, or as many as have 10^5 rows on average.

    The number depends on the sizes as a whole and not on which tasks are drawn, so that large ones
    are drawn as often as small ones.
    """
    if tasks < 1:
        raise InputError(f"sample: tasks is {tasks}; expected at least 1")
    affordable = int(ROWS / np.minimum(sizes, ROWS_OF_A_TASK).mean())
    count = min(tasks, max(affordable, 1), sizes.size)
    return np.sort(np.random.default_rng(seed).permutation(sizes.size)[:count])


def named_history(
    look: Look,
    read: partial[History],
    rows: dict[str, Any],
    inputs: Sequence[str],
) -> History:
    """The sample as a history of named parameters, over the ranges of all tasks.

    ``read`` makes a history of the columns ``rows``; it takes a ``space``.
    """
    found = read(rows)
    if found.space is None or read.keywords.get("space") is not None:
        return found  # the caller says what the ranges are
    ranges = dict(zip(inputs, zip(look.low.tolist(), look.high.tolist(), strict=True), strict=True))
    wide = Space(tuple(_widened(p, *ranges[p.name]) for p in found.space.parameters))
    return found if wide == found.space else replace(read(rows, space=wide), report=found.report)


def _widened(parameter: Parameter, low: float, high: float) -> Parameter:
    """The parameter over a range that holds its own."""
    if isinstance(parameter, Fixed) and low < high:
        whole = isinstance(parameter.value, int)
        kind, ends = (Integer, (int(low), int(high))) if whole else (Float, (low, high))
        return kind(parameter.name, *ends)
    if isinstance(parameter, Integer):
        return replace(parameter, low=int(low), high=int(high), log=parameter.log and low > 0)
    if type(parameter) is Float:
        return replace(parameter, low=low, high=high, log=parameter.log and low > 0)
    return parameter


def note(look: Look, chosen: Index, total: int) -> str:
    """How the sample was drawn, and how it compares with all tasks."""
    shares = [
        f"{what} {_middle(values)} ({_middle(values[chosen])} in the sample)"
        for what, values in (("level", look.levels), ("spread", look.spreads))
    ]
    return (
        f"{chosen.size:,} of {look.levels.size:,} tasks teach, drawn at random; all {total:,} runs "
        f"were read. The middle 80 % of all tasks: {', '.join(shares)}"
    )


def _middle(values: Array) -> str:
    low, high = np.quantile(values, [0.1, 0.9])
    return f"{low:.4g} to {high:.4g}"
