"""The certificate of a prior's model: what replays on past tasks say of the regret of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from metakel._arrays import Array
from metakel.confidence.fallback import AlarmEvent
from metakel.optimize.certificate import Certificate, RegretScores
from metakel.optimize.stopping import Stopping

if TYPE_CHECKING:
    from metakel.optimize.mixture import Mixture
    from metakel.optimize.state import State


@dataclass(frozen=True, eq=False)
class ByReplays:
    """What replays say of the search that a model and its state stand for."""

    model: Mixture
    state: State

    def certificate(self) -> Certificate:
        """How far the best point can be from the optimum, by replays on past tasks."""
        state, delta = self.state, self.model.delta
        found, scores = state.outcomes, self._scores(self.model.prior.emulated)
        if isinstance(scores, str):
            return Certificate(inf, delta=delta, reason=scores, final=True)
        reason, alarm = "", state.alarm or self._above_the_ceiling(scores)
        if not found.counts.any():
            reason = "nothing was observed yet"
        elif alarm is not None:
            reason = f"alarm after {alarm.time} values: {alarm.reason}"
        elif found.constraints:
            reason = "past tasks were replayed without constraints"
        elif not self.model.trace.best:
            reason = "the first point is not the one that this optimizer asks for"
        if reason:
            stopping = self._stopping(scores, 1.0)
            return Certificate(inf, delta=delta, reason=reason, stopping=stopping)
        return self._by_replays(scores)

    def disproved(self) -> AlarmEvent | None:
        """A value above the ceiling: on a task like the past ones with probability delta at most.

        Tasks are not emulated for it, so that no decision waits for them.
        """
        scores = self._scores()
        return None if isinstance(scores, str) else self._above_the_ceiling(scores)

    def _above_the_ceiling(self, scores: RegretScores) -> AlarmEvent | None:
        """On spaces values may be noisy, and there is no ceiling of them."""
        found = self.state.outcomes
        if not scores.points or found.constraints:
            return None
        above = self.model.trace.above(found.y, scores.factor(self.model.delta), scores.horizon)
        if above is None:
            return None
        time, high, ceiling = above
        high, ceiling = self.state.scale.value(high), self.state.scale.value(ceiling)
        return AlarmEvent(
            time,
            f"{high:.4g} is better than past tasks allow, {ceiling:.4g} at most: the certificate "
            "is disproved, and the task is unlike them",
        )

    def _scores(
        self, emulated: Callable[[Array], RegretScores] | None = None
    ) -> RegretScores | str:
        """Scores of past tasks that speak for this optimizer, or why there are none."""
        regret = self.model.prior.regret
        if isinstance(regret, str):
            return regret
        if self.state.acquisition != self.model.acquisition:
            named = f"acquisition={self.model.acquisition!r}"
            return f"past tasks were replayed with {named}, not this one"
        return regret.scores_for(self.state.domain, self.model.delta, emulated)

    def _stopping(self, scores: RegretScores, unit: float) -> Stopping | None:
        """The rule by which this search stops, and the spread in units of the output."""
        if self.model.spread is None:
            return None
        shapes, replayed = self.model.trace.shapes[: scores.horizon], scores.replayed
        delta = self.model.delta
        if scores.basis == "emulated" and replayed is not None and replayed.too_few(delta):
            replayed = None  # the certificate itself, if it is small enough
        return Stopping(unit * self.model.spread, unit, delta, replayed, shapes)

    def _by_replays(self, scores: RegretScores) -> Certificate:
        found, scale = self.state.outcomes, self.state.scale
        values, factor = np.where(found.counts, found.y, -inf), scores.factor(self.model.delta)
        best = top = int(np.argmax(values))
        if not scores.points:
            # Values may be noisy, so the ceiling would be about them. What holds is the bound of
            # the last time, for the best point of that time.
            best, regret = self.model.trace.last(values, factor, scores.horizon)
        else:
            regret = self.model.trace.ceiling(factor, scores.horizon) - values.max()
        most, end = self.model.output_range[1] - float(found.y[top]), None
        if most <= regret and most < inf:  # it says more, and says it of the best point of all
            best, end = top, scale.value(self.model.output_range[1])
        value, seen = self.state.value(best), float(found.y[best])
        unit = 1.0
        if scale.log and self.model.spread:
            unit = scale.difference(seen, self.model.spread) / self.model.spread
        return Certificate(
            scale.difference(seen, max(min(regret, most), 0.0)),
            self.state.point(best),
            value,
            value,
            self.model.delta,
            basis=scores.basis,
            tasks=scores.tasks,
            among="candidate" if scores.points else "",
            range_end=end,
            stopping=self._stopping(scores, unit),
        )
