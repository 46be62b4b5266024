"""Which values a Gaussian process is given when there are more than it can take.

The time of one suggestion grows with the square of the values, and that of opening a record with
the cube. So a model takes in the first `LIMIT` values one by one; its confidence bounds, alarms and
certificates rest on these, which is valid: they were not selected by what came later. Predictions
and decisions of longer records use a part of all values:

- every value since the last multiple of `BLOCK`,
- of those before, `NEAREST` at the points nearest to the best one, and as many of the others as
  there is room for, evenly spaced over the run.

Which they are depends on the record alone, so that a restart decides the same. They change once in
`BLOCK` values; until then, a new value is added to those that are there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.optimize.record import Outcomes

LIMIT = 512
BLOCK = 128
NEAREST = (LIMIT - BLOCK) // 2


def first_values(outcomes: Outcomes, count: int = LIMIT) -> Outcomes:
    """The evidence as it was after so many values; of a larger call, a part."""
    ends = [end for end in outcomes.ends if end <= count] or [count]
    return _part(outcomes, np.arange(ends[-1]), tuple(ends))


def thinned(outcomes: Outcomes) -> Outcomes:
    """At most `LIMIT` values of all: one step of selected ones, and those since one by one."""
    since = BLOCK * (outcomes.t // BLOCK)
    base = _selected(outcomes.X[:since], np.where(outcomes.counts, outcomes.y, -np.inf)[:since])
    rows = np.append(base, np.arange(since, outcomes.t))
    return _part(outcomes, rows, tuple(range(len(base), len(rows) + 1)))


def _selected(X: Array, y: Array) -> NDArray[np.intp]:
    """Rows near the best one, and others evenly spaced, in order."""
    distance = ((X - X[int(np.argmax(y))]) ** 2).sum(axis=1)
    order = np.argsort(distance, kind="stable")
    others = np.sort(order[NEAREST:])
    room = LIMIT - BLOCK - NEAREST
    spaced = others[np.linspace(0, len(others) - 1, room).round().astype(np.intp)]
    return np.sort(np.append(order[:NEAREST], spaced))


def _part(outcomes: Outcomes, rows: NDArray[np.intp], ends: tuple[int, ...]) -> Outcomes:
    return replace(
        outcomes,
        numbers=tuple(outcomes.numbers[i] for i in rows),
        X=outcomes.X[rows],
        y=outcomes.y[rows],
        noise_std=outcomes.noise_std[rows],
        counts=outcomes.counts[rows],
        ends=ends,
    )
