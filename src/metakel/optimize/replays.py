r"""What replays on past tasks say of the regret of a search with a prior: conformal certificates.

The optimizer is a fixed rule, and tasks are exchangeable. The rule was replayed on m' past tasks.
With r_t the regret after t values and a shape g_t that the model alone gives,

.. math:: g_t = \frac{\max_x (\mu_t + 1.5 \sigma_t)(x) - \mathrm{best}_t
          + w s\,(1 + (5/t)^3)}{\min(t, 20)},

the score of a task is S = max r_t / g_t over all t <= T before an alarm, which ends the promise.
Let q be the ceil((1 - delta)(m' + 1))-th smallest score. Then on a new task r_t <= q g_t for all
these t at once, with probability 1 - delta, whatever the model is worth (Theorem 18 of
``docs/theory.md``). The same holds for tasks that no alarm ends, if q is taken from those; the
larger of the two serves both. So no value exceeds the smallest best_t + q g_t seen so far: the
ceiling, which stays true after time T, too. It is about values, not about a function behind noisy
ones; certificates of a space do without it.

The shape follows the task and the clock. The term w s, with s the usual scale of a task, keeps it
from 0 where a model is sure and wrong. It gives room to the first values, after which nobody stops.
What was not found in 20 values is not found at the same rate afterwards, so time counts up to 20.

What must be exchangeable is a task together with its rows: where past rows are close to the optima
that an optimizer looked for, a table of other rows is another kind of task (`unlike`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from metakel._arrays import TINY, Array, as_number, as_numbers, probability
from metakel.confidence.fallback import AlarmEvent
from metakel.errors import InputError
from metakel.kernels.nystrom import spread_rows
from metakel.optimize.alarm import above_ceiling
from metakel.optimize.certificate import Certificate, Replayed, Stopping
from metakel.search import Domain

if TYPE_CHECKING:
    from metakel.optimize.mixture import Mixture
    from metakel.optimize.state import State

Basis = Literal["exact", "folds", "emulated"]
# Chosen on development splits among 60 shapes, and confirmed on others (docs/benchmarks).
SCALE_WEIGHT, EARLY, PLATEAU = 0.3, 5, 20
# A table of more than so many times the rows of the replayed ones is harder to search than these.
LARGER = 1.25
CONFIDENT = 0.9
ROUNDING = 1e-9
COMPARED = 100  # rows of the new table
PERMUTATIONS, LEVEL = 99, 0.01
WIDER = 1.15  # than all past tables, or narrower


def shape(upper: float, best: float, scale: float, t: int) -> float:
    """g_t: ``upper`` is the largest mean plus 1.5 standard deviations that is left."""
    least = SCALE_WEIGHT * scale * (1 + (EARLY / t) ** 3)
    return (max(upper - best, 0.0) + least) / min(t, PLATEAU)


@dataclass(frozen=True)
class RegretTrace:
    """What the replayed rule would have seen on this task, as far as its points have values.

    The rule decides by what it asked for before, so that values may come in any order, and between
    others. It goes on as long as the value that it asks for next is known.
    """

    best: tuple[float, ...] = ()  # after each of its values
    shapes: tuple[float, ...] = ()  # g_t after each of them
    rows: tuple[int, ...] = ()  # which of the observed values these are

    def after(self, row: int, best: float, g: float) -> RegretTrace:
        """After one more value at a point that the rule chose."""
        return RegretTrace((*self.best, best), (*self.shapes, g), (*self.rows, row))

    def leading(self, t: int) -> RegretTrace:
        """As far as the first ``t`` values alone."""
        kept = next((i for i, row in enumerate(self.rows) if row >= t), len(self.rows))
        return RegretTrace(self.best[:kept], self.shapes[:kept], self.rows[:kept])

    def ceilings(self, factor: float, horizon: int) -> Array:
        """(T,) what no value exceeds: the smallest best + q g so far, up to the horizon."""
        best, shapes = (np.array(of[:horizon]) for of in (self.best, self.shapes))
        return np.asarray(np.minimum.accumulate(best + factor * shapes))

    def ceiling(self, factor: float, horizon: int) -> float:
        """The last of the `ceilings`; inf where there is none."""
        return float(self.ceilings(factor, horizon).min(initial=inf))

    def above(self, values: Array, factor: float, horizon: int) -> tuple[int, float, float] | None:
        """When the first of the values (t,) exceeded a ceiling, the value, and the ceiling."""
        ceilings = self.ceilings(factor, horizon)
        known = 1 + np.maximum.accumulate(np.array(self.rows[:horizon], dtype=int))
        exceeds = values[:, None] > ceilings + ROUNDING * (1 + np.abs(ceilings))  # (t, T)
        if not exceeds.any():
            return None
        times = np.where(
            exceeds, np.maximum.outer(np.arange(1, len(values) + 1), known), len(values) + 1
        )
        i, j = np.unravel_index(int(times.argmin()), times.shape)
        return int(times[i, j]), float(values[i]), float(ceilings[j])

    def last(self, values: Array, factor: float, horizon: int) -> tuple[int, float]:
        """Which of the values (t,) was best when the rule was replayed last, and q g then."""
        rows = self.rows[:horizon]
        return rows[int(np.argmax(values[list(rows)]))], factor * self.shapes[len(rows) - 1]


@dataclass(frozen=True, eq=False)
class RegretScores:
    """Scores of the past tasks on which the optimizer was replayed.

    The basis is "exact" where the prior was learned from other tasks. In "folds" every task was
    replayed with a prior learned from the other folds, which is approximate. "emulated": on draws
    of a Gaussian process given the task's runs, searched over the whole space.
    """

    later: ClassVar[tuple[str, ...]] = ("rows",)

    scores: Array  # (m',) increasing
    lasting: Array  # (m'',) of tasks that no alarm ended before the best point was found
    basis: Basis
    horizon: int  # for how many values the optimizer was replayed
    points: int = 0  # rows of a replayed table; 0 for a space
    # (m', T) r_t and g_t of every replay, NaN after its end, for the rule that stops; without any,
    # a search stops once the certificate is small enough.
    regrets: Array = field(default_factory=lambda: np.empty((0, 0)))
    shapes: Array = field(default_factory=lambda: np.empty((0, 0)))
    # (j, k, d0) some rows of some of the replayed tables, to compare those of a new table with.
    rows: Array = field(default_factory=lambda: np.empty((0, 0, 0)))

    def __post_init__(self) -> None:
        for name in ("scores", "lasting"):
            found = np.sort(as_numbers(name, getattr(self, name), (None,), low=0))
            object.__setattr__(self, name, found)
        as_number("horizon", self.horizon, 1)
        as_number("points", self.points, 0)
        if self.regrets.shape != self.shapes.shape or self.regrets.ndim != 2:
            raise InputError(
                f"regrets have shape {self.regrets.shape} and shapes {self.shapes.shape}; expected "
                "the same, one row for every replay"
            )

    @property
    def replayed(self) -> Replayed | None:
        """What the rule that stops is chosen from; None where replays were not kept."""
        return Replayed(self.regrets, self.shapes) if self.regrets.size else None

    @property
    def tasks(self) -> int:
        """How many tasks vouch: those that no alarm ended."""
        return len(self.lasting)

    def missing(self, delta: float) -> int:
        """How many more tasks are needed for a promise at ``delta``."""
        return max(ceil(1 / probability("delta", delta) - 1 - 1e-9) - self.tasks, 0)

    def factor(self, delta: float) -> float:
        """q: the ceil((1 - delta)(m' + 1))-th smallest score; inf with too few tasks.

        Of all tasks or of those that lasted, whichever is larger.
        """
        return max(conformal_quantile(delta, of) for of in (self.scores, self.lasting))

    def no_smaller_than(self, recorded: RegretScores, delta: float) -> RegretScores:
        """With regrets that are larger by one factor, so that q is at least that of ``recorded``.

        Emulated tasks are such as the model expects, and real ones are not.
        """
        least, q = recorded.factor(delta), self.factor(delta)
        if q >= least:
            return self
        if q == 0:
            return replace(recorded, basis=self.basis, points=self.points)
        grown = {n: least / q * getattr(self, n) for n in ("scores", "lasting", "regrets")}
        return replace(self, **grown)

    def failure_probability(self, delta: float) -> float:
        """How often a promise at ``delta`` may fail with this very history, with confidence 0.9.

        delta is the average over histories; for one history the probability is Beta distributed.
        """
        from scipy.special import betaincinv

        rank = conformal_rank(delta, self.tasks)
        if rank > self.tasks:
            return 1.0
        return float(betaincinv(self.tasks + 1 - rank, rank, CONFIDENT))


@dataclass(frozen=True, eq=False)
class RegretCalibration:
    """What replays on past tasks say of the regret, for tables and for whole spaces."""

    table: RegretScores | str  # or why there are none
    space: RegretScores | str
    spread: float  # the usual range of the values of a task, in units of the output

    def __post_init__(self) -> None:
        as_number("spread", self.spread, TINY)

    @property
    def longest(self) -> int:
        """The larger of the two horizons; 0 where nothing was replayed."""
        found = (self.table, self.space)
        return max((s.horizon for s in found if not isinstance(s, str)), default=0)

    def scores_for(
        self, domain: Domain, delta: float, emulated: Callable[[Array], RegretScores] | None = None
    ) -> RegretScores | str:
        """The scores that speak for an optimizer, or why none do.

        Replayed tables speak for one with as many rows, chosen in the same way. For others tasks
        are ``emulated`` at their rows.
        """
        Z = domain.points
        found = self.space if Z is None else self.table
        if isinstance(found, str):
            return found
        if Z is None and domain.narrowed:
            return f"past tasks were replayed {domain.narrowed}"
        other = Z is not None and (len(Z) > LARGER * found.points or unlike(found.rows, Z))
        if other and emulated is None:
            return (
                f"the rows of this table are not those of past tables, of about {found.points} "
                "rows, which cannot stand for it"
            )
        missing = found.missing(delta)
        if missing:
            kind = "emulated" if found.basis == "emulated" else "past"
            return (
                f"{found.tasks} {kind} tasks are too few for delta = {delta:g}; {missing} more are "
                f"needed, or a delta of at least {1 / (found.tasks + 1):.2g}"
            )
        if other and emulated and Z is not None:
            return emulated(Z).no_smaller_than(found, delta)
        return found


def conformal_rank(delta: float, count: int) -> int:
    """Which of ``count`` scores, by size, the next one exceeds with probability ``delta`` at most.

    Above ``count`` where there are too few.
    """
    return ceil((1 - probability("delta", delta)) * (count + 1) - 1e-9)


def conformal_quantile(delta: float, scores: Array) -> float:
    """Which score, of these increasing ones, the next is not above with probability 1 - delta."""
    rank = conformal_rank(delta, len(scores))
    return float(scores[rank - 1]) if rank <= len(scores) else inf


def unlike(past: Array, new: Array) -> bool:
    """Whether rows of past tables (j, k, d0) and of a new one (n, d0) differ in distribution.

    The new table is wider or narrower than all past ones, by the mean distance of its rows; or its
    rows are elsewhere, by a permutation test at 1 % of the energy distance: how much further they
    are from past rows than rows of the same table are. Without past rows nothing is compared.
    """
    if not past.size or past.shape[1] < 2 or len(new) < 2:
        return False
    tables, k, d0 = past.shape
    widths = [float(_apart(table).mean()) for table in past]
    width = float(_apart(new).mean()) * _pairs(len(new)) / _pairs(k)
    if not min(widths) / WIDER <= width <= WIDER * max(widths):
        return True
    past, new = past.reshape(tables * k, d0), spread_rows(new, COMPARED)
    apart = _apart(np.concatenate([past, new]))
    rng = np.random.default_rng(0)
    labels = np.repeat([1.0 / len(past), -1.0 / len(new)], [len(past), len(new)])
    shuffled = np.array([labels, *(rng.permutation(labels) for _ in range(PERMUTATIONS))])
    energies = -((shuffled @ apart) * shuffled).sum(axis=1)
    rank = 1 + int((energies[1:] >= energies[0]).sum())
    return rank <= LEVEL * (PERMUTATIONS + 1)


def _pairs(n: int) -> float:
    """The mean over all pairs counts a row with itself, which is more of few rows."""
    return n / (n - 1)


def _apart(rows: Array) -> Array:
    """(n, n) distances."""
    squares = (rows**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)))


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
        reason, alarm = "", state.alarm or above_ceiling(self.model, self.state, scores)
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
        return None if isinstance(scores, str) else above_ceiling(self.model, self.state, scores)

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
