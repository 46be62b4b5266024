"""Domains of named parameters: a space, which is searched by climbs, and a table of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import Hint, InputError
from metakel.search.box import climb
from metakel.search.domain import Domain, Score, StartPoints, tied
from metakel.space import Categorical, Fixed, Float, Ordinal, Parameter, Space
from metakel.space.sums import Polytope, climb_within

POOL = 1000
ENUMERABLE = 2000  # a space of at most so many configurations is searched by looking at each
STARTS = 4  # points from which a search climbs, and how far apart they are in the unit cube
APART = 0.1
ROUNDS = 2
SAME = 1e-9
FINEST = 2e-3  # of a range: nearer points are not told apart without a gradient
LOOKED_AT = 64  # of points that were tried, to find the one whose neighbourhood is searched


# What may be chosen of one parameter, in the columns that it has in the model's space. Each class
# has ``codes``, (k, width) columns of all choices where they are few, and ``ends``, the smallest
# and the largest column.


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Those between two ends, rounded as ``own`` is; the model knows the range of ``known``."""

    own: Float
    known: Float
    columns: slice
    climbs: ClassVar[bool] = True
    held: ClassVar[bool] = False

    @cached_property
    def codes(self) -> Array | None:
        steps = self.own.grid(ENUMERABLE)
        return None if steps is None else self.known.column(np.array(steps, dtype=np.float64))

    @cached_property
    def ends(self) -> tuple[float, float]:
        low, high = self.known.column(np.array([self.own.low, self.own.high]))[:, 0].tolist()
        return low, high

    def nearest(self, columns: Array) -> Array:
        """(n, 1) columns of the choices next to these."""
        columns = np.clip(columns, *self.ends)
        if self.own.step is None and self.own.digits is None:
            return columns
        return self.known.column(self.own.rounded(self.known.number(columns)))

    def sample(self, uniform: Array) -> Array:
        """(n, 1) columns from uniform numbers (n,) in [0, 1)."""
        low, high = self.ends
        return self.nearest((low + uniform * (high - low))[:, None])

    def value(self, columns: Array) -> Any:
        """The value at columns (1, 1)."""
        return self.own.plain(self.own.rounded(self.known.number(columns)))[0]


