"""Constraints in the strict mode: only configurations that confidence bounds find safe are tried.

The constraint values of past studies teach a kernel for every constraint, and say where the new
study may begin (``docs/guide/safe-search.md``). A constraint holds where its value is at most 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

import numpy as np

from metakel.data import History
from metakel.errors import InputError
from metakel.io.optuna import RecordedStudy
from metakel.optimize import Optimizer
from metakel.priors import Prior, learn_outputs
from metakel.safe import SafePrior
from metakel.search import SearchSpace
from metakel.space import Float, Space

OBJECTIVE = "value"
HELD = None, 0.0


@dataclass(frozen=True)
class Strict:
    """What a strict sampler promises, and from where it begins.

    Parameters
    ----------
    delta : float
        Probability that any of all configurations violates a constraint.
    start : tuple of dict
        Configurations that the user vouches for; without them past studies have to.
    """

    delta: float
    start: tuple[Mapping[str, Any], ...] = ()

    def optimizer(self, prior: Prior, space: Space, rng: np.random.Generator) -> Optimizer:
        """The search on the space of a study, which has to be that of the past."""
        free = prior.space.among([prior.space[name] for name in prior.space.free])
        other = sorted({*space.names} ^ {*free.names})
        if other:
            raise InputError(
                f"strict: the past studies and this one do not have the same parameters: "
                f"{', '.join(map(repr, other))}; nothing can be promised then"
            )
        for parameter in space.parameters:
            _check_range(parameter, prior.space)
        assert prior.past is not None
        limits = dict.fromkeys(prior.past.names[1:], HELD)
        source = SafePrior(prior, limits, self.start)
        return source.search(SearchSpace(space, prior.space), rng, self.delta)


def _check_range(parameter: Any, past: Space) -> None:
    known = past[parameter.name]
    ends = [parameter.low, parameter.high] if isinstance(parameter, Float) else parameter.values
    try:
        known.encode(list(ends))
    except InputError as error:
        raise InputError(
            f"strict: the range of {parameter.name!r} is not within that of the past studies "
            f"({error}); nothing can be promised there"
        ) from None


def check_unchanged(name: str, chosen: Any, tried: Any) -> None:
    """Before the first trial is completed, the study's own ranges and steps are not known."""
    numbers = isinstance(chosen, int | float) and isinstance(tried, int | float)
    if tried != chosen and not (numbers and isclose(tried, chosen, rel_tol=1e-12, abs_tol=1e-12)):
        raise InputError(
            f"strict: {chosen!r} was found safe for {name!r}, but the study does not allow it "
            f"({tried!r} is nearest). Enqueue a first trial that you know to be safe "
            "(study.enqueue_trial); the ranges of the study are known after it"
        )


def with_constraints(prior: Prior, studies: Sequence[RecordedStudy]) -> Prior:
    """The prior with records of the constraints that all completed trials of the past have."""
    rows = [c for study in studies for c in study.constraints]
    names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    if not names:
        raise InputError(
            "strict: the past studies have no constraint that all their completed trials report; "
            "expected values by trial.set_constraint or constraints_func"
        )
    # Promises rest on what was measured.
    studies = [replace(study, curves=()) for study in studies]
    histories = {OBJECTIVE: History.from_optuna(studies)}
    for name in names:
        histories[name] = History.from_optuna([_of_constraint(study, name) for study in studies])
    return replace(prior, past=learn_outputs(histories))


def _of_constraint(study: RecordedStudy, name: str) -> RecordedStudy:
    """The study as if a constraint were its value."""
    pairs = zip(study.rows, study.constraints, strict=True)
    rows = tuple((params, float(values[name])) for (params, _), values in pairs)
    return replace(study, rows=rows, minimize=False)
