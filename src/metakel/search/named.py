"""Domains of named parameters: a space, which is searched by climbs, and a table of candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from math import floor, prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import InputError
from metakel.search.box import newton_climb
from metakel.search.domain import Domain, Finite, Score, StartPoints, distinct_points, tied
from metakel.search.sums import climb_within
from metakel.space import Categorical, Fixed, Float, Ordinal, Parameter, Space
from metakel.space.sums import Polytope

POOL = 1000
ENUMERABLE = 2000  # a space of at most so many configurations is searched by looking at each
STARTS = 4  # points from which a search climbs, and how far apart they are in the unit cube
APART = 0.1
ROUNDS = 2
# Without a gradient: draws around the best points, closer and closer.
STEPS, DRAWS = (0.1, 0.03, 0.01), 48
SAME = 1e-9
LOOKED_AT = 1024  # of points that were tried, to find those whose neighbourhood is searched
PROBE = 1e-6
# (n, d0) points -> (n,) values and their (n, d0) derivatives
WithGradient = Callable[[Array], tuple[Array, Array]]
# (n, d) points of the space -> configurations near them, and their (n,) scores
Judge = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True, eq=False, repr=False)
class SearchSpace(Domain):
    """Configurations of a space, and where a model on another space sees them.

    Configurations that were tried are not asked for again, unless there are no others.

    Parameters
    ----------
    space : Space
        Parameters to choose, with their ranges.
    model_space : Space
        The space that the model was learned on, often the same. Its parameters that ``space`` lacks
        have to be in ``fixed``.
    fixed : dict
        Parameters held at a value.
    extrapolate : bool
        Whether values may lie beyond the ranges of ``model_space``.
    landmarks : (r, d0) array, optional
        Points of ``model_space`` at which a search looks as well.
    """

    space: Space
    model_space: Space
    fixed: Mapping[str, Any] = field(default_factory=dict)
    extrapolate: bool = False
    landmarks: Array | None = None

    kind: ClassVar[str] = "space"
    repeat = False  # unless everything was tried

    def __post_init__(self) -> None:
        # A held parameter is there, so its parents have values with which it is. What holds for all
        # tasks holds for this one.
        own = {name: v for name, v in self.fixed.items() if name in self.space.names}
        hidden = {name: v for name, v in self.fixed.items() if name not in own}
        known = [s for s in (s.holding(hidden) for s in self.model_space.sums) if s is not None]
        object.__setattr__(self, "space", self.space.summing(known).holding(own))
        for name in (*self.space.names, *self.fixed):
            self.model_space[name]  # an unknown name is refused there
        for p in self.model_space.parameters:
            if p.name not in {*self.space.names, *self.fixed} and not isinstance(p, Fixed):
                raise InputError(
                    f"no range and no value for parameter {p.name!r} of the prior; "
                    "hold it by fixed={...}"
                )

    @property
    def d0(self) -> int:
        return self.model_space.d0

    @cached_property
    def extent(self) -> Array:
        widths = np.ones(self.d0)
        for p in self._free:
            own, theirs = self.space[p.name], self.model_space[p.name]
            if isinstance(own, Float) and isinstance(theirs, Float) and own != theirs:
                low, high = _translated(own, theirs, np.array([[-1.0], [1.0]])).ravel()
                widths[self.model_space.columns[p.name]] = (high - low) / 2
        return widths

    @property
    def narrowed(self) -> str:
        if self.space != self.model_space:
            return "over the ranges of the prior, not over these"
        return "with all parameters free; some are fixed here" if self.fixed else ""

    def holding(self, fixed: Mapping[str, Any], where: str) -> SearchSpace:
        for name, value in fixed.items():
            if name not in self.space.names:
                known = ", ".join(map(repr, self.space.names))
                raise InputError(f"{where}: fixed has {name!r}; the parameters are {known}")
            self.space[name].encode([value], extrapolate=self.extrapolate)  # refuses a wrong one
        if all(p.name in fixed for p in self._free):
            raise InputError(f"{where}: fixed={dict(fixed)} leaves nothing to choose")
        return replace(self, fixed={**self.fixed, **fixed})

    # Coordinates

    @cached_property
    def _held(self) -> dict[str, Any]:
        return {name: v for name, v in self.fixed.items() if name in self.space.names}

    @cached_property
    def _free(self) -> tuple[Parameter, ...]:
        """Parameters that vary."""
        return tuple(self.space[n] for n in self.space.free if n not in self._held)

    @cached_property
    def _climbing(self) -> NDArray[np.intp]:
        """Columns of ``space`` along which a search may move by any amount."""
        numeric = [p for p in self._free if isinstance(p, Float | Ordinal)]
        return np.array([self.space.columns[p.name].start for p in numeric], dtype=np.intp)

    @cached_property
    def _like(self) -> Array:
        """(d,) a point whose columns of held parameters are right."""
        rng = np.random.default_rng(0)
        point = self.space.sample(rng, 1, fixed=self._held, extrapolate=self.extrapolate)
        return np.asarray(point[0])

    def to_model(self, U: Array) -> Array:
        """(n, d0) points of ``space`` (n, d) as the model sees them."""
        if self.space == self.model_space:
            return self.model_space.settled(U)
        parts = []
        for p in self.model_space.parameters:
            if p.name in self.space.names:
                own, columns = self.space[p.name], U[:, self.space.columns[p.name]]
                parts.append(columns if own == p else _translated(own, p, columns))
            elif not isinstance(p, Fixed):
                held = p.encode([self.fixed[p.name]], extrapolate=self.extrapolate)
                parts.append(np.repeat(held, len(U), axis=0))
        X = np.concatenate([np.empty((len(U), 0)), *parts], axis=1)
        return self.model_space.settled(X)

    def _nearest(self, U: Array) -> Array:
        """(n, d) points that stand for a configuration, near to these."""
        near = self.space.nearest(U, fixed=self._held)
        held = np.ones(self.space.d0, dtype=bool)
        for p in self._free:
            held[self.space.columns[p.name]] = False
        near[:, held] = self._like[held]
        return self.space.settled(near)

    def encode(self, points: Any, where: str) -> Array:
        """(n, d0) of one configuration or a sequence of them."""
        return self.model_space.encode(self._whole(points), extrapolate=self.extrapolate)

    def place(self, points: Any, where: str) -> Array:
        return self.model_space.place(self._whole(points))

    def _whole(self, points: Any) -> list[dict[str, Any]]:
        """Configurations with the parameters that are held and not part of the space."""
        hidden = {n: v for n, v in self.fixed.items() if n not in self.space.names}
        return [{**hidden, **row} for row in self.space.rows(points)]

    def locate(self, points: Any, where: str) -> Array:
        return self.encode(points, where)

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration of a point; held numbers exactly as they were given."""
        row = self.space.decode(self._from_model(x[None]))[0]
        for name, value in self._held.items():
            if type(self.space[name]) is Float and name in row:
                row[name] = float(value)
        return row

    def _from_model(self, X: Array) -> Array:
        """(n, d) points of ``space`` whose values are nearest to those (n, d0) of the model."""
        if self.space == self.model_space:
            return X
        U = np.tile(self._like, (len(X), 1))
        for p in self._free:
            theirs = self.model_space[p.name]
            if not isinstance(theirs, Fixed):
                columns = X[:, self.model_space.columns[p.name]]
                U[:, self.space.columns[p.name]] = _returned(p, theirs, columns)
        return U

    # What a domain answers

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        found = as_points(X, "domain")
        inside = np.abs(found) <= 1 + SAME
        for name, value in self.fixed.items():
            columns = self.model_space.columns[name]
            held = self.model_space[name].encode([value], extrapolate=self.extrapolate)
            inside[:, columns] = np.abs(found[:, columns] - held) < SAME
        if self._possible is not None:
            U = self._from_model(found)
            inside &= self._possible.contains(self._possible.scaled(U))[:, None]
        return np.asarray(inside.all(axis=1))

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        same = np.ones((len(X), len(Z)), dtype=bool)
        for column, theirs in zip(X.T, Z.T, strict=True):
            same &= np.abs(column[:, None] - theirs) < SAME
        return same

    def among(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n,) which points are the same configuration as one of ``Z``, however many these are.

        Those that are the same are next to each other along any line, and hardly any others are.
        """
        found = np.zeros(len(X), dtype=bool)
        line = np.sqrt(np.arange(2.0, X.shape[1] + 2))
        along, order = X @ line, np.argsort(Z @ line)
        places, reach = (Z @ line)[order], 2 * SAME * line.sum()
        first = np.searchsorted(places, along - reach)
        count = np.searchsorted(places, along + reach, side="right") - first
        if count.any():
            one = np.repeat(np.arange(len(X)), count)
            step = np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
            other = order[np.repeat(first, count) + step]
            found[one[(np.abs(X[one] - Z[other]) < SAME).all(axis=1)]] = True
        return found

    def unused(self, X: Array) -> float:
        if self._grid is None:
            return np.inf
        return float((~self.among(self.to_model(self._grid), X)).sum())

    def supply(self, tried: Array, pending: Array) -> float:
        """Always more: where everything was tried, the best is tried again."""
        return np.inf

    def excluded(self, tried: Array, pending: Array) -> Array:
        """Everything tried or pending, as long as there is something else."""
        for X in (np.concatenate([pending, tried]), pending):
            if self.unused(X):
                return X
        return pending[:0]

    @cached_property
    def _grid(self) -> Array | None:
        """(N, d) all configurations, where they are few."""
        codes = [_codes(p) for p in self._free]
        if any(c is None for c in codes) or prod(len(c) for c in codes if c is not None) > (
            ENUMERABLE
        ):
            return None
        combinations = list(product(*(c for c in codes if c is not None)))
        U = np.tile(self._like, (len(combinations), 1))
        for i, p in enumerate(self._free):
            U[:, self.space.columns[p.name]] = [row[i] for row in combinations]
        if self._possible is not None:
            U = U[self._possible.contains(self._possible.scaled(U))]
            if not len(U):
                raise InputError(
                    f"no configuration keeps {' and '.join(map(str, self.space.sums))} with these "
                    "values of the parameters"
                )
        return np.unique(self.space.settled(U), axis=0) if self.space.conditions else U

    @cached_property
    def _possible(self) -> Polytope | None:
        """What sums leave to choose."""
        return self.space.polytope(self._held)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return self.to_model(self._sample(rng, n))

    def _sample(self, rng: np.random.Generator, n: int) -> Array:
        check_generator(rng)
        return self.space.sample(rng, n, fixed=self._held, extrapolate=self.extrapolate)

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """All configurations where they are few; else random ones, and those near landmarks."""
        U = self._grid
        if U is None:
            U = self._sample(rng, POOL)
            for X in (self.landmarks, landmarks):
                if X is not None:
                    U = np.concatenate([U, self._nearest(self._from_model(np.clip(X, -1, 1)))])
        return StartPoints(self.to_model(U), U=U)

    def maximisers(
        self, score: Score, start: StartPoints, exclude: Array | None = None
    ) -> tuple[Array, Array]:
        """The best points found: all start points are looked at, then the best few climb."""
        assert start.U is not None
        closed = np.zeros((0, self.d0)) if exclude is None else exclude
        function, gradient = score.values, score.gradient
        values = function(start.X)
        scores = np.where(self.among(start.X, closed), -np.inf, values)
        if self._grid is not None:
            best = tied(scores, values)
            return start.X[best], values[best]
        best, height = start.U[int(np.argmax(scores))], float(scores.max())
        # A score may be -inf where another point is certainly better.
        finite = values[np.isfinite(values)]
        U, spread = _spread(start.U, scores), float(np.ptp(finite)) if len(finite) else 0.0
        if len(closed):
            # Next to the best point so far may be a better one that no start point is close to.
            looked_at = closed[_some(len(closed))]
            leader = looked_at[[int(np.argmax(function(looked_at)))]]
            U = np.concatenate([U, self._nearest(self._from_model(leader))])

        def judged(V: Array) -> tuple[Array, Array]:
            near = self._nearest(V)
            X = self.to_model(near)
            return near, np.where(self.among(X, closed), -np.inf, function(X))

        if gradient is None or not len(self._climbing):
            trials = self._drawn(judged, U)
        else:
            trials = self._climbed(judged, gradient, U, len(values), spread)
        for near, found in trials:
            top = int(np.argmax(found))
            if found[top] > height:
                best, height = near[top], float(found[top])
        return self.to_model(best[None]), np.array([height])

    def _drawn(self, judged: Judge, U: Array) -> Iterable[tuple[Array, Array]]:
        """Points drawn around the best, with their scores; closer and closer."""
        free = np.concatenate(
            [np.arange(self.space.d0)[self.space.columns[p.name]] for p in self._free]
            or [np.zeros(0, dtype=np.intp)]
        )
        for step in STEPS if len(free) else ():
            drawn = np.repeat(U, DRAWS, axis=0)
            drawn[:, free] += step * _pattern(len(drawn), len(free))
            near, scores = judged(drawn)
            yield near, scores
            U = near[np.argsort(-scores, kind="stable")[:STARTS]]

    def _climbed(
        self, judged: Judge, gradient: WithGradient, U: Array, count: int, spread: float
    ) -> Iterable[tuple[Array, Array]]:
        """Ends of climbs along numbers, and their neighbours with other choices."""
        radius, tightness = float(count) ** (-1 / len(self._climbing)), spread / 20

        def along(V: Array) -> tuple[Array, Array]:
            points = 2 * V - 1
            X = self.to_model(points)
            values, slopes = gradient(X)
            return values, 2 * self._pulled_back(points, slopes)

        for _ in range(ROUNDS):
            if self._possible is None:
                V, _ = newton_climb(along, (U + 1) / 2, radius, tightness, self._climbing)
            else:
                V = climb_within(self._possible, along, (U + 1) / 2, self._climbing, spread)
            near, scores = judged(2 * V - 1)
            yield near, scores
            moved = self._neighbours(near[int(np.argmax(scores))])
            if not len(moved):
                return
            changed, found = judged(moved)
            yield changed, found
            if found.max() <= scores.max():
                return
            U = changed[[int(np.argmax(found))]]

    def _pulled_back(self, U: Array, slopes: Array) -> Array:
        """(n, d) derivatives in ``space`` of those (n, d0) in the inputs of the model."""
        pulled = slopes
        if self.space != self.model_space:
            ahead, behind = self.to_model(U + PROBE), self.to_model(U - PROBE)
            rates = (ahead - behind) / (2 * PROBE)  # every input depends on its own parameter only
            pulled = np.zeros_like(U)
            for p in self._free:
                if isinstance(p, Float | Ordinal):
                    inputs = self.model_space.columns[p.name]
                    product_ = slopes[:, inputs] * rates[:, inputs]
                    pulled[:, self.space.columns[p.name].start] = product_.sum(axis=1)
        for name, here in self.space.active(U).items():
            pulled[~here, self.space.columns[name]] = 0.0  # where the parameter is not there
        return pulled

    def _neighbours(self, u: Array) -> Array:
        """(k, d) points that differ in one choice or in one step of one parameter."""
        moved = []
        for p in self._free:
            codes = _codes(p)
            if codes is None:
                continue
            columns = self.space.columns[p.name]
            if not isinstance(p, Categorical):
                here = int(np.argmin(np.abs(codes[:, 0] - u[columns.start])))
                codes = codes[[i for i in (here - 1, here + 1) if 0 <= i < len(codes)]]
            for code in codes:
                other = u.copy()
                other[columns] = code
                moved.append(other)
        return np.array(moved).reshape(-1, len(u))

    def __repr__(self) -> str:
        return f"space[{', '.join(p.name for p in self._free)}]"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "space": self.space.to_dict(),
            "model_space": self.model_space.to_dict(),
            "fixed": dict(self.fixed),
            "extrapolate": self.extrapolate,
            "landmarks": None if self.landmarks is None else self.landmarks.tolist(),
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> SearchSpace:
        landmarks = data["landmarks"]
        return cls(
            Space.from_dict(data["space"]),
            Space.from_dict(data["model_space"]),
            dict(data["fixed"]),
            bool(data["extrapolate"]),
            None if landmarks is None else np.array(landmarks, dtype=np.float64),
        )


@dataclass(frozen=True, eq=False, repr=False)
class CandidateTable(Finite):
    """A table of configurations, each of which may be chosen once; make it with `of`.

    Parameters
    ----------
    rows : tuple of dict
        Configurations as they were given, one for every point of ``X``.
    space : Space
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    space: Space = None  # type: ignore[assignment]

    kind: ClassVar[str] = "table"

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], X: Array, space: Space) -> CandidateTable:
        """From configurations and their points (n, d0); of equal ones the first is kept."""
        if not len(X):
            raise InputError("the table of candidates is empty; expected at least one")
        kept, first = distinct_points(X)
        return cls(kept, False, None, tuple(rows[i] for i in first.tolist()), space)

    def locate(self, points: Any, where: str) -> Array:
        """(n, d0) of configurations, in the table or not."""
        return self.space.encode(self.space.rows(points), extrapolate=True) + 0.0

    def encode(self, points: Any, where: str) -> Array:
        """(n, d0) of one configuration of the table or a sequence of them."""
        found = self.index(self.locate(points, where))
        missing = found < 0
        if missing.any():
            row = self.space.rows(points)[int(np.argmax(missing))]
            raise InputError(f"{where}: {dict(row)} is not among the {len(self)} candidates")
        return self.X[found]

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration as it was listed."""
        return dict(self.rows[int(self.index(x[None])[0])])

    def __repr__(self) -> str:
        return f"table of {len(self)} candidates"

    def to_dict(self) -> dict[str, Any]:
        rows = [dict(row) for row in self.rows]
        return {"kind": self.kind, "rows": rows, "space": self.space.to_dict()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> CandidateTable:
        space = Space.from_dict(data["space"])
        return cls.of(data["rows"], space.encode(data["rows"], extrapolate=True), space)


def _translated(own: Parameter, theirs: Parameter, columns: Array) -> Array:
    """Columns of one parameter as columns of another that has the same values."""
    if isinstance(own, Float) and isinstance(theirs, Float):
        # Not rounded, so that a search can move by any amount.
        low, high = np.log([own.low, own.high]) if own.log else (own.low, own.high)
        numbers = low + (columns + 1) / 2 * (high - low)
        numbers = np.exp(numbers) if own.log else numbers
        low, high = np.log([theirs.low, theirs.high]) if theirs.log else (theirs.low, theirs.high)
        scaled = np.log(np.maximum(numbers, 1e-300)) if theirs.log else numbers
        return np.asarray(2 * (scaled - low) / (high - low) - 1)
    return theirs.encode(own.decode(columns), extrapolate=True)


def _returned(own: Parameter, theirs: Parameter, columns: Array) -> Array:
    """Columns of ``own`` whose values are nearest to columns of ``theirs``."""
    if own == theirs:
        return columns
    if isinstance(own, Float) and isinstance(theirs, Float):
        return own.nearest(np.clip(_translated(theirs, own, columns), -1, 1))
    codes = _codes(own)
    if codes is None:
        return own.encode(theirs.decode(columns), extrapolate=True)
    placed = _translated(own, theirs, codes)
    apart = np.abs(columns[:, None] - placed).max(axis=2)
    return np.asarray(codes[np.argmin(apart, axis=1)])


def _codes(parameter: Parameter) -> Array | None:
    """(k, width) columns of all values of a parameter, where they are few."""
    if isinstance(parameter, Categorical):
        return np.eye(parameter.width)
    if isinstance(parameter, Ordinal):
        return parameter.encode(parameter.values)
    if isinstance(parameter, Float) and parameter.step is not None:
        count = floor((parameter.high - parameter.low) / parameter.step + 1e-9) + 1
        if count <= ENUMERABLE:
            values = parameter.low + parameter.step * np.arange(count)
            return parameter.nearest(parameter.encode(np.minimum(values, parameter.high).tolist()))
    return None


def _some(n: int) -> NDArray[np.intp]:
    """Rows of n: all, or half of `LOOKED_AT` evenly spaced and the last ones."""
    if n <= LOOKED_AT:
        return np.arange(n)
    half = LOOKED_AT // 2
    return np.append(np.linspace(0, n - half - 1, half).astype(np.intp), np.arange(n - half, n))


def _spread(U: Array, scores: Array) -> Array:
    """(k, d) the best of the points that are not close to a better one."""
    order = np.argsort(-scores, kind="stable")[: 8 * STARTS]
    chosen: list[int] = []
    for i in order.tolist():
        if not np.isfinite(scores[i]):
            break
        if all(np.abs(U[i] - U[j]).max() / 2 > APART for j in chosen):
            chosen.append(i)
        if len(chosen) == STARTS:
            break
    return U[chosen or order[:1].tolist()]


@lru_cache(maxsize=64)
def _pattern(n: int, d: int) -> Array:
    """(n, d) normal numbers, always the same: a search is a function of what it is given."""
    return np.random.default_rng(np.random.SeedSequence((n, d))).standard_normal((n, d))
