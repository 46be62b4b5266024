"""Why a point is suggested: what is expected there, which runs speak for it, what is safer.

Everything is computed with the model that chose the point. A point that is pending is explained as
it was when it was asked for: without itself, and without what was asked for after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.charts import card, items, paragraph
from metakel.gp.averages import UCB_WIDTH
from metakel.optimize.certificate import describe
from metakel.optimize.model import BestRuns
from metakel.optimize.outcomes import OutputScale
from metakel.search import Domain, StartPoints

if TYPE_CHECKING:
    from metakel.optimize.state import State

NEIGHBORS = 3  # runs that are named
ALTERNATIVES = 8  # of the observed points, the best ones
NEAR = 1.0  # within so many length scales, values have much to do with each other
# A point whose mean is below the best one by more than this share of its standard deviation is
# chosen for what is not known of it.
GIVEN_UP = 0.25
# Where runs without a value take this share of the variance away, no alternative is looked for.
TOLD_SOON = 0.5
# The safer point has a lower end that is higher by this share of the standard deviation, or more.
SAFER = 0.1
SLICES = 21  # of a normal distribution, each as likely as the others


@dataclass(frozen=True, eq=False)
class Neighbor:
    """A run near the point that is explained.

    Parameters
    ----------
    task : str
        The past task; empty for a run of this one.
    x : array or dict
    value : float
        What was measured.
    distance : float
        In length scales.
    typical : float or None
        The median of all values of the past task.
    """

    task: str
    x: Any
    value: float
    distance: float
    typical: float | None = None

    def __str__(self) -> str:
        against = "" if self.typical is None else f", where {self.typical:.3g} is typical"
        return f"{self.task or 'this run'}: {self.value:.4g}{against} ({describe(self.x)})"


@dataclass(frozen=True, eq=False)
class Expected:
    """What is expected at a point, within the range of the output.

    ``value`` is the mean, ``low`` and ``high`` are one standard deviation ``sd`` away from it, and
    ``measured`` is the value of a run there, if there was one.
    """

    x: Any
    value: float
    low: float
    high: float
    sd: float
    measured: float | None = None

    @classmethod
    def within(
        cls,
        ends: tuple[float, float],
        x: Any,
        mean: float,
        sd: float,
        measured: float | None = None,
    ) -> Expected:
        """A mean and a standard deviation, where no value is beyond these ends."""
        value = float(np.clip(mean, *ends))
        low, high = np.clip([value - sd, value + sd], *ends).tolist()
        return cls(x, value, low, high, sd, measured)

    def __str__(self) -> str:
        was = "" if self.measured is None else f", and {self.measured:.4g} was measured"
        return f"{self.value:.4g} ({self.low:.3g} to {self.high:.3g}){was}"


@dataclass(frozen=True, eq=False)
class Reasons:
    """Why to try a point; ``str`` says it in a few lines, `sentence` in one.

    Parameters
    ----------
    expected : Expected
        What is expected there; ``expected.x`` is the point.
    typical : Expected
        Of a point drawn at random: the median, and the ends of the middle two thirds, by what the
        points differ in and by what is not known of them. Its ``x`` is None.
    best : float or None
        The best value so far.
    explores : bool
        True if another point is expected to be better, and this one is tried because less is known
        of it. Points near runs without a value do not count.
    neighbors : tuple of Neighbor
        The nearest runs: of this task, and of the best ones of past tasks.
    near, tasks : int
        How many past tasks had one of their best runs within a length scale, with the same choices,
        out of how many.
    safer : Expected or None
        The point whose value is surest to be good: the largest mean minus 1.5 standard deviations
        (for a minimum, the smallest mean plus as much). None where no other is clearly surer.
    output : str
        What is measured.
    awaited : bool
        True if what is expected to be better is running or has failed, or is near such a run.
    informed : bool
        False if the same is expected everywhere.
    worse : bool
        True if another point is expected to be better, and may be better by more as well.
    """

    expected: Expected
    typical: Expected
    best: float | None
    explores: bool
    neighbors: tuple[Neighbor, ...] = field(repr=False)
    near: int
    tasks: int
    safer: Expected | None
    output: str = "value"
    awaited: bool = False
    informed: bool = True
    worse: bool = False

    @property
    def sentence(self) -> str:
        """What is expected against what is typical, how sure that is, and what it is tried for."""
        so_far = "" if self.best is None else f" and {self.best:.4g} is the best so far"
        against = f"where {self.typical} is typical{so_far}"
        return f"{self.output} is expected to be {self.expected}, {against}; {self.purpose}."

    @property
    def purpose(self) -> str:
        """What it is tried for."""
        if self.expected.measured is not None:
            return "it was tried before"
        if not self.informed:
            return "the same is expected everywhere, so it begins in the middle"
        if self.worse:
            return "another point is expected to be better"
        if self.explores:
            return "this explores: another point looks better, but less is known about this one"
        if self.awaited:
            return "what is expected to be better is running or has failed, so it looks elsewhere"
        return "this exploits: no other point is expected to be clearly better"

    @property
    def support(self) -> str:
        """How many past tasks speak for it; empty where none is known."""
        if not self.tasks:
            return ""
        if not self.near:  # the nearest ones are named all the same
            return f"The best runs of all {self.tasks} past tasks were elsewhere; the nearest were:"
        return f"{self.near} of {self.tasks} past tasks had one of their best runs near it."

    @property
    def alternative(self) -> str:
        """The safer point, or that there is none."""
        if self.safer is None:
            return "No other is clearly safer."
        return f"Safer: {describe(self.safer.x)}, where it is expected to be {self.safer}."

    def __str__(self) -> str:
        lines = [self.sentence, self.support, *(f"  {run}" for run in self.neighbors)]
        return "\n".join(filter(None, [*lines, self.alternative]))

    def _repr_html_(self) -> str:
        runs = items([str(run) for run in self.neighbors])
        parts = [self.support, self.alternative]
        sentences = [paragraph(part) for part in parts if part]
        return card(self.sentence, *sentences[:-1], runs, sentences[-1])


def explain(state: State, point: Any, x: Array, place: Domain, start: StartPoints) -> Reasons:
    """Why to try a point, which is ``x`` (d0,) to the model.

    ``place`` is where it could be chosen from, with its start points: the domain, or the part of it
    in which some parameters are held. Other choices and values to compare with are those of it.
    """
    domain, scale, found = state.domain, state.scale, state.outcomes
    plain, here = state.model.deciding, state.outcomes.counts
    model = plain
    if place is not domain:
        here = here & place.contains(found.X)
    fantasies = _before(state, x)
    if fantasies is found.fantasies:
        model = state.deciding
    elif len(fantasies):
        model = model.with_fantasies(fantasies)
    mean, sd = (float(value[0]) for value in model.predict(x[None]))
    possible = here & place.contains(found.X)  # another is no alternative
    few, several = (
        np.argsort(np.where(some, -found.y, inf), kind="stable")[:ALTERNATIVES]
        for some in (here, possible)
    )
    looked_at = np.sort(several[possible[several]])
    observed, q = found.X[looked_at], len(fantasies)
    Z, rest = (np.concatenate([X, observed]) for X in (start.X, fantasies))
    parts = list(zip(model.predict(start.X), model.predict(rest), strict=True))
    means, sds = (np.concatenate([first, more[q:]]) for first, more in parts)
    sds = np.where(model.allowed(Z), sds, inf)  # nothing else is ever asked for
    highest = mean
    if q:  # what is running or has failed is no alternative
        running = parts[0][1][:q]
        highest = float(max(running.max(), means[np.isfinite(sds)].max(initial=-inf)))
        alone = np.concatenate([plain.predict(X)[1] for X in (start.X, observed)])
        sds = np.where(sds**2 < (1 - TOLD_SOON) * alone**2, inf, sds)
    past, none = model.best_runs, np.empty(0)
    if past is None:
        past = BestRuns((), x[None][:0], (), none, none, np.ones(len(x)))
    differ, distances = _other_choices(point, past.points), past.distances(x)
    near = np.flatnonzero((distances <= NEAR) & (differ == 0)).tolist()
    least, most = map(float, scale.interval(*model.output_range))

    def expected(at: Array, point: Any, mean: float, sd: float) -> Expected:
        (runs,) = np.nonzero(domain.same(found.X, at[None])[:, 0])
        measured = state.value(int(runs[-1])) if len(runs) else None
        around = float(scale.deviation(mean, sd))
        return Expected.within((least, most), point, scale.value(mean), around, measured)

    surest = int(np.argmax(means - UCB_WIDTH * sds))
    gain = means[surest] - UCB_WIDTH * sds[surest] - (mean - UCB_WIDTH * sd)
    safer = None
    if gain > SAFER * sd and not domain.same(Z[[surest]], x[None])[0, 0]:
        row = surest - len(start.X)
        other = place.decode(Z[surest]) if row < 0 else state.point(int(looked_at[row]))
        safer = expected(Z[surest], other, float(means[surest]), float(sds[surest]))
    top = int(np.argmax(np.where(np.isfinite(sds), means, -inf)))
    behind = bool(means[top] - mean > GIVEN_UP * sd and np.isfinite(sds[top]))
    promise = mean + model.width * sd - (means[top] + model.width * sds[top])
    worse = behind and bool(promise < -GIVEN_UP * sd)  # with all that is not known of it
    return Reasons(
        expected=expected(x, copy(point), mean, sd),
        typical=_typical(*plain.predict(start.X), scale, (least, most)),
        best=state.value(int(few[0])) if here.any() else None,
        explores=behind and not worse,
        neighbors=_neighbors(state, past, np.lexsort((distances, differ)), point, x),
        near=len({past.tasks[i] for i in near}),
        tasks=len(set(past.tasks)),
        safer=safer,
        output=past.output,
        awaited=highest - mean > GIVEN_UP * sd,
        informed=bool(found.t) or len(fantasies) > 0 or bool(np.ptp(means) > 1e-9 * model.scale),
        worse=worse,
    )


def _typical(mean: Array, sd: Array, scale: OutputScale, ends: tuple[float, float]) -> Expected:
    """Of a point drawn at random from those with these means and standard deviations (n,)."""
    from scipy.special import ndtri

    drawn = mean + sd * ndtri((np.arange(SLICES)[:, None] + 0.5) / SLICES)
    values = np.clip(scale.from_model(drawn), *ends)
    low, middle, high = np.quantile(values, [1 / 6, 1 / 2, 5 / 6]).tolist()
    return Expected(None, middle, low, high, float(values.std()))


def _before(state: State, x: Array) -> Array:
    """(q, d0) runs without a value that were known when ``x`` was asked for, if it is pending."""
    record, domain, found = state.record, state.domain, state.outcomes.fantasies
    asked = [t.number for t in record.pending if domain.same(t.x[None], x[None])[0, 0]]
    if not asked or not len(found):
        return found
    without_value = ("pending", "failed", "stopped")
    seen = (trial for trial in record.trials if trial.state in without_value)
    later = np.array([trial.x for trial in seen if trial.number >= max(asked)])
    return np.asarray(found[~domain.same(found, later).any(axis=1)])


def _other_choices(point: Any, others: Sequence[Any]) -> NDArray[np.intp]:
    """(n,) in how many choices others differ: however alike their values, they are not near."""
    named = point.items() if isinstance(point, Mapping) else ()
    choices = [(name, value) for name, value in named if isinstance(value, str | bool | None)]
    differ = np.zeros(len(others), dtype=np.intp)
    if choices:
        differ[:] = [sum(o.get(name) != value for name, value in choices) for o in others]
    return differ


def _neighbors(
    state: State, past: BestRuns, order: NDArray[np.intp], point: Any, x: Array
) -> tuple[Neighbor, ...]:
    """The nearest ones, at most one of every past task; of this task only those that are near.

    Past runs are in the given order: those with the same choices come first.
    """
    away = np.linalg.norm((state.outcomes.X - x) / past.lengthscales, axis=1)
    near = [i for i in np.argsort(away, kind="stable")[:NEIGHBORS].tolist() if away[i] <= NEAR]
    points = [state.point(i) for i in near]
    own = [
        Neighbor("", tried, state.value(i), float(away[i]))
        for i, tried, others in zip(near, points, _other_choices(point, points), strict=True)
        if not others
    ]
    first: dict[str, int] = {}
    for i in order.tolist():
        first.setdefault(past.tasks[i], i)
    distances = past.distances(x)
    others = [
        Neighbor(
            task, past.points[i], float(past.values[i]), float(distances[i]), float(past.typical[i])
        )
        for task, i in list(first.items())[:NEIGHBORS]
    ]
    return (*own, *others)
