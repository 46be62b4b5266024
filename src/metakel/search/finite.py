"""Finitely many points: every one of them is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import InputError, ShapeError
from metakel.search.domain import Domain, Function, StartPoints, WithGradient, checked_bounds, tied
from metakel.search.named import rows_of
from metakel.space import Space

# Up to these differences, relative to the largest size of an input, two points are the same: what
# float64 loses, and what float32 loses if no other point is nearly as close.
ROUNDING, SINGLE = 1e-9, 1e-6
CLOSER = 10


@dataclass(frozen=True, eq=False, repr=False)
class Finite(Domain):
    """A list of points; make it with `candidates` or `grid`.

    Parameters
    ----------
    X : (N, d0) array
        All different.
    may_repeat : bool
        Whether a point may be chosen more than once.
    axes : tuple of (low, high, count), optional
        The grid that ``X`` is, if it is one.
    """

    X: Array
    may_repeat: bool = True
    axes: tuple[tuple[float, float, int], ...] | None = None

    kind: ClassVar[str] = "finite"

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
        return int(self.X.shape[1])

    @property
    def repeat(self) -> bool:
        """Whether a point may be chosen more than once."""
        return self.may_repeat

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
        """(n, d0) points of the list that ``X`` is up to rounding."""
        return self.X[self.index(X)]

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which points are in the list, up to rounding."""
        return self.index(as_points(X, "domain")) >= 0

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n, k) which points are the same entry of the list."""
        equal: NDArray[np.bool_] = self.index(X)[:, None] == self.index(Z)
        return equal

    def unused(self, X: Array) -> int:
        """How many points of the list are not among ``X``."""
        return len(self) - len(np.unique(self.index(X)))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) points of the list, with replacement."""
        check_generator(rng)
        return self.X[rng.integers(len(self.X), size=n)]

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """All points."""
        return StartPoints(self.X)

    def maximisers(
        self,
        function: Function,
        start: StartPoints,
        *,
        gradient: WithGradient | None = None,
        exclude: Array | None = None,
    ) -> tuple[Array, Array]:
        """All best points; every point is looked at, so the gradient is not used."""
        values = function(start.X)
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
        """Exact JSON form."""
        kept = {"axes": self.axes} if self.axes is not None else {"X": self.X.tolist()}
        return {"kind": self.kind, "repeat": self.repeat, **kept}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Finite:
        """Inverse of `to_dict`."""
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
    given = as_points(X, "points") + 0.0  # -0.0 and 0.0 are one point
    if not len(given):
        raise InputError("points: there are none; expected at least one candidate")
    _, first = np.unique(given, axis=0, return_index=True)
    kept = given[np.sort(first)]
    kept.setflags(write=False)
    return Finite(kept, repeat)


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
        points = X + 0.0  # -0.0 and 0.0 are one point
        _, first = np.unique(points, axis=0, return_index=True)
        kept = np.sort(first)
        distinct = points[kept]
        distinct.setflags(write=False)
        return cls(distinct, False, None, tuple(rows[i] for i in kept.tolist()), space)

    def locate(self, points: Any, where: str) -> Array:
        """(n, d0) of configurations, in the table or not."""
        return self.space.encode(rows_of(points, self.space), extrapolate=True) + 0.0

    def encode(self, points: Any, where: str) -> Array:
        """(n, d0) of one configuration of the table or a sequence of them."""
        found = self.index(self.locate(points, where))
        missing = found < 0
        if missing.any():
            row = rows_of(points, self.space)[int(np.argmax(missing))]
            raise InputError(f"{where}: {dict(row)} is not among the {len(self)} candidates")
        return self.X[found]

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration as it was listed."""
        return dict(self.rows[int(self.index(x[None])[0])])

    def __repr__(self) -> str:
        return f"table of {len(self)} candidates"

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        rows = [dict(row) for row in self.rows]
        return {"kind": self.kind, "rows": rows, "space": self.space.to_dict()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> CandidateTable:
        """Inverse of `to_dict`."""
        space = Space.from_dict(data["space"])
        return cls.of(data["rows"], space.encode(data["rows"], extrapolate=True), space)
