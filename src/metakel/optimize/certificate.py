r"""The best point, and how far it can be from the optimum: a `Best` and a `Certificate`.

With a norm bound, a certificate comes from the bounds of the model. With a prior it is conformal:
calibrated on past tasks.

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from math import ceil, inf, isfinite
from typing import Any, ClassVar, Literal

import numpy as np

from metakel._arrays import TINY, Array, as_number, as_numbers, is_number, shown
from metakel._html import card, paragraph
from metakel.errors import InputError
from metakel.optimize.rows import unlike
from metakel.optimize.stopping import Replayed, Stopping
from metakel.search import Domain

Basis = Literal["exact", "folds", "emulated"]
CertificateBasis = Literal["norm bound", "exact", "folds", "emulated"]
UNBOUNDED = (
    "nothing bounds the values far from the observed points; more observations, a norm bound, base "
    "kernels with derivatives or a finite domain (grid, candidates) do"
)
# Chosen on development splits among 60 shapes, and confirmed on others (docs/benchmarks).
SCALE_WEIGHT, EARLY, PLATEAU = 0.3, 5, 20
# A table of more than so many times the rows of the replayed ones is harder to search than these.
LARGER = 1.25
CONFIDENT = 0.9
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Best:
    """The best point that was observed.

    Parameters
    ----------
    x : array or dict
        The point.
    value : float
        What the model takes the objective to be there. A certified model gives the posterior mean
        of the point with the largest lower bound; a prior gives the best observed value.
    lower, upper : float
        Confidence bounds of the objective there; infinite where nothing is promised.
    """

    x: Any
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Certificate:
    """With probability 1 - delta, at all times: how far the best point can be from the optimum.

    Parameters
    ----------
    regret : float
        How much better than ``x`` any point of the domain can be; inf where nothing is promised.
    x : array, dict or None
        The observed point that this is about. With a norm bound, the one whose lower bound is
        largest; otherwise the one with the best value.
    lower, upper : float
        Bounds of its value; the observed value itself where regrets are between observed values.
    delta : float
        Probability with which all of this may fail.
    reason : str
        Why nothing is promised; empty where something is.
    final : bool
        Whether no observation can change that nothing is promised.
    basis : "norm bound", "exact", "folds" or "emulated"
        A confidence band for functions of bounded norm, or replays of the optimizer on past tasks:
        on their recorded rows with a prior learned from other tasks, the same in folds, or on
        draws of a Gaussian process given their runs (`RegretScores`).
    tasks : int
        How many past tasks vouch for it.
    among : str
        Of which configurations it speaks, one word, as "candidate" for a table; empty for all.
    range_end : float or None
        The end of the output's range where that is the only bound.
    stopping : Stopping or None
        The usual spread of a task, and the rule by which a search stops, where there are past ones.
    """

    regret: float
    x: Any = None
    lower: float = -inf
    upper: float = inf
    delta: float = 1.0
    reason: str = ""
    basis: CertificateBasis = "norm bound"
    tasks: int = 0
    among: str = ""
    range_end: float | None = None
    final: bool = False
    stopping: Stopping | None = None

    def as_dict(self) -> dict[str, Any]:
        """What a program may read, as JSON."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "stopping"}
        return {**found, "spread": self.spread}

    @property
    def spread(self) -> float | None:
        """The usual range of the values of a task, in units of the output, where it is known."""
        return None if self.stopping is None else self.stopping.spread

    def reached(self, stop_at: float | str) -> str:
        """Why a search stops at this regret, text such as "1%" being a share of the usual spread.

        Empty while it goes on. By replays on past tasks at most a share delta of the searches that
        stop is wrong (`metakel.optimize.stopping`); otherwise the regret itself must be so small.
        """
        if self.reason or self.regret == inf:
            return ""
        tolerance = as_tolerance(stop_at, self.spread)
        ruled = self.stopping is not None and self.stopping.replayed is not None
        ruled = ruled and self.range_end is None
        if self.regret <= tolerance and not ruled:
            return f"{self} (stop_at={stop_at})"
        why = self.stopping.reached(tolerance) if self.stopping is not None else ""
        odds = Fraction(self.delta).limit_denominator(100)
        return why and (
            f"no {self.among or 'configuration'} is better by more "
            f"than {tolerance:.2g} (stop_at={stop_at}): wrong in about {odds.numerator} of "
            f"{odds.denominator} searches that stop, on tasks like these "
            f"({'emulated; ' if self.basis == 'emulated' else ''}{why})"
        )

    def outlook(self, stop_at: float | str) -> str:
        """Why no search will stop at this regret; empty where one may."""
        if self.final:
            return self.reason
        if self.stopping is None:
            return ""
        return self.stopping.outlook(as_tolerance(stop_at, self.spread))

    def __str__(self) -> str:
        if self.range_end is not None:
            return (
                "the only bound so far is the range of the output itself, which ends at "
                f"{self.range_end:g}: at most {self.regret:.2g} better"
            )
        if self.reason:
            return f"no certificate: {self.reason}"
        if self.basis == "norm bound":
            return (
                f"no {self.among}{' ' * bool(self.among)}configuration is better than the best one "
                f"by more than {self.regret:.3g}, with probability {1 - self.delta:g}"
            )
        everywhere = self.basis == "emulated" and not self.among
        none = "no configuration" if everywhere else "none of the candidates"
        emulated = " (checked on emulated tasks)" if self.basis == "emulated" else ""
        return (
            f"{none} is better by more than {self.regret:.2g}, with probability {1 - self.delta:g} "
            f"for tasks like the past ones{emulated}"
        )

    def _repr_html_(self) -> str:
        about = "" if self.x is None else paragraph(f"about the best point, {describe(self.x)}")
        return card("Certificate", paragraph(str(self)), about)


