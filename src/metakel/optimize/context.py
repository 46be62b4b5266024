r"""Decisions by context (Statement 7): what is best, and how good it is, in contexts seen or not.

The model is one of f(x, z); x is chosen, z is given. Its bounds l and u hold for all (x, z) and all
times together, with probability 1 - delta, whoever chooses the contexts and in whatever order. So
with :math:`\pi(z) = \arg\max_x l(x, z)`, for all contexts at once,

.. math:: \max_x f(x, z) - f(\pi(z), z) \le \max_x u(x, z) - l(\pi(z), z),

and the cumulative regret of the points tried so far is bounded by
:math:`\sum_t \max_x u(x, z_t) - l(x_t, z_t)`, with the bounds of the present time.
"""

from __future__ import annotations

from math import inf

import numpy as np

from metakel._arrays import Array
from metakel.optimize.model import Best, Certificate, Model, Score, Search
from metakel.optimize.safe import NoSafePoint, SafeModel, best_within
from metakel.search import Domain, Finite, InContext, StartPoints

UNBOUNDED = (
    "nothing bounds the values far from the observed points; more observations, a norm bound, base "
    "kernels with derivatives or a finite domain (grid, candidates) do"
)


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
    regret = max(largest_upper(model, place, start), upper) - lower
    low, high = sorted((sign * lower, sign * upper))
    reason = "" if regret < inf else UNBOUNDED
    return Certificate(regret, place.decode(x), low, high, model.delta, reason)


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
