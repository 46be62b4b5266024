"""Which points are above a level: the points to try, and when all are decided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array, as_number
from metakel.errors import InputError
from metakel.optimize.model import Model, Score


@dataclass(frozen=True)
class LevelSet:
    r"""Find out where the objective is at least ``level``, instead of where it is largest.

    An acquisition: the next point is the one that is hardest to decide, where
    min(u - level, level - l) is largest. The points with l >= level are above, those with
    u < level below (`Optimizer.above`, `Optimizer.below`); with probability 1 - delta, all
    decisions of all times are right (Statement 6 of ``docs/guide/safe-search.md``).

    Parameters
    ----------
    level : float
    tolerance : float
        A point is decided, too, once its value is known to be at least level - tolerance, or at
        most level + tolerance. Without it, points exactly at the level are never decided.
    """

    level: float
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        as_number("level", self.level)
        as_number("tolerance", self.tolerance, 0)

    def __call__(self, model: Model, best: float | None) -> Score:
        """How hard it is to decide a point; negative where it is decided."""
        if model.no_bounds:
            raise InputError(f"a level set needs confidence bounds: {model.no_bounds}")
        return Score(lambda Z: self.ambiguity(*model.bounds_within(Z)))

    def ambiguity(self, lower: Array, upper: Array) -> Array:
        """(n,) min(u - level, level - l), capped where a bound is infinite."""
        ambiguity = np.minimum(upper - self.level, self.level - lower)
        return np.minimum(ambiguity, np.finfo(np.float64).max)

    def undecided(self, lower: Array, upper: Array) -> Array:
        """(n,) which points are not decided yet."""
        return np.asarray(self.ambiguity(lower, upper) > self.tolerance)
