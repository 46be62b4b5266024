"""A record with all that follows from it: outcomes, model, best point and certificate."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from metakel._arrays import single_blas_thread
from metakel.confidence.fallback import AlarmEvent
from metakel.errors import InputError
from metakel.optimize.acquisition import Acquisition, Feasibility, as_acquisition, constrained
from metakel.optimize.certificate import Best, Certificate
from metakel.optimize.model import Model, Score
from metakel.optimize.outcomes import Outcomes, OutputScale, outcomes
from metakel.optimize.record import Record
from metakel.search import Domain, StartPoints


@dataclass(frozen=True, eq=False)
class State:
    """A record and all that an optimizer concludes from it.

    Parameters
    ----------
    record : Record
    outcomes : Outcomes
        What the record means for a model.
    model : Model
        Given the outcomes; in the sign to be maximised.
    feasibility : Feasibility
        Given the constraints.
    domain, start, acquisition, scale
        Of the optimizer; ``scale`` is how the model sees the values.
    """

    record: Record
    outcomes: Outcomes
    model: Model
    feasibility: Feasibility
    domain: Domain
    start: StartPoints
    acquisition: str | Acquisition
    scale: OutputScale

    @single_blas_thread
    def after(self, record: Record) -> State:
        """Of another record; what both have in common is not computed again."""
        found, feasibility = outcomes(record, d0=self.domain.d0, scale=self.scale), self.feasibility
        if found.constraints or self.outcomes.constraints:
            feasibility = feasibility.given(found.constraints)
        model = self.model.given(found)
        return replace(self, record=record, outcomes=found, model=model, feasibility=feasibility)

    @cached_property
    def deciding(self) -> Model:
        """The model that decides: given the values, and runs without one as fantasies."""
        fantasies, model = self.outcomes.fantasies, self.model.deciding
        return model.with_fantasies(fantasies) if len(fantasies) else model

    def point(self, i: int) -> Any:
        """The i-th observed point, as users see it."""
        return copy(self.record.trials[self.outcomes.numbers[i]].point)

    def value(self, i: int) -> float:
        """The i-th observed value, as it was told."""
        return float(self.record.trials[self.outcomes.numbers[i]].value or 0.0)

    @cached_property
    def best(self) -> Best:
        """The best observed point."""
        found = self.outcomes
        if not found.counts.any():
            seen = f"all {found.t} are infeasible" if found.t else "nothing was observed yet"
            raise InputError(f"best: {seen}")
        chosen, value, lower, upper = self.model.best(found)
        low, high = map(float, self.scale.interval(lower, upper))
        told = self.value(chosen) if value == found.y[chosen] else self.scale.value(value)
        return Best(self.point(chosen), told, low, high)

    @cached_property
    def alarm(self) -> AlarmEvent | None:
        """The time at which the values contradicted what was assumed, or what was promised."""
        return self.model.alarm or self.model.disproved(self)

    @cached_property
    @single_blas_thread
    def certificate(self) -> Certificate:
        """How far the best point can be from the optimum."""
        return self.model.certificate(self)

    def score(self) -> Score:
        """What the next point maximises."""
        model, found = self.deciding, self.outcomes
        first = model.first_score()
        if first is not None and not found.constraints:
            return first
        counted = found.y[found.counts]
        if found.constraints:
            best = float(counted.max()) if len(counted) else None
            return constrained(model, best, self.feasibility)
        values = counted if len(counted) else found.y
        best = float(values.max()) if len(values) else None
        usual = self.acquisition == self.model.acquisition
        return as_acquisition(model.acquisition if usual else self.acquisition)(model, best)
