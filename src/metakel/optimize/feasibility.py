"""The chance that constraints hold: one cold belief per constraint, none learned from the past."""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign, isfinite

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.gp.incremental import Belief, Prediction
from metakel.gp.task_gp import DefaultGP
from metakel.gp.task_scale import TaskModel

# Constraint values are around 0, where they hold just so; their scale is found from the values.
MODEL = TaskModel(level=0.0, level_variance=1.0, scale=1.0, spread=1.0)
SMALLEST_SCALE = 1e-12


def feasible(constraints: Mapping[str, float]) -> bool:
    """Whether no constraint is above 0."""
    if any(value != value for value in constraints.values()):
        raise InputError(f"constraints are {dict(constraints)}; expected numbers, not nan")
    return all(value <= 0 for value in constraints.values())


class Feasibility:
    """Chances over candidates ``Z`` (N, d0) and anywhere else."""

    def __init__(self, Z: Array) -> None:
        self._Z, self._shape = Z, DefaultGP.typical(Z.shape[1])
        self._beliefs: dict[str, Belief] = {}
        self._largest: dict[str, float] = {}

    def tell(self, x: Array, constraints: Mapping[str, float]) -> None:
        """Take in the constraints at a point; an infinite one counts as the largest seen."""
        for name, value in constraints.items():
            if name not in self._beliefs:
                self._beliefs[name] = Belief(self._shape, MODEL, self._Z)
            largest = self._largest.get(name, 0.0)
            if isfinite(value):
                self._largest[name] = max(largest, abs(value))
            else:
                value = copysign(largest or 1.0, value)
            self._beliefs[name].tell(x, value)

    @property
    def chance(self) -> Array | None:
        """(N,) of the candidates; None where there is no constraint."""
        return _chance([(b, b.terms) for b in self._beliefs.values()])

    def chance_at(self, Z: Array) -> Array | None:
        """(k,) of other points."""
        return _chance([(b, b.at(Z)) for b in self._beliefs.values()])

    def fork(self) -> Feasibility:
        """A copy to be told what if; of use until this one is told again."""
        fork = Feasibility(self._Z)
        fork._beliefs = {name: belief.fork() for name, belief in self._beliefs.items()}
        fork._largest = dict(self._largest)
        return fork


def _chance(constraints: list[tuple[Belief, Prediction]]) -> Array | None:
    from scipy.special import ndtr

    if not constraints:
        return None
    chances = [
        ndtr(-terms.base / (max(b.likely_scale, SMALLEST_SCALE) * np.sqrt(terms.variance)))
        for b, terms in constraints
    ]
    return np.asarray(np.prod(chances, axis=0))
