r"""Safe search: only points whose limits hold by the confidence bounds are ever asked for.

With lower and upper bounds l, u of every limited output at all points and times, the safe set is

.. math:: S_t = S_0 \cup \{x : l_i(x) \ge h_i \text{ for all } i\}.

If the start set S_0 is safe and the bounds hold, every point of every S_t is safe, so that the
probability of ever trying an unsafe point is at most delta. This needs no Lipschitz constant, and
no path of safe points: values in one place tell about others through the features.

The next point is the goal, the best point that may still be safe, if it is in the safe set.
Otherwise it is the best safe point as long as that promises a fair share of the improvement that
the goal does, and else, or every third time, the safe point whose measurement says most about the
limit in question at the goal.
``docs/theory.md`` proves this: safety is Theorem 22, the certificate Proposition 23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel._files import decode, encode
from metakel.confidence.fallback import AlarmEvent
from metakel.confidence.sequence import ConfidenceSequence
from metakel.errors import Hint, InputError
from metakel.optimize.certificate import Certificate
from metakel.optimize.certified import CertifiedModel, load_certified
from metakel.optimize.model import LOADERS, NothingToAsk, Score, Search
from metakel.optimize.outcomes import Outcomes, OutputScale
from metakel.optimize.upper_bound import UpperBound
from metakel.safe.limits import (
    OBJECTIVE,
    Limit,
    Range,
    StartSet,
    as_start_set,
    refuse_growing,
    shares,
)
from metakel.search import Domain, StartPoints

EXPLORING = 3  # every so many turns go to the goal, whatever it promises
# The goal is not safe yet: an improvement that it promises takes some measurements more.
FAIR = 1 / 4
ATTEMPTS = 8  # at a point that is still safe as a configuration, after rounding
TINY = 1e-12  # stands for no regulariser, relative to the largest eigenvalue


START_HINT = Hint(
    "name points that you vouch for", "start=[...] or safe_start", "--start name=value,name=value"
)
DELTA_HINT = Hint("accept a larger risk", "delta=...", "--delta")
OnAlarm = Literal["widen", "raise"]


class NoSafePoint(NothingToAsk):
    """There is no point that may be tried.

    Parameters
    ----------
    message : str
        What is the matter.
    margin : float
        By how much the bounds of the best point miss its limit, in units of that output; 0 where
        all safe points were tried.
    """

    def __init__(self, message: str, margin: float = 0.0) -> None:
        super().__init__(message, *((START_HINT, DELTA_HINT) if margin else ()))
        self.args = message, margin  # with which copies are made
        self.margin = margin


@dataclass(frozen=True, eq=False)
class KeptLimits:
    """What a search keeps, and from where it begins."""

    objective: Range = field(default_factory=Range)  # in the sign to be maximised
    others: Mapping[str, Range] = field(default_factory=dict)  # in the units of their values
    start: StartSet | None = None  # points that may be tried before anything is known
    delta: float = 1.0  # probability that one of all the bounds fails, or the start set


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SafeModel(CertifiedModel):
    """A certified objective, with limits on it and on other outputs; `Limited` makes it.

    Parameters
    ----------
    outputs : dict of CertifiedModel
        Models of the other outputs, in the units of their values.
    kept : KeptLimits
    """

    kind: ClassVar[str] = "safe.limited"

    outputs: Mapping[str, CertifiedModel] = field(default_factory=dict)
    kept: KeptLimits = field(default_factory=KeptLimits)

    @classmethod
    def around(
        cls, objective: CertifiedModel, outputs: dict[str, CertifiedModel], kept: KeptLimits
    ) -> Self:
        """A safe model of an objective, in the sign to be maximised."""
        own = {f.name: getattr(objective, f.name) for f in fields(CertifiedModel)}
        return cls(**own, outputs=outputs, kept=kept)

    # How it learns

    def prepare(self, start: StartPoints) -> Self:
        outputs = {name: output.prepare(start) for name, output in self.outputs.items()}
        return replace(super().prepare(start), outputs=outputs)

    def given(self, outcomes: Outcomes) -> Self:
        """Given all outcomes of a record: values of the objective and of the other outputs."""
        model = super().given(outcomes)
        outputs = {n: output.given(outcomes.of_output(n)) for n, output in self.outputs.items()}
        raised = [model.raised, *(output.raised for output in outputs.values())]
        first = next((alarm for alarm in raised if alarm is not None), None)
        return replace(model, outputs=outputs, raised=first)

    def with_fantasies(self, X: Array) -> Self:
        """As if the points (q, d0) had been measured; the safe set stays as it is."""
        outputs = {name: output.with_fantasies(X) for name, output in self.outputs.items()}
        return replace(super().with_fantasies(X), outputs=outputs)

    @property
    def delta(self) -> float:
        """Probability with which any of the bounds, or the start set, may fail."""
        return self.kept.delta

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last time at which an output contradicted what was assumed of it."""
        events = [super().alarm]
        for name, output in self.outputs.items():
            if output.alarm is not None:
                reason = f"{name}: {output.alarm.reason}"
                events.append(replace(output.alarm, reason=reason))
        rung = [event for event in events if event is not None]
        return max(rung, key=lambda event: event.time, default=None)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(self.outputs)

    @property
    def landmarks(self) -> Array | None:
        """(n, d0) points at which a search has to look, however small the safe set."""
        return None if self.kept.start is None else self.kept.start.points

    # What is safe

    def _limited(self) -> Iterator[tuple[str, CertifiedModel, Range]]:
        if self.kept.objective.bounded:
            yield OBJECTIVE, self, self.kept.objective
        for name, output in self.outputs.items():
            yield name, output, self.kept.others[name]

    def _in_start(self, Z: Array) -> NDArray[np.bool_]:
        """(n,) which points are in the start set; past tasks vouch for nothing after an alarm."""
        start = self.kept.start
        if start is None or (start.by_past_tasks and self.alarm is not None):
            return np.zeros(len(Z), dtype=bool)
        return start.contains(Z)

    def _room(self, within: Callable[[Range, Array, Array], Array], Z: Array) -> Array:
        """(n,) over all limits, each in units of its noise so that they compare."""
        room = np.full(len(Z), inf)
        for _, output, allowed in self._limited():
            room = np.minimum(room, within(allowed, *output.bounds_within(Z)) / output.noise_std)
        return np.where(self._in_start(Z), np.maximum(room, 0.0), room)

    def margin(self, Z: Array) -> Array:
        """(n,) 0 or more where a point is safe; else minus what is missing, in units of noise."""
        return self._room(Range.margin, Z)

    def allowed(self, Z: Array) -> NDArray[np.bool_]:
        """(n,) which of the points ``Z`` (n, d0) are in the safe set."""
        found: NDArray[np.bool_] = self.margin(Z) >= 0
        return found

    def hope(self, Z: Array) -> Array:
        """(n,) 0 or more where a point is safe or may turn out to be."""
        return self._room(Range.hope, Z)

    # What to try next

    def choose(self, score: Score, search: Search) -> Array:
        """The next point, safe as the configuration that it stands for."""
        for _ in range(ATTEMPTS):
            x = search.rounded(self._choose(score, search))
            if self.allowed(x[None])[0]:
                return x
            search = search.without(x)
        raise NoSafePoint("no safe point stays safe as a configuration, after rounding")

    def _choose(self, score: Score, search: Search) -> Array:
        nothing_yet = self.outcomes is None or not self.outcomes.t
        if nothing_yet and not len(self._pending) and self.center is not None:
            best = best_within(search, Score(lambda Z: self.predict(Z)[0]), self.margin)
            return self._refuse(search) if best is None else best
        goal = best_within(search, score, self.hope)
        if goal is None:
            return self._refuse(search)
        if self.allowed(goal[None])[0]:
            return goal
        if self._turn % EXPLORING:
            found = best_within(search, score, self.margin)
            if found is not None and self._promises(found, goal, search.domain):
                return found
        informative = self._informative(goal)
        found = best_within(search, informative, self.margin)
        if found is None and (search.domain.repeat or search.domain.points is None):
            # All safe points were tried or are being run: measuring one again averages the noise.
            found = best_within(search.anew(), informative, self.margin)
        return self._refuse(search) if found is None else found

    @property
    def _turn(self) -> int:
        """How many points were measured or are being measured."""
        return len(self._pending) + (0 if self.outcomes is None else self.outcomes.t)

    def _promises(self, x: Array, goal: Array, domain: Domain) -> bool:
        """Whether the safe point ``x`` promises a fair share of what the goal does.

        That is, the expected improvement on what the points tried so far are expected to be worth,
        here and now; at the goal, times the chance that it is safe.
        """
        measured = np.zeros((0, len(x))) if self.outcomes is None else self.outcomes.X
        tried = np.concatenate([measured, self._pending]) if len(self._pending) else measured
        if domain.narrowed and len(tried):
            tried = tried[domain.contains(tried)]
        if not len(tried):
            return False
        improvement = self.expected_improvement(float(self.predict(tried)[0].max()))
        at_x, at_goal = improvement.values(np.stack([x, goal]))
        return bool(at_x > FAIR * at_goal * self._chance(goal))

    def _chance(self, x: Array) -> float:
        """By the posteriors of the limited outputs, how likely it is that ``x`` (d0,) is safe."""
        from scipy.special import ndtr

        chance = 1.0
        for _, output, allowed in self._limited():
            mean, sd = output.predict(x[None])
            chance *= float(ndtr(allowed.margin(mean, mean) / np.maximum(sd, 1e-300))[0])
        return chance

    def _informative(self, goal: Array) -> Score:
        r"""How much a measurement lowers the variance of the limit in question at the goal.

        With A = F'F + alpha, a whitened measurement at x removes (phi(x)'A^{-1}phi(goal))^2 /
        (sigma^2 + phi(x)'A^{-1}phi(x)) of it. Where nothing bounds the output at the goal yet, the
        variance at x itself counts.
        """
        point = goal[None]
        _, output, allowed, lower, upper = min(
            (
                (name, output, allowed, *output.bounds_within(point))
                for name, output, allowed in self._limited()
            ),
            key=lambda found: float(found[2].margin(found[3], found[4])[0]) / found[1].noise_std,
        )
        spectrum, current = output.spectrum_ahead, output.certified.current
        side = -1 if allowed.misses_below(lower, upper) else 1
        largest = float(spectrum.values.max(initial=0)) or 1.0
        alpha = max(current.best_alpha(point, side), TINY * largest)
        weights = 1 / (spectrum.values + alpha)
        inside_goal, _ = spectrum.project(point)
        unbounded = not np.isfinite(lower[0] if side < 0 else upper[0])

        def values(Z: Array) -> Array:
            inside, outside = spectrum.project(Z)
            variance = weights @ inside**2 + outside / alpha
            if unbounded:
                return np.asarray(variance)
            left = spectrum.kernel(Z, point)[:, 0] - inside_goal[:, 0] @ inside
            covariance = (weights * inside_goal[:, 0]) @ inside + left / alpha
            return np.asarray(covariance**2 / (output.noise_std**2 + variance))

        return Score(values)

    def _refuse(self, search: Search) -> Array:
        margin = self.margin(search.start.X)
        if (margin >= 0).any():
            raise NoSafePoint("all points that are known to be safe were tried")
        x = search.start.X[[int(np.argmax(margin))]]
        missing = {
            name: float(-allowed.margin(*output.bounds_within(x))[0])
            for name, output, allowed in self._limited()
        }
        name, amount = max(missing.items(), key=lambda entry: entry[1])
        raise NoSafePoint(
            f"no point is known to be safe; the closest is {search.domain.decode(x[0])}, where the "
            f"bounds of the {name} miss their limit by {amount:.3g}",
            amount,
        )

    # What it answers

    def largest_upper(self, domain: Domain, start: StartPoints) -> float:
        """The largest upper bound where a point may be safe: the best safe point is among these."""
        if domain.points is not None:
            upper = self.bounds_within(domain.points)[1]
            return float(upper[self.hope(domain.points) >= 0].max(initial=-inf))
        current = self.certified.current
        if not current.kernel.smooth or not np.isfinite(current.upper(start.X)).all():
            return super().largest_upper(domain, start)
        score = self._score(UpperBound(current, current.spectrum))
        rng = np.random.default_rng(0)  # only ties depend on it, and the value is the same
        x = best_within(Search(domain, start, lambda: rng), score, self.hope)
        found = -inf if x is None else float(score.values(x[None])[0])
        return max(found, self._largest_observed(domain))

    def best(self, outcomes: Outcomes) -> tuple[int, float, float, float]:
        """The safe observed point with the largest lower bound; of all where none is safe."""
        counts = outcomes.counts & self.allowed(outcomes.X)
        return super().best(replace(outcomes, counts=counts) if counts.any() else outcomes)

    def certain(self, outcomes: Outcomes) -> tuple[int, float, float]:
        """The same point; nothing is certain of one that is not known to be safe."""
        chosen, _, lower, upper = self.best(outcomes)
        known = bool(self.allowed(outcomes.X[[chosen]])[0])
        return chosen, lower if known else -inf, upper

    def surest(self, search: Search) -> Array:
        """Of the safe points, the one with the largest lower bound."""
        found = best_within(search, self._height(search.start.X), self.margin)
        if found is None:
            raise NoSafePoint(f"no point is known to be safe in {search.domain!r}")
        return found

    def by_bounds(
        self, point: Any, bounds: tuple[float, float, float], scale: OutputScale
    ) -> Certificate:
        """About the configurations that respect the limits, and about no others."""
        return replace(super().by_bounds(point, bounds, scale), among="safe")

    def describe(self) -> str:
        """What is assumed of the objective, and the limits."""
        limits = ", ".join(f"{name} {allowed}" for name, _, allowed in self._limited())
        return f"{super().describe()}, {limits}"

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "objective": {**super().to_dict(), "kind": CertifiedModel.kind},
            "outputs": {name: output.to_dict() for name, output in self.outputs.items()},
            "kept": encode(self.kept),
        }


