"""The order in which groups enter a path, guessed by steps of least squares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso.spd import sweep_one
from metakel.grouplasso.stack import Columns

Array = NDArray[np.float64]
NEAR = 3.0  # times the lowest sigma, an entry is worth a closer look
FLAT = 1e-9  # a pivot that lost this share of its size is zero


@dataclass(frozen=True)
class Stages:
    """Groups in the order in which they enter, and least squares after every entry."""

    groups: list[int]
    columns: list[int]
    ends: list[int]  # how many columns each stage has
    systems: list[Array]  # (c, c + 1, m) per stage: the inverse of G, and b_0 as the last column
    top: float  # sigma at which the first of them enters
    floor: float  # and below which further groups would enter


def enter(everything: Columns, shape: Array, lowest: float, most: int) -> Stages:
    """Add the group that correlates most with what is left, down to sigma = ``lowest``."""
    M = np.concatenate([everything.G, everything.h[:, None]], axis=1)
    spare = np.empty_like(M)
    flat = FLAT * np.einsum("ccm->cm", everything.G)
    stages = Stages([], [], [], [], 0.0, 0.0)
    while True:
        j, score = _next(everything, M, stages, shape, lowest)
        if not stages.groups:
            stages = replace(stages, top=score)
        new = range(int(everything.starts[j]), int(everything.starts[j + 1]))
        if not score > lowest or len(stages.columns) + len(new) > most:
            return replace(stages, floor=score)
        for column in new:
            if (M[column, column] <= flat[column]).any():
                return replace(stages, floor=score)
            sweep_one(M, column, spare)
        stages.groups.append(j)
        stages.columns.extend(new)
        stages.ends.append(len(stages.columns))
        stages.systems.append(M[np.ix_(stages.columns, [*stages.columns, -1])])


def _next(
    everything: Columns, M: Array, stages: Stages, shape: Array, lowest: float
) -> tuple[int, float]:
    """The group that correlates most with the residual, and sigma at which it would enter.

    Near ``lowest`` the residual is that of the penalised fit, to first order in sigma.
    """
    z, columns = M[:, -1], stages.columns
    squares = everything.summed(np.einsum("cm,cm->c", z, z))
    scores = squares / shape**2
    scores[stages.groups] = 0.0
    if columns and scores.max() <= (NEAR * lowest) ** 2:
        signs = everything.spread(shape / np.sqrt(np.where(squares > 0, squares, 1.0)))
        pull = signs[columns, None] * z[columns]
        z = z - lowest * np.einsum("dcm,cm->dm", M[:, columns], pull)
        scores = everything.summed(np.einsum("cm,cm->c", z, z)) / shape**2
        scores[stages.groups] = 0.0
    j = int(scores.argmax())
    return j, sqrt(scores[j])
