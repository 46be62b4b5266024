"""The chance that constraints hold: one default process per constraint, none learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign, isfinite

import numpy as np

from metakel._arrays import Array
from metakel.gp.incremental import IncrementalGP, Prediction
from metakel.gp.task_gp import DefaultGP
from metakel.gp.task_scale import TaskModel

# Constraint values are around 0, where they hold just so; their scale is found from the values.
MODEL = TaskModel(level=0.0, level_variance=1.0, scale=1.0, spread=1.0)
SMALLEST_SCALE = 1e-12
Observed = Sequence[tuple[Array, Mapping[str, float]]]


class Feasibility:
    """Chances at start points ``Z`` (N, d0) and anywhere else; `observe` returns a new one."""

    def __init__(self, Z: Array) -> None:
        self._Z, self._process = Z, DefaultGP.typical(Z.shape[1])
        self._models: dict[str, IncrementalGP] = {}
        self._observed: list[tuple[Array, dict[str, float]]] = []

    def observe(self, constraints: Observed) -> Feasibility:
        """Given all constraints so far; an infinite one counts as the largest of its name."""
        settled = [(x, _finite(values, constraints)) for x, values in constraints]
        start = len(self._observed)
        after = Feasibility(self._Z)
        if _same(self._observed, settled[:start]):
            after._models = dict(self._models)
        else:
            start = 0
        for x, values in settled[start:]:
            for name, value in values.items():
                model = after._models.get(name)
                if model is None:
                    model = IncrementalGP(self._process, MODEL, self._Z)
                after._models[name] = model.observe(model.cross_covariance(x[None]), value)
        after._observed = settled
        return after

    def chance(self, Z: Array) -> Array | None:
        """(n,) that all constraints hold; None where there is no constraint."""
        return _chance([(m, self._at(m, Z)) for m in self._models.values()])

    def _at(self, model: IncrementalGP, Z: Array) -> Prediction:
        return model.prediction if Z is self._Z else model.at(self._process.prepare(Z))


def _finite(values: Mapping[str, float], observed: Observed) -> dict[str, float]:
    def largest(name: str) -> float:
        sizes = [abs(v[name]) for _, v in observed if name in v and isfinite(v[name])]
        return max(sizes, default=0.0) or 1.0

    return {n: v if isfinite(v) else copysign(largest(n), v) for n, v in values.items()}


def _same(one: Observed, other: Observed) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(x, z) and v == w for (x, v), (z, w) in zip(one, other, strict=True)
    )


def _chance(constraints: list[tuple[IncrementalGP, Prediction]]) -> Array | None:
    from scipy.special import ndtr

    if not constraints:
        return None
    chances = [
        ndtr(-p.offset / (max(model.likely_scale, SMALLEST_SCALE) * np.sqrt(p.variance)))
        for model, p in constraints
    ]
    return np.asarray(np.prod(chances, axis=0))
