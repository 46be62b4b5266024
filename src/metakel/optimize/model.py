"""What a model of the objective is, and what it answers.

A model is a value: given other outcomes, it is another one. Everything is in the sign to be
maximised. Subclasses state how values, and points without a value, change what is believed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import TINY, Array, as_numbers
from metakel._files import Functions
from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.errors import InputError
from metakel.gp.averages import ROOT_TWO_PI, UCB_WIDTH
from metakel.kernels.stationary import typical_lengthscale
from metakel.optimize.certificate import UNBOUNDED, Certificate
from metakel.optimize.outcomes import Outcomes, OutputScale
from metakel.search import Domain, StartPoints
from metakel.search.domain import Score as Score

if TYPE_CHECKING:
    from metakel.optimize.state import State


@dataclass(frozen=True, eq=False)
class BestRuns:
    """The best few runs of every past task, which a prior keeps to refer to."""

    points: tuple[Any, ...]  # (n,) dicts
    X: Array  # (n, d0) the same as numbers
    tasks: tuple[str, ...]  # (n,) of which task each of them is
    values: Array  # (n,) what was measured, in the sign of the output
    typical: Array  # (n,) the median of all values of that task
    lengthscales: Array  # (d0,) distance along each input over which values change
    output: str = "value"  # what was measured

    computed: ClassVar[tuple[str, ...]] = ("points",)

    def __post_init__(self) -> None:
        n, d0 = len(self.tasks), len(self.lengthscales)
        for name, shape in (("X", (n, d0)), ("values", (n,)), ("typical", (n,))):
            as_numbers(name, getattr(self, name), shape)
        as_numbers("lengthscales", self.lengthscales, low=TINY)

    @classmethod
    def restored(cls, stored: Mapping[str, Any], functions: Functions) -> BestRuns:
        """From all but the points, which the space of the prior decodes again."""
        return cls(points=(), **stored)

    def distances(self, x: Array) -> Array:
        """(n,) to the point ``x`` (d0,), in length scales."""
        return np.asarray(np.linalg.norm((self.X - x) / self.lengthscales, axis=1))


# (n, d0) points -> (n,) chances that all constraints hold
Chance = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Search:
    """A search for the next point."""

    domain: Domain
    start: StartPoints
    # Gives the generator that breaks ties, always the same. To make one takes longer than to search
    # a small table.
    draws: Callable[[], np.random.Generator]
    exclude: Array | None = None  # (k, d0) points not to be chosen
    pending: Array | None = None  # (q, d0) points that are being run

    def maximize(self, score: Score) -> Array:
        """The best point (d0,)."""
        found, _ = self.domain.maximizers(score, self.start, self.exclude)
        chosen = 0 if len(found) == 1 else int(self.draws().integers(len(found)))
        return np.asarray(found[chosen])

    def rounded(self, x: Array) -> Array:
        """(d0,) the point as it will be read again from a file or a host's record, to the bit."""
        if self.domain.points is not None:
            return x
        return np.asarray(self.domain.encode([self.domain.decode(x)], "ask")[0])

    def excluded(self, X: Array) -> NDArray[np.bool_]:
        """(n,) which of the points ``X`` (n, d0) are not to be chosen."""
        if self.exclude is None or not len(self.exclude):
            return np.zeros(len(X), dtype=bool)
        return np.asarray(self.domain.same(X, self.exclude).any(axis=1))

    def without(self, x: Array) -> Search:
        """The same search, in which the point (d0,) is not to be chosen either."""
        exclude = x[None] if self.exclude is None else np.concatenate([self.exclude, x[None]])
        return replace(self, exclude=exclude)

    def anew(self) -> Search:
        """The same search, in which every point may be chosen."""
        return replace(self, exclude=None)


# Points of a batch are so many typical length scales apart: closer together, one measurement says
# nearly all that the other would (a correlation of 0.95).
APART = 0.25


def spread_batch(score: Score, search: Search) -> Array:
    """The best point (d0,) that is no near-duplicate of one that is being run.

    Where a model is sure, points that are being run hardly lower the scores around them. Distances
    are in units of what may be chosen: a range that is a tenth of the past's has points a tenth as
    far apart.
    """
    if search.pending is None or not len(search.pending):
        return search.rounded(search.maximize(score))
    extent, slopes = search.domain.extent, score.gradient
    running, reach = search.pending / extent, APART * typical_lengthscale(len(extent))

    def apart(Z: Array, values: Array) -> Array:
        near = ((((Z / extent)[:, None] - running) ** 2).sum(axis=2) < reach**2).any(axis=1)  # (n,)
        return np.where(near, -inf, values)

    def gradient(Z: Array) -> tuple[Array, Array]:
        assert slopes is not None
        values, slope = slopes(Z)
        return apart(Z, values), slope

    others = Score(lambda Z: apart(Z, score.values(Z)), None if slopes is None else gradient)
    x = search.rounded(search.maximize(others))
    all_near = np.isneginf(apart(x[None], np.zeros(1)))[0]
    return search.rounded(search.maximize(score)) if all_near else x