def load_safe(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> SafeModel:
    """Inverse of `SafeModel.to_dict`."""
    objective = load_certified(data["objective"], functions)
    outputs = {name: load_certified(o, functions) for name, o in data["outputs"].items()}
    kept = decode(KeptLimits, data["kept"], "stored limits", functions)
    return SafeModel.around(objective, outputs, kept)


LOADERS[SafeModel.kind] = load_safe


@dataclass(frozen=True, eq=False)
class Limited:
    """A `ConfidenceSequence` of the objective, and limits that are kept with probability 1 - delta.

    Only points are asked for that respect all limits by the confidence bounds
    (``docs/guide/safe-search.md``). Where there is no such point, `ask` raises `NoSafePoint`.

    Parameters
    ----------
    sequence : ConfidenceSequence
        Of the objective. Its delta is that of everything together: the objective and the limits
        share what learning and a ``start`` from past tasks leave of it.
    at_least, at_most : float, optional
        Limits of the objective itself.
    limits : dict, optional
        A `Limit` for every other output that is measured; `Optimizer.tell` then takes their
        values, as in ``tell(x, y, {"temperature": 71.3})``.
    start : SafeStart, or points
        Where to begin: a set from past tasks (`safe_start`), or points that you vouch for.
    stops : bool
        Whether `ask` raises `Alarm` after an alarm, until `Optimizer.accept_alarm` is called.
    """

    sequence: ConfidenceSequence
    at_least: float | None = None
    at_most: float | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    start: Any = None
    stops: bool = True

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if not isinstance(limit, Limit):
                raise InputError(f"limit {name!r} is a {type(limit).__name__}; expected safe.Limit")
        if not self.limits and not self._range.bounded:
            raise InputError("there is no limit; expected at_least, at_most or limits")
        options = self.sequence.options
        if options.name != "dmm":
            raise InputError(
                f'method is {options.name!r}; limits need "dmm", which holds at all times'
            )
        if options.on_alarm == "ignore":
            raise InputError(
                'on_alarm is "ignore", after which nothing holds; with limits expected "widen"'
            )
        refuse_growing(options.norm_bound)

    @property
    def _range(self) -> Range:
        return Range.of("limits", self.at_least, self.at_most)

    def as_model(self, domain: Domain, *, minimize: bool, probes: int) -> SafeModel:
        """The model of a domain, in the sign to be maximised."""
        start, options = as_start_set(self.start, domain), self.sequence.options
        learning = options.delta_learning
        spent = learning + (0.0 if start is None else start.delta)
        own, parts = shares(options.delta, spent, self.limits)
        on_alarm: OnAlarm = "raise" if options.on_alarm == "raise" else "widen"
        assumed = self.sequence.over(None, delta=own + learning, on_alarm=on_alarm)
        objective = CertifiedModel.of(assumed, domain, minimize=minimize, probes=probes)
        outputs = {
            name: CertifiedModel.of(
                ConfidenceSequence(
                    limit.kernel, on_alarm=on_alarm, **limit.sequence_options(parts[name])
                ),
                domain,
            )
            for name, limit in self.limits.items()
        }
        ranges = {name: limit.range for name, limit in self.limits.items()}
        allowed = -self._range if minimize else self._range
        objective = replace(objective, stops=self.stops)
        kept = KeptLimits(allowed, ranges, start, options.delta)
        return SafeModel.around(objective, outputs, kept)


def best_within(search: Search, score: Score, margin: Callable[[Array], Array]) -> Array | None:
    """The best point (d0,) whose margin is not negative; None where a search finds none.

    Outside of the domain's finite lists, points that are not allowed get values below all others,
    and lower the more they miss, so that a search finds its way in.
    """
    start = search.start
    if search.domain.points is not None:
        inside = (margin(start.X) >= 0) & ~search.excluded(start.X)
        if not inside.any():
            return None
        heights = np.where(inside, score.values(start.X), -inf)
        return search.maximize(Score(lambda Z: heights))
    heights = score.values(start.X)
    finite = heights[np.isfinite(heights)]
    low, spread = (finite.min(), np.ptp(finite) or 1.0) if len(finite) else (0.0, 1.0)

    def values(Z: Array) -> Array:
        found = margin(Z)
        inside = np.maximum(score.values(Z), low - spread)
        missing = 1 - 1 / (1 + np.maximum(-found, 0))
        return np.where(found >= 0, inside, low - spread * (1 + missing))

    x = search.maximize(Score(values))
    allowed = margin(x[None])[0] >= 0 and not search.excluded(x[None])[0]
    return x if allowed else None
