r"""Acquisitions: from a model to the score that a search maximises.

An acquisition is a function of a model and of the value to improve on (None before there is one)
that returns a `Score`. To add one, write such a function here and name it in `ACQUISITIONS`, or
pass it to an optimizer as it is: ``acquisition=my_function``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.gp.factor import Factor
from metakel.gp.processes import ColdProcess, LevelAndScale
from metakel.optimize.model import Model, Score

# Constraint values are around 0, where they hold just so; their scale is found from the values.
MODEL = LevelAndScale(level=0.0, level_variance=1.0, scale=1.0, spread=1.0)
SMALLEST_SCALE = 1e-12
Observed = Sequence[tuple[Array, Mapping[str, float]]]


Acquisition = Callable[[Model, float | None], Score]


def upper_bound(model: Model, best: float | None) -> Score:
    """GP-UCB (Eq. 11): the upper confidence bound, or that of a prior's model (`ucb_width`)."""
    return model.upper_bound()


def expected_improvement(model: Model, best: float | None) -> Score:
    """Expected improvement on the best value; the upper bound before there is one."""
    return model.upper_bound() if best is None else model.expected_improvement(best)


def thompson(model: Model, best: float | None) -> Score:
    """Thompson sampling: a function drawn from the posterior of a prior's model."""
    return model.drawn()


ACQUISITIONS: dict[str, Acquisition] = {
    "ucb": upper_bound,
    "ei": expected_improvement,
    "ts": thompson,
}


def as_acquisition(acquisition: str | Acquisition) -> Acquisition:
    """By name, or a function of the user's own, of which the result is checked."""
    if callable(acquisition):
        return partial(_own, acquisition)
    if acquisition not in ACQUISITIONS:
        known = " or ".join(map(repr, sorted(ACQUISITIONS)))
        raise InputError(f"acquisition is {acquisition!r}; expected {known}, or a function")
    return ACQUISITIONS[acquisition]


def _own(acquisition: Acquisition, model: Model, best: float | None) -> Score:
    name = f"the acquisition {getattr(acquisition, '__name__', repr(acquisition))}"
    score = acquisition(model, best)
    if not isinstance(score, Score):
        raise InputError(
            f"{name} returned a {type(score).__name__}; expected a metakel.optimize.Score of a "
            "function from points (n, d0) to (n,) numbers"
        )

    def values(Z: Array) -> Array:
        found = np.asarray(score.values(Z))
        if found.shape != (len(Z),) or found.dtype.kind not in "iuf":
            raise InputError(
                f"the score of {name} has shape {found.shape} and type {found.dtype} for {len(Z)} "
                f"points; expected ({len(Z)},) numbers"
            )
        return _never_nan(found.astype(np.float64), Z, name, "")

    return Score(values, score.gradient)


def _never_nan(values: Array, Z: Array, whose: str, remedy: str) -> Array:
    """A search would take the first point with a nan as the best."""
    wrong = np.isnan(values)
    if wrong.any():
        raise InputError(
            f"the score of {whose} is nan at {int(wrong.sum())} of {len(Z)} points, first at "
            f"{Z[int(np.argmax(wrong))].tolist()}; expected numbers{remedy}"
        )
    return values


@dataclass(frozen=True, eq=False)
class Feasibility:
    """Chances that constraints hold, at start points ``Z`` (N, d0) and anywhere else."""

    Z: Array
    models: Mapping[str, Factor] = field(default_factory=dict)

    def given(self, constraints: Observed) -> Feasibility:
        """Given all constraints so far; an infinite one counts as the largest of its name."""
        names = {name: None for _, values in constraints for name in values}
        return Feasibility(self.Z, {name: self._model(name, constraints) for name in names})

    def _model(self, name: str, constraints: Observed) -> Factor:
        seen = [(x, values[name]) for x, values in constraints if name in values]
        X, y = np.array([x for x, _ in seen]), np.array([value for _, value in seen])
        finite = np.isfinite(y)
        largest = np.abs(y[finite]).max(initial=0.0) or 1.0
        y = np.where(finite, y, np.copysign(largest, y))
        empty = Factor.of([ColdProcess.typical(self.Z.shape[1])], MODEL, self.Z)
        return self.models.get(name, empty).given(X, y)

    def chance(self, Z: Array) -> Array:
        """(n,) that all constraints hold."""
        from scipy.special import ndtr

        chance = np.ones(len(Z))
        for model in self.models.values():
            found = model.prediction if Z is self.Z else model.elsewhere().at(Z)
            scale = np.maximum(model.likely_scales, SMALLEST_SCALE)
            chance *= ndtr(-found.offset / (scale * np.sqrt(found.variance)))[0]
        return chance


def constrained(model: Model, best: float | None, feasibility: Feasibility) -> Score:
    """Expected improvement times the chance that all constraints hold.

    Before any feasible value: the chance alone.
    """
    chance = feasibility.chance
    return Score(chance) if best is None else model.expected_improvement(best, chance)


def without_nan(score: Score, model: Model) -> Score:
    """A score that is never nan."""
    slopes, whose = score.gradient, f"{type(model).__name__} ({model.describe()})"
    remedy = ": look for extreme values in the history or among those observed"

    def values(Z: Array) -> Array:
        return _never_nan(score.values(Z), Z, whose, remedy)

    def gradient(Z: Array) -> tuple[Array, Array]:
        assert slopes is not None
        found, slope = slopes(Z)
        return _never_nan(found, Z, whose, remedy), slope

    return Score(values, None if slopes is None else gradient)