def describe(x: Any) -> str:
    """A point in one line, as people read it."""
    if not isinstance(x, Mapping):
        return "(" + ", ".join(_short(value) for value in np.asarray(x).tolist()) + ")"
    return ", ".join(f"{name}={_short(value)}" for name, value in x.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shape(upper: float, best: float, scale: float, t: int) -> float:
    """g_t: ``upper`` is the largest mean plus 1.5 standard deviations that is left."""
    least = SCALE_WEIGHT * scale * (1 + (EARLY / t) ** 3)
    return (max(upper - best, 0.0) + least) / min(t, PLATEAU)


@dataclass(frozen=True)
class RegretTrace:
    """What the replayed rule would have seen on this task, as far as its points have values.

    The rule decides by what it asked for before, so that values may come in any order, and between
    others. It goes on as long as the value that it asks for next is known.

    Parameters
    ----------
    best, shapes : tuple of float
        After each of its values.
    rows : tuple of int
        Which of the observed values these are.
    """

    best: tuple[float, ...] = ()
    shapes: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()

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

    Parameters
    ----------
    scores : (m',) array, increasing
    lasting : (m'',) array, increasing
        Those among them of tasks that no alarm ended before the best point was found.
    basis : "exact", "folds" or "emulated"
        Exact: the prior was learned from other tasks. Folds: every task was replayed with a prior
        learned from the other folds, which is approximate. Emulated: on draws of a Gaussian process
        given the task's runs, searched over the whole space.
    horizon : int
        For how many values the optimizer was replayed.
    points : int
        How many rows a replayed table has; 0 for a space.
    regrets, shapes : (m', T) arrays
        r_t and g_t of every replay, NaN after its end, for the rule that stops; without any, a
        search stops once the certificate is small enough.
    rows : (j, k, d0) array
        Some rows of some of the replayed tables, to compare those of a new table with.
    """

    later: ClassVar[tuple[str, ...]] = ("rows",)

    scores: Array
    lasting: Array
    basis: Basis
    horizon: int
    points: int = 0
    regrets: Array = field(default_factory=lambda: np.empty((0, 0)))
    shapes: Array = field(default_factory=lambda: np.empty((0, 0)))
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
        if not self.regrets.size:
            return None
        return Replayed(self.regrets, self.shapes)

    @property
    def tasks(self) -> int:
        """How many tasks vouch: those that no alarm ended."""
        return len(self.lasting)

    def missing(self, delta: float) -> int:
        """How many more tasks are needed for a promise at ``delta``."""
        return max(ceil(1 / _checked(delta) - 1 - 1e-9) - self.tasks, 0)

    def factor(self, delta: float) -> float:
        """q: the ceil((1 - delta)(m' + 1))-th smallest score; inf with too few tasks.

        Of all tasks or of those that lasted, whichever is larger.
        """
        found = 0.0
        for scores in (self.scores, self.lasting):
            rank = _rank(delta, len(scores))
            found = max(found, float(scores[rank - 1]) if rank <= len(scores) else inf)
        return found

    def no_smaller_than(self, recorded: RegretScores, delta: float) -> RegretScores:
        """With regrets that are larger by one factor, so that q is at least that of ``recorded``.

        Emulated tasks are such as the model expects, and real ones are not.
        """
        least, q = recorded.factor(delta), self.factor(delta)
        if q >= least:
            return self
        if q == 0:
            return replace(recorded, basis=self.basis, points=self.points)
        ratio = least / q
        return replace(
            self,
            scores=ratio * self.scores,
            lasting=ratio * self.lasting,
            regrets=ratio * self.regrets,
        )

    def failure_probability(self, delta: float) -> float:
        """How often a promise at ``delta`` may fail with this very history, with confidence 0.9.

        delta is the average over histories; for one history the probability is Beta distributed.
        """
        from scipy.special import betaincinv

        rank = _rank(delta, self.tasks)
        if rank > self.tasks:
            return 1.0
        return float(betaincinv(self.tasks + 1 - rank, rank, CONFIDENT))


@dataclass(frozen=True, eq=False)
class RegretCalibration:
    """What replays on past tasks say of the regret, for tables and for whole spaces.

    Parameters
    ----------
    table, space : RegretScores or str
        Scores, or why there are none.
    spread : float
        The usual range of the values of a task, in units of the output.
    """

    table: RegretScores | str
    space: RegretScores | str
    spread: float

    def __post_init__(self) -> None:
        as_number("spread", self.spread, TINY)

    @property
    def longest(self) -> int:
        """The larger of the two horizons; 0 where nothing was replayed."""
        found = (self.table, self.space)
        return max((s.horizon for s in found if not isinstance(s, str)), default=0)

    def scores_for(
        self,
        domain: Domain,
        delta: float,
        emulated: Callable[[Array], RegretScores] | None = None,
    ) -> RegretScores | str:
        """The scores that speak for an optimizer, or why none do.

        Replayed tables speak for one with as many rows, chosen in the same way. For others tasks
        are ``emulated`` at their rows.
        """
        found = self.space if domain.points is None else self.table
        if isinstance(found, str):
            return found
        if domain.points is None and domain.narrowed:
            return f"past tasks were replayed {domain.narrowed}"
        Z = domain.points
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
        if other and emulated is not None and Z is not None:
            return emulated(Z).no_smaller_than(found, delta)
        return found


def as_tolerance(stop_at: float | str, spread: float | None) -> float:
    """A regret in units of the output; text such as "1%" is a share of the usual spread."""
    if isinstance(stop_at, str):
        number, percent = stop_at.strip().removesuffix("%"), stop_at.strip().endswith("%")
        try:
            value = float(number)
        except ValueError:
            raise InputError(
                f'stop_at is {stop_at!r}; expected a number, or a share of the spread as in "1%"'
            ) from None
        if percent and spread is None:
            raise InputError(
                f"stop_at is {stop_at!r}, but the usual spread of a task is not known; expected a "
                "number, or a prior whose certificate was calibrated (learn_prior)"
            )
        stop_at = value / 100 * (spread or 0.0) if percent else value
    if not (is_number(stop_at) and isfinite(stop_at) and stop_at >= 0):
        raise InputError(f"stop_at is {shown(stop_at)}; expected a number >= 0")
    return float(stop_at)


def _rank(delta: float, tasks: int) -> int:
    return ceil((1 - _checked(delta)) * (tasks + 1) - 1e-9)


def _checked(delta: float) -> float:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; expected a number between 0 and 1")
    return delta
