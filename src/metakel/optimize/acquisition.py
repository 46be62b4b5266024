r"""Acquisitions: from a model to the score that a search maximises.

An acquisition is a function of a model and of the value to improve on (None before there is one)
that returns a `Score`. To add one, write such a function here and name it in `ACQUISITIONS`, or
pass it to an optimizer as it is: ``acquisition=my_function``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array, as_number
from metakel.errors import InputError
from metakel.optimize.limits import Feasibility
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


Acquisition = Callable[[Model, float | None], Score]


def upper_bound(model: Model, best: float | None) -> Score:
    """GP-UCB (Eq. 11): the upper confidence bound, or mean plus 1.5 standard deviations."""
    return model.upper_bound()


def expected_improvement(model: Model, best: float | None) -> Score:
    """Expected improvement on the best value; the upper bound before there is one."""
    return model.upper_bound() if best is None else model.expected_improvement(best)


ACQUISITIONS: dict[str, Acquisition] = {"ucb": upper_bound, "ei": expected_improvement}


def as_acquisition(acquisition: str | Acquisition) -> Acquisition:
    """By name, or a function of the user's own."""
    if callable(acquisition):
        return acquisition
    if acquisition not in ACQUISITIONS:
        known = " or ".join(map(repr, sorted(ACQUISITIONS)))
        raise InputError(f"acquisition is {acquisition!r}; expected {known}, or a function")
    return ACQUISITIONS[acquisition]


def constrained(model: Model, best: float | None, feasibility: Feasibility) -> Score:
    """Expected improvement times the chance that all constraints hold.

    Before any feasible value: the chance alone.
    """

    def chance(Z: Array) -> Array:
        found = feasibility.chance(Z)
        return np.ones(len(Z)) if found is None else found

    return Score(chance) if best is None else model.expected_improvement(best, chance)


def without_nan(score: Score, model: Model) -> Score:
    """A score that is never nan: a search would take the first point as the best."""

    def check(values: Array, Z: Array) -> Array:
        wrong = np.isnan(values)
        if wrong.any():
            first = Z[int(np.argmax(wrong))].tolist()
            raise InputError(
                f"the score of {type(model).__name__} ({model.describe()}) is nan at "
                f"{int(wrong.sum())} of {len(Z)} points, first at {first}; expected numbers: look "
                "for extreme values in the history or among those observed"
            )
        return values

    def values(Z: Array) -> Array:
        return check(score.values(Z), Z)

    slopes = score.gradient
    if slopes is None:
        return Score(values)

    def gradient(Z: Array) -> tuple[Array, Array]:
        found, slope = slopes(Z)
        return check(found, Z), slope

    return Score(values, gradient)
