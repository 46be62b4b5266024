"""The model of a prior: learned processes beside a cold start, weighed by their evidence.

Of more values than a Gaussian process can take, a part decides (`representative`). Alarm and trace
rest on the first ones, which is valid: they were not selected by what came later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.confidence.fallback import AlarmEvent
from metakel.gp.averages import (
    FLAT,
    TINY,
    UCB_WIDTH,
    VARIANCE_WEIGHTS,
    MixtureWeights,
    drawn_function,
    expected_improvement,
    improvement_gradient,
    largest_improvement,
    predict,
    ucb_width,
    upper_bound,
    upper_bound_gradient,
)
from metakel.gp.factor import Factor, Prediction, common_rows
from metakel.gp.success import Runs, SuccessChance
from metakel.optimize.alarm import alarm_after
from metakel.optimize.certificate import Certificate
from metakel.optimize.model import BestRuns, Chance, Model, Score, Search, spread_batch
from metakel.optimize.outcomes import MOST, Outcomes, nothing, representative
from metakel.optimize.replays import ByReplays, RegretTrace, shape
from metakel.optimize.task_prior import TaskPrior, refitted
from metakel.search import StartPoints

if TYPE_CHECKING:
    from metakel.optimize.state import State

# Points whose scores differ by less than this share of their range are equally good choices.
TIED = 1e-6
NO_FLUKE = 3  # failures of a task whose past had none, after which the search leaves the place
# Processes of a smaller weight do not show in a sum with the others.
ROUNDING = 1e-9
# A history of a smaller weight decides nothing: a cold start does that is fitted to the values.
OVERRULED = 0.3


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Model):
    """Gaussian processes for the new task, averaged by their posterior weights; `of` makes it.

    Parameters
    ----------
    prior : TaskPrior
        What was believed before the first value.
    factor : Factor
        The processes given the values that decide.
    outcomes : Outcomes
    trace : RegretTrace
        Best values and shapes of the certificate, along the replayed rule.
    alarm : AlarmEvent or None
        The first time at which the values contradicted the history: its weight is lost, or level
        or scale are none of a past task. Nothing is promised any more; decisions go on by the
        posterior weights.
    ahead : Factor, optional
        With runs without a value as fantasies.
    followed : Factor, optional
        Given the values of the trace, where these are not all values in their order.
    """

    kind: ClassVar[str] = "priors.mixture"
    anywhere: ClassVar[bool] = True

    prior: TaskPrior
    factor: Factor
    outcomes: Outcomes
    trace: RegretTrace = field(default_factory=RegretTrace)
    alarm: AlarmEvent | None = None
    ahead: Factor | None = None
    followed: Factor | None = None
    cold: Mixture | None = None  # what decided when the history was overruled last
    failing: Array | None = None  # chances at the start points that a run fails, by past tasks

    @classmethod
    def of(cls, prior: TaskPrior) -> Self:
        """Before any value."""
        return cls(prior, prior.factor(np.zeros((0, prior.d0))), nothing(prior.d0))

    @property
    def d0(self) -> int:
        return self.prior.d0

    @property
    def acquisition(self) -> str:
        """Expected improvement for a cold start."""
        return "ei" if self.prior.refits else "ucb"

    @property
    def _variance_weights(self) -> tuple[float, float]:
        """In expected improvement; of a cold start, the function itself improves."""
        return (1.0, 0.0) if self.prior.refits else VARIANCE_WEIGHTS

    def opening(self, tried: Array) -> Array:
        first = self.prior.portfolio
        if first is None or self.overruled or len(tried) >= len(first):
            return tried[:0]
        return first[[not _is_among(x, tried) for x in first]]

    @property
    def scale(self) -> float:
        """The usual scale of a task."""
        return self.prior.task.scale

    @property
    def output_range(self) -> tuple[float, float]:
        return self.prior.output_range

    @property
    def best_runs(self) -> BestRuns | None:
        return self.prior.best_runs

    @property
    def t(self) -> int:
        """Number of values."""
        return self.outcomes.t

    @property
    def _Z(self) -> Array:
        """(N, d0) start points of a search."""
        return self.factor.frame.Z

    def prepare(self, start: StartPoints) -> Self:
        """Ready to be searched from these points: their predictions are kept up to date."""
        success = self.prior.success
        failing = None if success is None else success.failing(start.X)
        return replace(self, factor=self.prior.factor(start.X), failing=failing)

    # Values and fantasies

    def given(self, outcomes: Outcomes) -> Self:
        """Given all outcomes of a record; what both have in common is not computed again."""
        model = self._given(outcomes)
        return replace(model, cold=model.deciding) if model.overruled else model

    def _given(self, outcomes: Outcomes) -> Self:
        now = self.outcomes
        shared = common_rows(now.X, now.y, outcomes.X, outcomes.y)
        if outcomes.t <= MOST:
            return self._grown(outcomes, shared)
        first = self
        if min(shared, now.t) < MOST:
            first = self._grown(outcomes.first(MOST), shared)
        rows, selected = representative(outcomes)
        factor = self._factor(outcomes.X[rows], outcomes.y[rows], selected)
        return replace(first, outcomes=outcomes, factor=factor, ahead=None)

    def _grown(self, outcomes: Outcomes, shared: int) -> Self:
        """With so many values as before, and then others."""
        model = self
        if shared < self.t:
            kept = self.alarm is not None and self.alarm.time <= shared
            model = self._with(outcomes.first(shared), self.trace.leading(shared))
            model = replace(model, alarm=self.alarm if kept else None, followed=None)
        followed = model._following(outcomes)
        whole = followed.trace.rows == tuple(range(outcomes.t))
        own = followed if whole else model
        found = own._with(outcomes, followed.trace)
        found = replace(found, followed=None if whole else followed.factor, alarm=model.alarm)
        if found.alarm is not None:
            return found
        return replace(found, alarm=alarm_after(shared, found.factor, found.prior))

    def _with(self, outcomes: Outcomes, trace: RegretTrace) -> Self:
        factor = self._factor(outcomes.X, outcomes.y)
        return replace(self, outcomes=outcomes, factor=factor, trace=trace, ahead=None)

    def _factor(self, X: Array, y: Array, together: int = 0) -> Factor:
        """Given values (t, d0) and (t,), of which the first were selected together."""
        prior, factor = self.prior, self.factor
        if common_rows(factor.X, factor.y, X, y) == len(y) == factor.t:
            return factor
        if not len(y):
            return prior.factor(self._Z)
        if prior.refits:
            return refitted(prior, factor, X, y)
        if not common_rows(factor.X[:1], factor.y[:1], X, y):
            factor = Factor.within(prior.at_level_of(factor.frame, X[0], float(y[0])))
        return factor.given(X, y, together)

    def _following(self, outcomes: Outcomes) -> Self:
        """The replayed rule on this task: given the values that it would have asked for, in turn.

        It goes on as long as the next of them is known, in whatever order they were told.
        """
        trace, factor = self.trace, self.followed or self.factor
        model = replace(self, factor=factor)._with(outcomes.taking(trace.rows), trace)
        left = [row for row in range(outcomes.t) if row not in trace.rows]
        while left and len(model.trace.rows) < self.prior.longest and len(self._Z):
            chosen = model._chosen(outcomes.X[left])
            if chosen is None:
                break
            rows = (*model.trace.rows, left.pop(chosen))
            after = model._with(outcomes.taking(rows), model.trace)
            if alarm_after(len(rows) - 1, after.factor, after.prior) is not None:
                break
            best = float(after.outcomes.y.max())
            bound = after._bound(UCB_WIDTH).values(self._Z)
            top = np.delete(bound, after._tried).max(initial=-inf)
            g = shape(float(top), best, self.scale, len(rows))
            model = replace(after, trace=after.trace.after(rows[-1], best, g))
        return model

    def _chosen(self, X: Array) -> int | None:
        """The first of the points (k, d0) that the replayed rule may choose; None for none.

        It is to begin with, or scores as high as any start point that is left. A table that lacks
        the points to begin with is searched by the score, here as in replays.
        """
        first = self.opening(self.outcomes.X)
        begins = [i for i, x in enumerate(X) if _is_among(x, first)]
        if begins:
            return begins[0]
        rule = self.first_score() or self._rule
        scores = rule.values(self._Z).copy()
        scores[self._tried] = -inf
        finite = scores[np.isfinite(scores)]
        if not len(finite):
            return 0
        numbers = [self.factor.frame.candidate(x) for x in X]
        here = np.array([-inf if number is None else scores[number] for number in numbers])
        elsewhere = [i for i, number in enumerate(numbers) if number is None]
        if elsewhere:
            here[elsewhere] = rule.values(X[elsewhere])
        high = here >= finite.max() - TIED * (np.ptp(finite) + TIED)
        return int(high.argmax()) if high.any() else None

    @property
    def _tried(self) -> list[int]:
        """Which start points have a value."""
        numbers = map(self.factor.frame.candidate, self.outcomes.X)
        return [number for number in numbers if number is not None]

    @property
    def _rule(self) -> Score:
        """What was maximised in the replays."""
        if self.overruled:
            return self.deciding._rule
        if self.prior.refits:
            return self.expected_improvement(float(self.outcomes.y.max()))
        return self.upper_bound()

    def with_fantasies(self, X: Array) -> Self:
        """Scores take the points as every process predicts them, minus one standard deviation.

        So the search keeps away from them. Nothing was observed, so the weights of processes and
        scales and the means of `predict` stay; standard deviations shrink.
        """
        return replace(self, ahead=self.factor.with_fantasies(X)) if len(X) else self

    def choose(self, score: Score, search: Search) -> Array:
        """The best point (d0,) by the score, apart from those that are being run."""
        return spread_batch(score, search)

    # Weights

    @property
    def overruled(self) -> bool:
        """Whether the values speak against the history, so that it decides nothing."""
        return self.prior.guarded and self.t > 0 and self.transfer_weight < OVERRULED

    @cached_property
    def deciding(self) -> Mixture:
        if not self.overruled:
            return self
        cold = self.cold
        if cold is None:
            factor = self.prior.cold.factor(self._Z)
            cold = replace(Mixture.of(self.prior.cold), factor=factor, failing=self.failing)
        return cold.given(self.outcomes)

    @cached_property
    def mix(self) -> MixtureWeights:
        """Posterior weights of processes and scales."""
        return self.prior.average(self.factor)

    @property
    def transfer_weight(self) -> float:
        """Posterior weight of what was learned, however noisy the task, against the cold start."""
        return 0.0 if self.prior.refits else float(self.mix.members[self.prior.learned].sum())

    @property
    def log_evidence(self) -> float:
        """Log density of the observed values, up to a constant."""
        return self.mix.log_evidence

    @property
    def no_bounds(self) -> str:
        """Why there are no confidence bounds."""
        return "a prior decides without one; `prior.confidence()` makes one"

    @property
    def delta(self) -> float:
        """Probability with which a certificate may fail."""
        return self.prior.delta

    @property
    def spread(self) -> float | None:
        found = self.prior.regret
        return None if isinstance(found, str) else found.spread

    def certificate(self, state: State) -> Certificate:
        """How far the best point can be from the optimum, by replays on past tasks."""
        return ByReplays(self, state).certificate()

    def disproved(self, state: State) -> AlarmEvent | None:
        """A value above the ceiling: on a task like the past ones with probability delta at most.

        Tasks are not emulated for it, so that no decision waits for them.
        """
        return ByReplays(self, state).disproved()

    # Predictions and scores

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """(n,) means and standard deviations of the objective; fantasies shrink the latter."""
        if Z is not self._Z:
            return self._predict(Z)
        mean, sd = self._at_start
        return mean.copy(), sd.copy()

    @cached_property
    def _at_start(self) -> tuple[Array, Array]:
        return self._predict(self._Z)

    def _predict(self, Z: Array) -> tuple[Array, Array]:
        found = self._at(Z)
        if self.ahead is not None:
            found = replace(replace(self, ahead=None)._at(Z), variance=found.variance)
        return predict(found, self.mix)

    def _at(self, Z: Array, kept: NDArray[np.bool_] | None = None) -> Prediction:
        """Of all processes, or of those kept."""
        factor = self.ahead or self.factor
        if Z is not self._Z:
            return factor.elsewhere(kept).at(Z)
        return factor.prediction if kept is None else factor.prediction.of(kept)

    def first_score(self) -> Score | None:
        """Before any value: the top of the mean; without one, the centre of the space."""
        if self.t or self.ahead is not None:
            return None
        if not self.factor.frame.caches[0].mean.any():
            return Score(
                lambda Z: -np.einsum("nd,nd->n", Z, Z),
                lambda Z: (-np.einsum("nd,nd->n", Z, Z), -2 * Z),
            )

        def gradient(Z: Array) -> tuple[Array, Array]:
            found = self.factor.elsewhere(first).gradient(Z)
            return found.value.slope[0], found.slope[0]

        first = np.arange(len(self.factor.frame.processes)) == 0
        return self._weighed(Score(lambda Z: self._at(Z, first).slope[0], gradient), 1.0)

    @property
    def _success(self) -> SuccessChance | None:
        """Where runs fail: by past tasks, or where these say nothing by failures of this one."""
        if self.prior.success is not None or len(self.outcomes.failed) < NO_FLUKE:
            return self.prior.success
        return SuccessChance.unknown(self._Z.shape[1])

    def _weighed(self, score: Score, unit: float) -> Score:
        """The score plus so many units of the log chance that a run gives a value."""
        success, slopes = self._success, score.gradient
        if success is None:
            return score
        runs = Runs(self.outcomes.X, self.outcomes.failed)

        def values(Z: Array) -> Array:
            known = self.failing if Z is self._Z else None
            return score.values(Z) + unit * success.log_chance(Z, runs, known)

        if slopes is None:
            return Score(values)

        def gradient(Z: Array) -> tuple[Array, Array]:
            value, slope = slopes(Z)
            more, its_slope = success.log_chance_gradient(Z, runs)
            return value + unit * more, slope + unit * its_slope

        return Score(values, gradient)

    @property
    def width(self) -> float:
        """Wider after every fourth run (`ucb_width`), with a value or without."""
        fantasies = 0 if self.ahead is None else self.ahead.t - self.factor.t
        return ucb_width(self.t + fantasies)

    def upper_bound(self) -> Score:
        """Mean plus `width` standard deviations, averaged over processes and scales."""
        return self._bound(self.width)

    def _bound(self, width: float) -> Score:
        mix, kept = self.mix.without_negligible(ROUNDING)
        factor = self.ahead or self.factor

        def values(Z: Array) -> Array:
            return upper_bound(self._at(Z, kept), mix, width)

        def gradient(Z: Array) -> tuple[Array, Array]:
            return upper_bound_gradient(factor.elsewhere(kept).gradient(Z), mix, width)

        score = Score(values, gradient)
        return self._weighed(score, self.factor.task.scale)

    def drawn(self) -> Score:
        """A function drawn from the posterior, another one for every record."""
        factor = self.ahead or self.factor
        seed = (crc32(self.outcomes.y.tobytes()), self.t, factor.t)
        values = drawn_function(factor, self.mix, np.random.default_rng(seed))
        return self._weighed(Score(values), self.factor.task.scale)

    def expected_improvement(self, best: float, chance: Chance | None = None) -> Score:
        """Of the value to be seen, averaged, times the chance that a point is feasible.

        Its logarithm, which is easier to climb. Where no improvement is to be expected at any start
        point: the upper bound.
        """
        mix, kept = self.mix.without_negligible()
        factor, weights = self.ahead or self.factor, self._variance_weights
        at_start = self._improvement_at_start(best, chance) if len(self._Z) else None
        # Feasible points may have little to offer, and still more than infeasible ones.
        least = FLAT * self.factor.task.scale if chance is None else 0.0
        if at_start is not None and at_start.max() <= least:
            return self._cautious_bound(chance)
        logs_at_start = None if at_start is None else _log(at_start)

        def values(Z: Array) -> Array:
            if logs_at_start is not None and Z is self._Z:
                return logs_at_start
            gain = expected_improvement(self._at(Z, kept), mix, best, weights)
            return _log(gain if chance is None else gain * chance(Z))

        def gradient(Z: Array) -> tuple[Array, Array]:
            found = factor.elsewhere(kept).gradient(Z)
            gain, slope = improvement_gradient(found, mix, best, weights)
            return _log(gain), slope / np.maximum(gain, TINY)[:, None]

        return self._weighed(Score(values, gradient if chance is None else None), 1.0)

    def _improvement_at_start(self, best: float, chance: Chance | None) -> Array:
        """(N,) at the start points; -inf where another is certainly better."""
        prediction, weights = self._at(self._Z), self._variance_weights
        # Where runs may fail, points of less improvement may be the better choice.
        if chance is None and self._success is None:
            return largest_improvement(prediction, self.mix, best, weights)
        found = expected_improvement(prediction, self.mix, best, weights)
        return found if chance is None else found * chance(self._Z)

    def _cautious_bound(self, chance: Chance | None) -> Score:
        """The upper bound; a chance cannot weigh it, as it may be negative, so it is added."""
        bound = self.upper_bound()
        if chance is None:
            return bound
        scale = self.factor.task.scale
        return Score(lambda Z: bound.values(Z) + scale * _log(chance(Z)))

    def describe(self) -> str:
        """How far the history is trusted."""
        if not self.prior.learned.any():
            return "no history"
        return f"trust {self.transfer_weight:.2f} in the history"

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of what the model was made from."""
        return {"kind": self.kind, **self.prior.store()}


def _log(values: Array) -> Array:
    """Of numbers that may be 0; -inf stays."""
    return np.where(values < 0, -np.inf, np.log(np.maximum(values, TINY)))


def _is_among(x: Array, X: Array) -> bool:
    """Whether ``x`` (d0,) is one of the points ``X`` (n, d0)."""
    return bool((np.abs(X - x) <= TIED).all(axis=1).any())