class NothingToAsk(InputError):
    """There is no point that may be tried now."""


class Model(ABC):
    """Surrogate model of the objective. Values are in the sign to be maximised.

    Subclasses give `given`, `with_fantasies` and `predict`; a model that promises something gives
    `bounds` and `delta` as well. None of the methods changes the model.
    """

    kind: ClassVar[str] = ""
    anywhere: ClassVar[bool] = False  # whether runs beyond the domain are evidence, too

    @property
    def acquisition(self) -> str:
        """What decides where nobody has named another."""
        return "ucb"

    @property
    def deciding(self) -> Model:
        """The model that decides: this one, or what takes its place while it is overruled."""
        return self

    @property
    def width(self) -> float:
        """How many standard deviations above the mean the upper bound is, at present."""
        return UCB_WIDTH

    @property
    def raised(self) -> Alarm | None:
        """The alarm to raise, where alarms are to be raised."""
        return None

    @property
    def output_range(self) -> tuple[float, float]:
        """Between which all values lie."""
        return -inf, inf

    @property
    def best_runs(self) -> BestRuns | None:
        """Runs of past tasks to refer to."""
        return None

    @property
    def stops(self) -> bool:
        """Whether nothing is asked for after an alarm, until it is accepted."""
        return False

    # What a subclass states

    @property
    @abstractmethod
    def d0(self) -> int | None:
        """How many inputs a point has; None for any number."""

    @abstractmethod
    def given(self, outcomes: Outcomes) -> Self:
        """The model of the same task given all outcomes of a record, whatever this one was given.

        What both have in common need not be computed again.
        """

    @abstractmethod
    def with_fantasies(self, X: Array) -> Self:
        """As if the points (q, d0) had been run; the evidence stays the same."""

    @abstractmethod
    def predict(self, Z: Array) -> tuple[Array, Array]:
        """(n,) means and standard deviations of the objective at ``Z`` (n, d0)."""

    def prepare(self, start: StartPoints) -> Self:
        """Ready to be searched from these points; before any observation."""
        return self

    def bounds(self, Z: Array) -> tuple[Array, Array]:
        """(n,) lower and upper confidence bounds, for all points and times together."""
        raise InputError(self.no_bounds)

    def bounds_within(self, Z: Array) -> tuple[Array, Array]:
        """`bounds` for a search, which may be a little wider; not so at all points of a table."""
        return self.bounds(Z)

    @property
    def no_bounds(self) -> str:
        """Why there are no confidence bounds; empty where there are."""
        return "this model promises nothing"

    @property
    def delta(self) -> float:
        """Probability with which the bounds may fail."""
        return 1.0

    def largest_upper(self, domain: Domain, start: StartPoints) -> float:
        """The largest upper bound in the domain, as far as a search finds it."""
        return float(self.bounds(start.X)[1].max())

    @property
    def transfer_weight(self) -> float:
        """Posterior weight of what was learned from the past, between 0 and 1."""
        return 1.0

    @property
    def log_evidence(self) -> float:
        """Log density of the observed values, up to a constant."""
        return 0.0

    @property
    def scale(self) -> float:
        """A typical size of differences of the objective."""
        return 1.0

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last time at which the values contradicted what was assumed."""
        return None

    def disproved(self, state: State) -> AlarmEvent | None:
        """The time at which a value was better than a certificate had allowed."""
        return None

    @property
    def output_names(self) -> tuple[str, ...]:
        """What is measured beside the objective."""
        return ()

    @property
    def landmarks(self) -> Array | None:
        """(n, d0) points at which every search has to look."""
        return None

    def choose(self, score: Score, search: Search) -> Array:
        """The next point (d0,): the best one by the score, unless something else matters too."""
        return search.rounded(search.maximize(score))

    def allowed(self, Z: Array) -> NDArray[np.bool_]:
        """(n,) which of the points ``Z`` (n, d0) may be asked for."""
        return np.ones(len(Z), dtype=bool)

    def opening(self, tried: Array) -> Array:
        """(k, d0) points to begin with, in this order, that are left after ``tried`` (n, d0)."""
        return tried[:0]

    def first_score(self) -> Score | None:
        """What to maximise instead of the acquisition, where the first points are special."""
        return None

    def upper_bound(self) -> Score:
        """Mean plus `width` standard deviations, or the upper confidence bound."""

        def values(Z: Array) -> Array:
            mean, sd = self.predict(Z)
            return mean + self.width * sd

        return Score(values)

    def drawn(self) -> Score:
        """A function drawn from what is believed, the same for the same record."""
        raise InputError(
            f"{type(self).__name__} draws no functions; expected the model of a prior for "
            "acquisition='ts'"
        )

    def expected_improvement(self, best: float, chance: Chance | None = None) -> Score:
        """Expected improvement on ``best``, times the chance that a point is feasible."""

        def values(Z: Array) -> Array:
            from scipy.special import ndtr

            mean, sd = self.predict(Z)
            sd = np.maximum(sd, 1e-300)
            z = (mean - best) / sd
            gain = sd * (z * ndtr(z) + np.exp(-0.5 * z * z) / ROOT_TWO_PI)
            return np.asarray(gain if chance is None else gain * chance(Z))

        return Score(values)

    def surest(self, search: Search) -> Array:
        """The point (d0,) with the largest lower bound; where all are infinite, mean."""
        return search.maximize(self._height(search.start.X))

    def _height(self, start: Array) -> Score:
        first = None if self.no_bounds else self.bounds(start)[0]

        def height(Z: Array) -> Array:
            if first is None or not np.isfinite(first).any():
                return self.predict(Z)[0]
            return first if Z is start else self.bounds(Z)[0]

        return Score(height)

    def certificate(self, state: State) -> Certificate:
        """How far the best point can be from the optimum, in the sign of the values."""
        if self.no_bounds:
            return Certificate(inf, delta=self.delta, reason=self.no_bounds, final=True)
        if not state.outcomes.counts.any():
            return Certificate(inf, delta=self.delta, reason="nothing was observed yet")
        chosen, lower, upper = self.certain(state.outcomes)
        highest = self.largest_upper(state.domain, state.start)
        return self.by_bounds(state.point(chosen), (lower, upper, highest), state.scale)

    def by_bounds(
        self, point: Any, bounds: tuple[float, float, float], scale: OutputScale
    ) -> Certificate:
        """From the bounds of a point and the largest upper bound of all."""
        lower, upper, highest = bounds
        regret = scale.difference(lower, max(highest, upper) - lower)
        low, high = map(float, scale.interval(lower, upper))
        return Certificate(regret, point, low, high, self.delta, "" if regret < inf else UNBOUNDED)

    @property
    def spread(self) -> float | None:
        """The usual range of the values of a task, where it is known."""
        return None

    def best(self, outcomes: Outcomes) -> tuple[int, float, float, float]:
        """Which of the observations that count is best; value, lower and upper bound there."""
        y = np.where(outcomes.counts, outcomes.y, -inf)
        chosen = int(np.argmax(y))
        if self.no_bounds:
            return chosen, float(y[chosen]), -inf, inf
        lower, upper = self.bounds(outcomes.X[[chosen]])
        return chosen, float(y[chosen]), float(lower[0]), float(upper[0])

    def certain(self, outcomes: Outcomes) -> tuple[int, float, float]:
        """Which of the observations that count has the largest lower bound; its bounds."""
        lower, upper = self.bounds(outcomes.X)
        chosen = int(np.argmax(np.where(outcomes.counts, lower, -inf)))
        return chosen, float(lower[chosen]), float(upper[chosen])

    def describe(self) -> str:
        """What is assumed at present, in a few words."""
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of the model before any observation."""
        raise InputError(f"a {type(self).__name__} cannot be stored; it has no to_dict")

    @staticmethod
    def from_dict(
        data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Model:
        """Inverse of `to_dict`, whichever model it was."""
        kind = str(data["kind"])
        package, dot, _ = kind.partition(".")  # that reads it, as in "priors.mixture"
        if dot and kind not in LOADERS and package.isidentifier():
            with suppress(ModuleNotFoundError):
                import_module(f"metakel.{package}")
        if kind not in LOADERS:
            known = ", ".join(sorted(LOADERS))
            raise InputError(f"stored model is of kind {kind!r}; known: {known}")
        return LOADERS[kind](data, functions)


Loader = Callable[[Mapping[str, Any], Mapping[str, Callable[..., Any]] | None], Model]
LOADERS: dict[str, Loader] = {}  # by kind