@dataclass(frozen=True, eq=False)
class _Choices:
    """Some of the values that the model knows; one where the parameter is held."""

    own: Parameter
    known: Parameter
    columns: slice
    codes: Array
    held: bool = False

    @property
    def climbs(self) -> bool:
        """Whether a search may move along it by any amount, as between ordered values."""
        return not self.held and isinstance(self.own, Ordinal)

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.codes.min()), float(self.codes.max())

    def nearest(self, columns: Array) -> Array:
        """(n, width) columns of the choices next to these."""
        return self.codes[self._closest(columns)]

    def sample(self, uniform: Array) -> Array:
        """(n, width) columns from uniform numbers (n,) in [0, 1)."""
        return self.codes[np.floor(uniform * len(self.codes)).astype(np.intp)]

    def value(self, columns: Array) -> Any:
        """The value at columns (1, width)."""
        return self.own.choices[int(self._closest(columns)[0])]

    def _closest(self, columns: Array) -> NDArray[np.intp]:
        """(n,) which of the codes is next to each; of a category, the one with its column."""
        if isinstance(self.known, Categorical):
            return np.asarray(np.argmax(columns @ self.codes.T, axis=1))
        return np.asarray(np.argmin(np.abs(columns - self.codes[:, 0]), axis=1))


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
        return np.asarray((self._bounds[:, 1] - self._bounds[:, 0]) / 2)

    @property
    def narrowed(self) -> str:
        if self.space != self.model_space:
            return super().narrowed
        return "with all parameters free; some are fixed here" if self.fixed else ""

    def holding(self, fixed: Mapping[str, Any], where: str) -> SearchSpace:
        for name, value in fixed.items():
            if name not in self.space.names:
                known = ", ".join(map(repr, self.space.names))
                raise InputError(f"{where}: fixed has {name!r}; the parameters are {known}")
            self._held(self.space[name], value)  # refuses a wrong one
        if all(axis.own.name in fixed for axis in self._free):
            raise InputError(f"{where}: fixed={dict(fixed)} leaves nothing to choose")
        return replace(self, fixed={**self.fixed, **fixed})

    # Coordinates

    @cached_property
    def _axes(self) -> tuple[_Numbers | _Choices, ...]:
        """One for every parameter of the model that has columns."""
        known = (p for p in self.model_space.parameters if not isinstance(p, Fixed))
        return tuple(self._axis(p, self.model_space.columns[p.name]) for p in known)

    def _axis(self, known: Parameter, columns: slice) -> _Numbers | _Choices:
        own = self.space[known.name] if known.name in self.space.names else known
        if known.name in self.fixed:
            code = self._held(known, self.fixed[known.name])
            return _Choices(own, known, columns, code, held=True)
        if isinstance(own, Float) and isinstance(known, Float):
            return _Numbers(own, known, columns)
        codes = known.encode(own.choices, extrapolate=True)
        return _Choices(own, known, columns, codes, held=isinstance(own, Fixed))

    def _held(self, parameter: Parameter, value: Any) -> Array:
        """(1, width) columns at which a parameter is held; a new choice has to be asked for."""
        if self.extrapolate:
            return parameter.place([value])
        try:
            return parameter.encode([value])
        except InputError as error:
            new = Hint("hold it at a new one", "extrapolate=True", "--extrapolate")
            raise InputError(error.message, *(error.hints or (new,))) from None

    @cached_property
    def _free(self) -> tuple[_Numbers | _Choices, ...]:
        """Those that vary."""
        return tuple(axis for axis in self._axes if not axis.held)

    @cached_property
    def _climbing(self) -> NDArray[np.intp]:
        """Columns along which a search may move by any amount."""
        return np.array([a.columns.start for a in self._free if a.climbs], dtype=np.intp)

    @cached_property
    def _bounds(self) -> Array:
        """(d0, 2) smallest and largest of each column; -1 and 1 where it is held."""
        bounds = np.tile([-1.0, 1.0], (self.d0, 1))
        for axis in self._free:
            if axis.climbs:
                bounds[axis.columns] = axis.ends
        return bounds

    @cached_property
    def _conditional(self) -> Space:
        """The space of the model with the conditions of this one as well."""
        space, known = self.model_space, {c.name for c in self.model_space.conditions}
        own = tuple(c for c in self.space.conditions if c.name not in known)
        return replace(space, conditions=(*space.conditions, *own)) if own else space

    def _with_middles(self, X: Array) -> Array:
        """(n, d0) points in which parameters that are not there are at the middle."""
        return self._conditional.settled(X)

    @cached_property
    def _possible(self) -> Polytope | None:
        """What sums leave to choose."""
        held = {name: v for name, v in self.fixed.items() if name in self.space.names}
        return self.space.polytope(held, self.model_space)

    def _keeping_sums(self, X: Array) -> Array:
        """(n, d0) points near to these that keep all sums, not rounded."""
        possible = self._possible
        if possible is None:
            return X
        kept = np.clip(X, *self._bounds.T)
        kept[:, possible.columns] = possible.unscaled(possible.moved(possible.scaled(kept)))
        return kept

    def _nearest(self, X: Array) -> Array:
        """(n, d0) points that stand for a configuration, near to these."""
        parts = [axis.nearest(X[:, axis.columns]) for axis in self._axes]
        near, possible = np.concatenate(parts, axis=1), self._possible
        if possible is not None:
            moved = possible.scaled(self._keeping_sums(X))
            near[:, possible.columns] = possible.unscaled(possible.rounded(moved))
        return self._with_middles(near)

    def encode(self, points: Any, where: str) -> Array:
        """(n, d0) of one configuration or a sequence of them."""
        if self.extrapolate:
            return self.place(points, where)
        return self.model_space.encode(self._whole(points))

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
        X, row = x[None], {}
        absent = {name for name, here in self._conditional.active(X).items() if not here[0]}
        axes = {axis.own.name: axis for axis in self._free}
        for p in self.space.parameters:
            if p.name in axes:
                row[p.name] = axes[p.name].value(X[:, axes[p.name].columns])
            elif p.name in self.fixed:
                row[p.name] = p.normalize(self.fixed[p.name])
            else:
                row[p.name] = p.choices[0]
        return {name: value for name, value in row.items() if name not in absent}

    # What a domain answers

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        found = as_points(X, "domain")
        inside = np.ones(len(found), dtype=bool)
        absent = {name: ~here for name, here in self._conditional.active(found).items()}
        for axis in self._axes:
            columns = found[:, axis.columns]
            if axis.climbs:
                low, high = axis.ends
                here = ((columns >= low - SAME) & (columns <= high + SAME)).all(axis=1)
            else:
                assert axis.codes is not None
                apart = np.abs(columns[:, None] - axis.codes).max(axis=2)
                here = (apart < SAME).any(axis=1)
            inside &= here | absent.get(axis.own.name, False)
        if self._possible is not None:
            inside &= self._possible.contains(self._possible.scaled(found))
        return inside

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
        return float((~self.among(self._grid, X)).sum())

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
        """(N, d0) all configurations, where they are few."""
        codes = [axis.codes for axis in self._axes if axis.codes is not None]
        if len(codes) < len(self._axes) or prod(map(len, codes)) > ENUMERABLE:
            return None
        X = self._with_middles(np.array([np.concatenate(row) for row in product(*codes)]))
        if self._possible is not None:
            X = X[self._possible.contains(self._possible.scaled(X))]
            if not len(X):
                raise InputError(
                    f"no configuration keeps {' and '.join(map(str, self.space.sums))} with these "
                    "values of the parameters"
                )
        return np.unique(X, axis=0) if self._conditional.conditions else X

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        check_generator(rng)
        uniform = rng.random((n, len(self._axes)))
        parts = [axis.sample(u) for axis, u in zip(self._axes, uniform.T, strict=True)]
        X, possible = np.concatenate(parts, axis=1), self._possible
        if possible is not None:
            X[:, possible.columns] = possible.unscaled(possible.rounded(possible.sample(rng, n)))
        return self._with_middles(X)

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """All configurations where they are few; else random ones, and those near landmarks."""
        if self._grid is not None:
            return StartPoints(self._grid)
        X = [self.sample(rng, POOL)]
        X += [self._nearest(Z) for Z in (self.landmarks, landmarks) if Z is not None]
        return StartPoints(np.concatenate(X), climbs=True)

    def maximizers(
        self, score: Score, start: StartPoints, exclude: Array | None = None
    ) -> tuple[Array, Array]:
        """The best points found: all start points are looked at, then the best few climb."""
        closed = np.zeros((0, self.d0)) if exclude is None else exclude
        values = score.values(start.X)
        scores = np.where(self.among(start.X, closed), -np.inf, values)
        if self._grid is not None:
            best = tied(scores, values)
            return start.X[best], values[best]
        best, height = start.X[int(np.argmax(scores))], float(scores.max())
        # A score may be -inf where another point is certainly better.
        finite = values[np.isfinite(values)]
        X, spread = self._spread(start.X, scores), float(np.ptp(finite)) if len(finite) else 0.0
        if len(closed):
            # Next to the best point so far may be a better one that no start point is close to. The
            # best ones come last.
            half, n = LOOKED_AT // 2, len(closed)
            some = np.linspace(0, n - half - 1, half).astype(np.intp)
            rows = np.append(some, np.arange(n - half, n)) if n > LOOKED_AT else np.arange(n)
            looked_at = closed[rows]
            leader = looked_at[[int(np.argmax(score.values(looked_at)))]]
            X = np.concatenate([X, self._nearest(leader)])
        for near, found in self._climbed(score, closed, X, len(values), spread):
            top = int(np.argmax(found))
            if found[top] > height:
                best, height = near[top], float(found[top])
        return best[None], np.array([height])

    def _climbed(
        self, score: Score, closed: Array, X: Array, count: int, spread: float
    ) -> Iterable[tuple[Array, Array]]:
        """Ends of climbs along numbers, and their neighbours with other choices; their scores."""
        free, gradient, bounds = self._climbing, score.gradient, self._bounds

        def judged(Z: Array) -> tuple[Array, Array]:
            near = self._nearest(Z)
            return near, np.where(self.among(near, closed), -np.inf, score.values(near))

        def values(Z: Array) -> Array:
            return score.values(self._with_middles(self._keeping_sums(Z)))

        def slopes(Z: Array) -> tuple[Array, Array]:
            assert gradient is not None
            found, slope = gradient(self._with_middles(Z))
            for name, here in self._conditional.active(Z).items():
                slope[~here, self.model_space.columns[name]] = 0.0  # where it is not there
            return found, slope

        smooth = Score(values, None if gradient is None else slopes)
        for _ in range(ROUNDS):
            if self._possible is not None and gradient is not None:
                X = climb_within(self._possible, slopes, X, bounds[free], free, spread)
            elif len(free):
                radius = float(count) ** (-1 / len(free))
                X, _ = climb(smooth, X, bounds, radius, spread / 20, free, FINEST)
            near, scores = judged(X)
            yield near, scores
            moved = self._neighbors(near[int(np.argmax(scores))])
            if not len(moved):
                return
            changed, found = judged(moved)
            yield changed, found
            if found.max() <= scores.max():
                return
            X = changed[[int(np.argmax(found))]]

    def _neighbors(self, x: Array) -> Array:
        """(k, d0) points that differ in one choice or in one step of one parameter."""
        moved = [np.empty((0, len(x)))]
        for axis in self._free:
            codes = axis.codes
            if codes is None:
                continue
            if not isinstance(axis.own, Categorical):
                here = int(np.argmin(np.abs(codes[:, 0] - x[axis.columns.start])))
                codes = codes[[i for i in (here - 1, here + 1) if 0 <= i < len(codes)]]
            moved.append(np.tile(x, (len(codes), 1)))
            moved[-1][:, axis.columns] = codes
        return np.concatenate(moved)

    def _spread(self, X: Array, scores: Array) -> Array:
        """(k, d0) the best of the points that are not close to a better one."""
        order = np.argsort(-scores, kind="stable")[: 8 * STARTS].tolist()
        chosen: list[int] = []
        for i in order:
            apart = ((np.abs(X[i] - X[j]) / (2 * self.extent)).max() > APART for j in chosen)
            if np.isfinite(scores[i]) and all(apart):
                chosen.append(i)
        return X[chosen[:STARTS] or order[:1]]

    def __repr__(self) -> str:
        return f"space[{', '.join(axis.own.name for axis in self._free)}]"


def as_domain(domain: Any) -> Domain:
    """A domain, or that of a space of named parameters."""
    if isinstance(domain, Space):
        return SearchSpace(domain, domain)
    if not isinstance(domain, Domain):
        raise InputError(
            f"domain is a {type(domain).__name__}; use mk.box, mk.grid or mk.candidates, or a Space"
        )
    return domain
