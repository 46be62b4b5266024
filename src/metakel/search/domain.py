"""What a domain is: points to choose from, and a search for the best of them.

A finite domain looks at all of its points. Boxes and named spaces have files of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import InputError, ShapeError
from metakel.space import Space

# Values this close, relative to their range over the domain, are ties.
TIE = 1e-9
# Up to these differences, relative to the largest size of an input, two points are the same: what
# float64 loses, and what float32 loses if no other point is nearly as close.
ROUNDING, SINGLE = 1e-9, 1e-6
CLOSER = 10


@dataclass(frozen=True, eq=False)
class Score:
    """What a search maximises.

    Parameters
    ----------
    values : (n, d0) -> (n,)
    gradient : (n, d0) -> (n,), (n, d0), optional
        The values again with their derivatives.
    """

    values: Callable[[Array], Array]
    gradient: Callable[[Array], tuple[Array, Array]] | None = None


@dataclass(frozen=True, eq=False)
class StartPoints:
    """Points at which every search of a domain begins.

    Parameters
    ----------
    X : (n, d0) array
        As a model sees them.
    neighbors : (n, k) array of int, optional
        Which points are next to each; not needed where all points of a domain are here.
    climbs : bool
        Whether they are a first look only, from which a search climbs.
    """

    X: Array
    neighbors: NDArray[np.intp] | None = None
    climbs: bool = False


class Domain(ABC):
    """A set of points of d0 inputs."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def d0(self) -> int:
        """How many inputs a point has."""

    @property
    def points(self) -> Array | None:
        """(N, d0) all points of a finite domain; None for others."""
        return None

    @property
    def narrowed(self) -> str:
        """How it differs from the whole space of the model, for messages; empty if it does not."""
        return "over the ranges of the prior, not over these"

    def holding(self, fixed: Mapping[str, Any], where: str) -> Domain:
        """The part of the domain in which parameters are held at these values."""
        raise InputError(
            f"{where}: fixed is {dict(fixed)}, but {self!r} has no named parameters; expected a "
            "Space"
        )

    @property
    @abstractmethod
    def repeat(self) -> bool:
        """Whether a point may be chosen more than once."""

    @property
    def extent(self) -> Array:
        """(d0,) half the width of what may be chosen of each input; 1 where nothing is narrowed."""
        return np.ones(self.d0)

    @abstractmethod
    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which of the points ``X`` (n, d0) lie in the domain, up to rounding."""

    def snap(self, X: Array) -> Array:
        """(n, d0) points ``X`` that it contains, without the rounding that `contains` allows."""
        return X

    @abstractmethod
    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n, k) which points of ``X`` (n, d0) and ``Z`` (k, d0) are the same up to rounding."""

    @abstractmethod
    def unused(self, X: Array) -> float:
        """How many points of the domain are not among ``X`` (n, d0); inf for a continuous one."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) points drawn uniformly and independently."""

    @abstractmethod
    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """Points at which a search begins: all of a finite domain, else ``landmarks`` as well."""

    @abstractmethod
    def maximizers(
        self, score: Score, start: StartPoints, exclude: Array | None = None
    ) -> tuple[Array, Array]:
        """The best points found (k, d0), all equally good, and their values (k,).

        Parameters
        ----------
        score : Score
            A search climbs with its gradient, and feels its way without.
        start : StartPoints
            The score is called with their very array, so it may keep what it computed for it.
        exclude : (k, d0) array, optional
            Points that must not be chosen.
        """

    def maximize(
        self,
        function: Callable[[Array], Array],
        rng: np.random.Generator,
        *,
        gradient: Callable[[Array], tuple[Array, Array]] | None = None,
        exclude: Array | None = None,
        start: StartPoints | None = None,
    ) -> tuple[Array, float]:
        """A best point (d0,) and its value; ties are broken by the generator, never by order.

        ``function`` and ``gradient`` are those of a `Score`, the others those of `maximizers`;
        without ``start`` new points are drawn.
        """
        check_generator(rng)
        start = self.start_points(rng) if start is None else start
        found, values = self.maximizers(Score(function, gradient), start, exclude)
        chosen = int(rng.integers(len(found)))
        return found[chosen], float(values[chosen])

    def supply(self, tried: Array, pending: Array) -> float:
        """How many more points may be asked for after these (n, d0) and (q, d0)."""
        return np.inf if self.repeat else self.unused(np.concatenate([tried, pending]))

    def excluded(self, tried: Array, pending: Array) -> Array:
        """(k, d0) points not to ask for: pending ones, and those tried where none is repeated."""
        if not self.repeat:
            return np.concatenate([pending, tried])
        return pending if self.unused(pending) else pending[:0]

    def decode(self, x: Array) -> Any:
        """A point (d0,) as users see it."""
        return x.copy()

    def place(self, points: Any, where: str) -> Array:
        """(n, d0) of points that were really tried, which may be none of the domain."""
        return self.encode(points, where)

    def locate(self, points: Any, where: str) -> Array:
        """(n, d0) points as a model sees them, which need not lie in the domain."""
        given = np.asarray(points)
        if given.ndim == 0 or (given.ndim == 1 and self.d0 > 1):
            given = given.reshape(1, -1)
        found = as_points(given, where)
        if found.shape[1] != self.d0:
            raise ShapeError(
                f"{where}: a point has {found.shape[1]} inputs; the domain has {self.d0}"
            )
        return found

    def encode(self, points: Any, where: str) -> Array:
        """Points as users give them, as an (n, d0) array; an error where one is not in the domain.

        One point may be given as a vector of d0 numbers; for d0 = 1 a vector is n points. Rounding,
        as by float32, is undone.
        """
        found = self.locate(points, where)
        inside = self.contains(found)
        if not inside.all():
            first = found[int(np.argmin(inside))]
            raise InputError(f"{where}: the point {first.tolist()} is not in the domain {self!r}")
        return self.snap(found)


