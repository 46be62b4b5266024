"""Acquisitions: from a model to the score that a search maximises.

An acquisition is a function of a model and of the value to improve on (None before there is one)
that returns a `Score`. To add one, write such a function here and name it in `ACQUISITIONS`, or
pass it to an optimizer as it is: ``acquisition=my_function``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.optimize.feasibility import Feasibility
from metakel.optimize.model import Model, Score

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
