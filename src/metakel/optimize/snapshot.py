"""What follows from a record: outcomes, the model given them, the best point, the certificate."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from metakel._arrays import single_blas_thread
from metakel.errors import InputError
from metakel.optimize.acquisition import Acquisition, Feasibility
from metakel.optimize.mixture import MixtureModel
from metakel.optimize.model import Best, Certificate, Model
from metakel.optimize.record import Outcomes, Record, outcomes
from metakel.optimize.regret import RegretCalibration, RegretScores
from metakel.optimize.safe import SafeModel
from metakel.search import Domain, StartPoints


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A record and all that an optimizer concludes from it; make it with `after`.

    Parameters
    ----------
    record : Record
    outcomes : Outcomes
        What the record means for a model.
    model : Model
        Given the outcomes; in the sign to be maximised.
    feasibility : Feasibility
        Given the constraints.
    domain, start, acquisition, sign
        Of the optimizer; ``sign`` is 1 to maximise, -1 to minimise.
    """

    record: Record
    outcomes: Outcomes
    model: Model
    feasibility: Feasibility
    domain: Domain
    start: StartPoints
    acquisition: str | Acquisition
    sign: float

    @classmethod
    def before_any_run(
        cls,
        model: Model,
        domain: Domain,
        start: StartPoints,
        acquisition: str | Acquisition,
        sign: float,
    ) -> Snapshot:
        """Of an empty record."""
        record = Record()
        found = outcomes(record, d0=domain.d0, sign=sign)
        ready, feasibility = model.prepare(start).condition(found), Feasibility(start.X)
        return cls(record, found, ready, feasibility, domain, start, acquisition, sign)

    @single_blas_thread
    def after(self, record: Record) -> Snapshot:
        """Of another record; what both have in common is not computed again."""
        before = self.record, self.outcomes
        found = outcomes(record, d0=self.domain.d0, sign=self.sign, before=before)
        feasibility = self.feasibility
        if found.constraints or self.outcomes.constraints:
            feasibility = feasibility.observe(found.constraints)
        model = self.model.condition(found)
        rest = (self.domain, self.start, self.acquisition, self.sign)
        return Snapshot(record, found, model, feasibility, *rest)

    @cached_property
    def outlook(self) -> Model:
        """The model that decides: given the values, and runs without one as fantasies."""
        fantasies = self.outcomes.fantasies
        return self.model.with_fantasies(fantasies) if len(fantasies) else self.model

    @cached_property
    def best(self) -> Best:
        """The best observed point."""
        found = self.outcomes
        if not found.counts.any():
            seen = f"all {found.t} are infeasible" if found.t else "nothing was observed yet"
            raise InputError(f"best: {seen}")
        chosen, value, lower, upper = self.model.best(found)
        low, high = sorted((self.sign * lower, self.sign * upper))
        point = self.record.trials[found.numbers[chosen]].point
        return Best(copy(point), self.sign * value, low, high)

    @property
    def no_certificate(self) -> str:
        """Why there will be no certificate, whatever is observed; empty where there may be one."""
        scores = self._regret_scores
        if scores is None:
            return self.model.no_bounds
        return scores if isinstance(scores, str) else ""

    @cached_property
    @single_blas_thread
    def certificate(self) -> Certificate:
        """How far the best point can be from the optimum."""
        model, found, scores = self.model, self.outcomes, self._regret_scores
        reason = self.no_certificate
        if not reason and not found.counts.any():
            reason = "nothing was observed yet"
        if not reason and isinstance(model, MixtureModel) and model.alarm is not None:
            reason = f"alarm after {model.alarm.time} values: {model.alarm.reason}"
        if not reason and isinstance(scores, RegretScores):
            reason = self._off_the_rule()
        if reason:
            return Certificate(inf, delta=model.delta, reason=reason)
        return self._by_replays(scores) if isinstance(scores, RegretScores) else self._by_norm()

    @property
    def _regret_scores(self) -> RegretScores | str | None:
        """Scores of past tasks that speak for this optimizer; None where a norm bound is used."""
        model = self.model
        if not isinstance(model, MixtureModel) or model.certificate == "norm bound":
            return None
        if isinstance(model.regret, str):
            return model.regret
        if self.acquisition != model.acquisition:
            return f"past tasks were replayed with acquisition={model.acquisition!r}, not this one"
        return model.regret.scores_for(self.domain, model.delta)

    def _off_the_rule(self) -> str:
        """Why replays say nothing of this run; empty where they do."""
        assert isinstance(self.model, MixtureModel)
        if self.outcomes.constraints:
            return "past tasks were replayed without constraints"
        if not self.model.trace.best:
            return "the first point is not the one that this optimizer asks for"
        return ""

    def _by_replays(self, scores: RegretScores) -> Certificate:
        model, found = self.model, self.outcomes
        assert isinstance(model, MixtureModel)
        values, factor = np.where(found.counts, found.y, -inf), scores.factor(model.delta)
        if scores.basis == "emulated":
            # Values may be noisy, so the ceiling would be about them. What holds is the bound of
            # the last time, for the best point of that time.
            values, regret = model.trace.last(values, factor, scores.horizon)
        else:
            regret = model.trace.ceiling(factor, scores.horizon) - values.max()
        best, top = int(np.argmax(values)), int(np.argmax(np.where(found.counts, found.y, -inf)))
        most = model.limits[1] - float(found.y[top])
        limit = None
        if most <= regret and most < inf:  # it says more, and says it of the best point of all
            best, limit = top, self.sign * model.limits[1] + 0.0  # and no -0
        value = float(found.y[best])
        return Certificate(
            max(min(regret, most), 0.0),
            copy(self.record.trials[found.numbers[best]].point),
            self.sign * value,
            self.sign * value,
            model.delta,
            basis=scores.basis,
            horizon=scores.horizon,
            tasks=scores.tasks,
            limit=limit,
        )

    def _by_norm(self) -> Certificate:
        model, found, reason = self.model, self.outcomes, ""
        chosen, lower, upper = model.certain(found)
        highest = model.largest_upper(self.domain, self.start)
        regret = max(highest, upper) - lower
        if not regret < inf:
            reason = (
                "nothing bounds the values far from the observed points; more observations, a norm "
                "bound, base kernels with derivatives or a finite domain (grid, candidates) do"
            )
        low, high = sorted((self.sign * lower, self.sign * upper))
        point = copy(self.record.trials[found.numbers[chosen]].point)
        limited = isinstance(model, SafeModel)
        return Certificate(regret, point, low, high, model.delta, reason, safe=limited)


def spread_of(model: Model) -> float | None:
    """The usual range of the values of a task, where it is known."""
    found = model.regret if isinstance(model, MixtureModel) else None
    return found.spread if isinstance(found, RegretCalibration) else None