def tied(values: Array, spread: Array) -> NDArray[np.bool_]:
    """Which values equal the largest up to rounding, on the scale of the finite ``spread``."""
    top, scale = values.max(), float(spread.max()) - float(spread.min())
    if not np.isfinite(scale):
        finite = spread[np.isfinite(spread)]
        scale = np.ptp(finite) if len(finite) else 0.0
    best: NDArray[np.bool_] = values >= (top - TIE * scale if np.isfinite(top) else top)
    return best


def checked_bounds(bounds: ArrayLike, where: str) -> Array:
    """Bounds as a (d0, 2) array with low < high in every row."""
    try:
        pairs = np.array(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(
            f"{where}: bounds are {bounds!r}; expected one (low, high) per input"
        ) from None
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ShapeError(
            f"{where}: bounds have shape {pairs.shape}; expected one (low, high) per input"
        )
    wrong = np.flatnonzero(~(np.isfinite(pairs).all(axis=1) & (pairs[:, 0] < pairs[:, 1])))
    if len(wrong):
        low, high = pairs[wrong[0]]
        raise InputError(
            f"{where}: input {wrong[0]} has bounds ({low}, {high}); expected low < high"
        )
    pairs.setflags(write=False)
    return pairs


@dataclass(frozen=True, eq=False, repr=False)
class Finite(Domain):
    """A list of points; make it with `candidates` or `grid`.

    Parameters
    ----------
    X : (N, d0) array
        All different.
    repeat : bool
        Whether a point may be chosen more than once.
    axes : tuple of (low, high, count), optional
        The grid that ``X`` is, if it is one.
    """

    X: Array
    repeat: bool = True
    axes: tuple[tuple[float, float, int], ...] | None = None

    kind: ClassVar[str] = "finite"

    @property
    def d0(self) -> int:
        return int(self.X.shape[1])

    @property
    def points(self) -> Array:
        return self.X

    @property
    def narrowed(self) -> str:
        return ""

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        raw, width = self.X.tobytes(), 8 * self.d0
        return {raw[i * width : (i + 1) * width]: i for i in range(len(self.X))}

    @cached_property
    def _size(self) -> Array:
        size = np.abs(self.X).max(axis=0)
        return np.where(size > 0, size, 1.0)

    def index(self, X: Array) -> NDArray[np.intp]:
        """(n,) which point of the domain each row is, -1 where it is none."""
        known, raw, width = self._rows, (X + 0.0).tobytes(), 8 * self.d0
        rows = [known.get(raw[at : at + width], -1) for at in range(0, len(raw), width)]
        if -1 in rows:
            rows = [self._nearest(x) if i < 0 else i for i, x in zip(rows, X, strict=True)]
        return np.array(rows, dtype=np.intp)

    def _nearest(self, x: Array) -> int:
        """Which point ``x`` (d0,) is up to rounding, -1 if it is none."""
        apart = (np.abs(self.X - x) / self._size).max(axis=1)
        nearest = int(np.argmin(apart))
        second = np.partition(apart, 1)[1] if len(apart) > 1 else np.inf
        alone = apart[nearest] <= SINGLE and CLOSER * apart[nearest] <= second
        return nearest if alone or apart[nearest] <= ROUNDING else -1

    def snap(self, X: Array) -> Array:
        return self.X[self.index(X)]

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        return self.index(as_points(X, "domain")) >= 0

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        equal: NDArray[np.bool_] = self.index(X)[:, None] == self.index(Z)
        return equal

    def unused(self, X: Array) -> int:
        return len(self) - len(np.unique(self.index(X)))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) points of the list, with replacement."""
        check_generator(rng)
        return self.X[rng.integers(len(self.X), size=n)]

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        return StartPoints(self.X)

    def maximizers(
        self, score: Score, start: StartPoints, exclude: Array | None = None
    ) -> tuple[Array, Array]:
        """All best points; every point is looked at, so the gradient is not used."""
        values = score.values(start.X)
        scores = values.copy()
        if exclude is not None and len(exclude):
            scores[self.index(exclude)] = -np.inf
        best = np.flatnonzero(tied(scores, values))
        if scores[best[0]] == -np.inf:  # where all that is left scores -inf, all of it is tied
            excluded = self.index(start.X[:0] if exclude is None else exclude)
            best = np.setdiff1d(np.arange(len(values)), excluded)
            if not len(best):
                raise InputError(f"all {len(values)} points of the domain are excluded")
        return start.X[best], values[best]

    def __repr__(self) -> str:
        if self.axes is not None:
            sides = ", ".join(f"({low:g}, {high:g}, {count})" for low, high, count in self.axes)
            return f"grid[{sides}]"
        return f"candidates(N={len(self.X)}, d0={self.d0}{'' if self.repeat else ', repeat=False'})"

    def to_dict(self) -> dict[str, Any]:
        kept = {"axes": self.axes} if self.axes is not None else {"X": self.X.tolist()}
        return {"kind": self.kind, "repeat": self.repeat, **kept}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finite:
        if "axes" in data:
            low_high = [axis[:2] for axis in data["axes"]]
            return grid(low_high, [axis[2] for axis in data["axes"]], repeat=data["repeat"])
        return candidates(data["X"], repeat=data["repeat"])


def candidates(X: ArrayLike, *, repeat: bool = True) -> Finite:
    """Finitely many candidates.

    Parameters
    ----------
    X : (N, d0) array
        A vector is N points of one input. Of equal points one is kept.
    repeat : bool
        Whether a point may be chosen more than once; False for a table of finished runs.
    """
    given = as_points(X, "points")
    if not len(given):
        raise InputError("points: there are none; expected at least one candidate")
    return Finite(distinct_points(given)[0], repeat)


def distinct_points(X: Array) -> tuple[Array, NDArray[np.intp]]:
    """The points of ``X`` (n, d0) without repetitions, and at which rows they were first."""
    points = X + 0.0  # -0.0 and 0.0 are one point
    rows = np.sort(np.unique(points, axis=0, return_index=True)[1])
    kept = points[rows]
    kept.setflags(write=False)
    return kept, rows


def grid(bounds: ArrayLike, count: int | Sequence[int] = 101, *, repeat: bool = True) -> Finite:
    """All combinations of equally spaced values, ends included.

    Parameters
    ----------
    bounds : (d0, 2) array
        One (low, high) per input.
    count : int or d0 of them
        How many values of each input.
    repeat : bool
        Whether a point may be chosen more than once.
    """
    pairs = checked_bounds(bounds, "grid")
    counts = list(count) if isinstance(count, Iterable) else [count] * len(pairs)
    if len(counts) != len(pairs):
        raise ShapeError(f"grid: {len(counts)} counts for {len(pairs)} inputs")
    if not all(isinstance(number, int | np.integer) and number >= 2 for number in counts):
        raise InputError(f"grid: count is {count!r}; expected integers >= 2")
    axes = tuple((float(lo), float(hi), int(n)) for (lo, hi), n in zip(pairs, counts, strict=True))
    values = np.meshgrid(*(np.linspace(*axis) for axis in axes), indexing="ij")
    X = np.stack([v.ravel() for v in values], axis=1) + 0.0
    X.setflags(write=False)
    return Finite(X, repeat, axes)


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
    def from_dict(cls, data: Mapping[str, Any]) -> CandidateTable:
        space = Space.from_dict(data["space"])
        return cls.of(data["rows"], space.encode(data["rows"], extrapolate=True), space)
