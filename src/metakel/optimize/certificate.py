r"""The best point, and how far it can be from the optimum: a `Best` and a `Certificate`.

Of a prior, a certificate rests on replays of the optimizer on past tasks (`optimize.regret`), else
on the confidence bounds of the model, lower l and upper u.

Decisions by context (Statement 7): the model is one of f(x, z); x is chosen, z is given. Its bounds
hold for all (x, z) and all times together, with probability 1 - delta, whoever chooses the contexts
and in whatever order. So with :math:`\pi(z) = \arg\max_x l(x, z)`, for all contexts at once,

.. math:: \max_x f(x, z) - f(\pi(z), z) \le \max_x u(x, z) - l(\pi(z), z),

and the cumulative regret of the points tried so far is bounded by
:math:`\sum_t \max_x u(x, z_t) - l(x_t, z_t)`, with the bounds of the present time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metakel._arrays import Array
from metakel._html import card, paragraph
from metakel.errors import InputError
from metakel.optimize.mixture import Mixture
from metakel.optimize.model import Model, Score, Search
from metakel.optimize.regret import RegretCalibration, RegretScores
from metakel.optimize.safe import NoSafePoint, SafeModel, best_within
from metakel.search import Domain, Finite, InContext, StartPoints

if TYPE_CHECKING:
    from metakel.optimize.ask_tell import Snapshot

CertificateBasis = Literal["norm bound", "exact", "folds", "emulated"]
UNBOUNDED = (
    "nothing bounds the values far from the observed points; more observations, a norm bound, base "
    "kernels with derivatives or a finite domain (grid, candidates) do"
)


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
    basis : "norm bound", "exact", "folds" or "emulated"
        A confidence band for functions of bounded norm, or replays of the optimizer on past tasks:
        on their recorded rows with a prior learned from other tasks, the same in folds, or on
        draws of a Gaussian process given their runs (`RegretScores`).
    horizon : int or None
        Up to which number of values it keeps improving; None for any.
    tasks : int
        How many past tasks vouch for it.
    safe : bool
        Whether it is about the configurations that respect the limits, and about no others.
    limit : float or None
        The limit of the output where that gives it, and past tasks say no more; None otherwise.
    """

    regret: float
    x: Any = None
    lower: float = -inf
    upper: float = inf
    delta: float = 1.0
    reason: str = ""
    basis: CertificateBasis = "norm bound"
    horizon: int | None = None
    tasks: int = 0
    safe: bool = False
    limit: float | None = None

    def __str__(self) -> str:
        if self.limit is not None:
            return (
                f"no configuration is better by more than {self.regret:.2g}, as the output cannot "
                f"pass its limit of {self.limit:g}; past tasks say no more"
            )
        if self.reason:
            return f"no certificate: {self.reason}"
        if self.basis == "norm bound":
            return (
                f"no {'safe ' if self.safe else ''}configuration is better than the best one by "
                f"more than {self.regret:.3g}, "
                f"with probability {1 - self.delta:g}"
            )
        odds = Fraction(1 - self.delta).limit_denominator(100)
        none = "no configuration" if self.basis == "emulated" else "none of the candidates"
        emulated = " (emulated)" if self.basis == "emulated" else ""
        return (
            f"{none} is better by more than {self.regret:.2g}, {odds.numerator} times out of "
            f"{odds.denominator} on tasks like these{emulated}"
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


def best_of(snapshot: Snapshot) -> Best:
    """The best observed point."""
    found, sign = snapshot.outcomes, snapshot.sign
    if not found.counts.any():
        seen = f"all {found.t} are infeasible" if found.t else "nothing was observed yet"
        raise InputError(f"best: {seen}")
    chosen, value, lower, upper = snapshot.model.best(found)
    low, high = sorted((sign * lower, sign * upper))
    return Best(snapshot.point(chosen), sign * value, low, high)


def no_certificate(snapshot: Snapshot) -> str:
    """Why there will be no certificate, whatever is observed; empty where there may be one."""
    scores = _regret_scores(snapshot)
    if scores is None:
        return snapshot.model.no_bounds
    return scores if isinstance(scores, str) else ""


def certificate_of(snapshot: Snapshot) -> Certificate:
    """How far the best point can be from the optimum."""
    model, found = snapshot.model, snapshot.outcomes
    reason, scores = no_certificate(snapshot), _regret_scores(snapshot)
    if not reason and not found.counts.any():
        reason = "nothing was observed yet"
    if not reason and isinstance(model, Mixture):
        if model.alarm is not None:
            reason = f"alarm after {model.alarm.time} values: {model.alarm.reason}"
        elif found.constraints:
            reason = "past tasks were replayed without constraints"
        elif not model.trace.best:
            reason = "the first point is not the one that this optimizer asks for"
    if reason:
        return Certificate(inf, delta=model.delta, reason=reason)
    if isinstance(model, Mixture) and isinstance(scores, RegretScores):
        return _by_replays(snapshot, model, scores)
    chosen, lower, upper = model.certain(found)
    highest = model.largest_upper(snapshot.domain, snapshot.start)
    bounds = lower, upper, highest
    return _by_bounds(model, snapshot.point(chosen), bounds, snapshot.sign)


def _regret_scores(snapshot: Snapshot) -> RegretScores | str | None:
    """Scores of past tasks that speak for this optimizer; None where a norm bound is used."""
    model = snapshot.model
    if not isinstance(model, Mixture):
        return None
    regret = model.prior.regret
    if isinstance(regret, str):
        return regret
    if snapshot.acquisition != model.acquisition:
        return f"past tasks were replayed with acquisition={model.acquisition!r}, not this one"
    return regret.scores_for(snapshot.domain, model.delta)


def _by_replays(snapshot: Snapshot, model: Mixture, scores: RegretScores) -> Certificate:
    found, sign = snapshot.outcomes, snapshot.sign
    values, factor = np.where(found.counts, found.y, -inf), scores.factor(model.delta)
    best = top = int(np.argmax(values))
    if scores.basis == "emulated":
        # Values may be noisy, so the ceiling would be about them. What holds is the bound of the
        # last time, for the best point of that time.
        values, regret = model.trace.last(values, factor, scores.horizon)
        best = int(np.argmax(values))
    else:
        regret = model.trace.ceiling(factor, scores.horizon) - values.max()
    most, limit = model.limits[1] - float(found.y[top]), None
    if most <= regret and most < inf:  # it says more, and says it of the best point of all
        best, limit = top, sign * model.limits[1] + 0.0  # and no -0
    value = sign * float(found.y[best])
    return Certificate(
        max(min(regret, most), 0.0),
        snapshot.point(best),
        value,
        value,
        model.delta,
        basis=scores.basis,
        horizon=scores.horizon,
        tasks=scores.tasks,
        limit=limit,
    )


def _by_bounds(
    model: Model, point: Any, bounds: tuple[float, float, float], sign: float
) -> Certificate:
    """From the bounds of a point and the largest upper bound of all."""
    lower, upper, highest = bounds
    regret = max(highest, upper) - lower
    low, high = sorted((sign * lower, sign * upper))
    reason, safe = "" if regret < inf else UNBOUNDED, isinstance(model, SafeModel)
    return Certificate(regret, point, low, high, model.delta, reason, safe=safe)


def spread_of(model: Model) -> float | None:
    """The usual range of the values of a task, where it is known."""
    found = model.prior.regret if isinstance(model, Mixture) else None
    return found.spread if isinstance(found, RegretCalibration) else None


# -- in a context ----------------------------------------------------------------------------------


def best_in(
    model: Model, place: Domain, start: StartPoints, rng: np.random.Generator, sign: float
) -> Best:
    """The point with the largest lower bound in a context; where all are infinite, mean."""
    x, lower, upper = _surest(model, place, start, rng)
    mean = float(model.predict(x[None])[0][0])
    low, high = sorted((sign * lower, sign * upper))
    return Best(place.decode(x), sign * min(max(mean, lower), upper), low, high)


def certificate_in(
    model: Model, place: Domain, start: StartPoints, rng: np.random.Generator, sign: float
) -> Certificate:
    """How far the point of `best_in` can be from the optimum of its context."""
    if model.no_bounds:
        return Certificate(inf, delta=model.delta, reason=model.no_bounds)
    x, lower, upper = _surest(model, place, start, rng)
    bounds = lower, upper, largest_upper(model, place, start)
    return _by_bounds(model, place.decode(x), bounds, sign)


def cumulative_regret(model: Model, X: Array, places: list[tuple[Domain, StartPoints]]) -> float:
    """Bound of the sum over points ``X`` (t, d0) of what the best of their place has more.

    ``places`` has one for every point; equal ones are the same object, and are searched once.
    """
    if not len(X):
        return 0.0
    if model.no_bounds:
        return inf
    distinct = {id(domain): (domain, start) for domain, start in places}
    highest = {key: largest_upper(model, *place) for key, place in distinct.items()}
    lower, upper = model.bounds(X)
    top = np.array([highest[id(domain)] for domain, _ in places])
    return float((np.maximum(top, upper) - lower).sum())


def largest_upper(model: Model, domain: Domain, start: StartPoints) -> float:
    """The largest upper bound in a context: exact where the choices are finitely many."""
    if isinstance(domain, InContext) and isinstance(domain.choices, Finite):
        upper = model.bounds(start.X)[1]
        if isinstance(model, SafeModel):
            upper = upper[model.hope(start.X) >= 0]
        return float(upper.max(initial=-inf))
    return model.largest_upper(domain, start)


def _surest(
    model: Model, place: Domain, start: StartPoints, rng: np.random.Generator
) -> tuple[Array, float, float]:
    """The point with the largest lower bound, and its bounds; with limits, of the safe points."""
    first = None if model.no_bounds else model.bounds(start.X)[0]

    def height(Z: Array) -> Array:
        if first is None or not np.isfinite(first).any():
            return model.predict(Z)[0]
        return first if Z is start.X else model.bounds(Z)[0]

    search = Search(place, start, lambda: rng)
    if isinstance(model, SafeModel):
        safe = best_within(search, Score(height), model.margin)
        if safe is None:
            raise NoSafePoint(f"no point is known to be safe in {place!r}")
        x = safe
    else:
        x = search.maximise(Score(height))
    if model.no_bounds:
        return x, -inf, inf
    lower, upper = model.bounds(x[None])
    return x, float(lower[0]), float(upper[0])
