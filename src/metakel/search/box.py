"""A box of continuous inputs: a quasi-random start, then a climb from the best few points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import ShapeError
from metakel.search.domain import Domain, Function, WithGradient, checked_bounds, tied
from metakel.search.maximise import (
    StartPoints,
    clouds,
    compass_climb,
    neighbours,
    newton_climb,
    peaks,
    quasi_random,
)

# Points closer than this share of the width of the box are the same.
SAME = 1e-6
# Points may be outside by rounding: in float64, and in float32 where that is little in the box.
ROUNDING, SINGLE, LITTLE = 1e-12, 1e-6, 1e-3
CANDIDATES = 768  # for each input, up to 4 of them
FAR, NEAR = 16, 8  # how many climb from candidates, and from a closer look around some of them
CLOUDS = 8


@dataclass(frozen=True, eq=False, repr=False)
class Box(Domain):
    """Every input between two bounds; make it with `box`.

    Parameters
    ----------
    bounds : (d0, 2) array
        One (low, high) per input.
    """

    bounds: Array

    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", checked_bounds(self.bounds, "box"))

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
        return len(self.bounds)

    @property
    def repeat(self) -> bool:
        """Always: a second look at the same point averages the noise."""
        return True

    @property
    def _low(self) -> Array:
        return self.bounds[:, 0]

    @property
    def _width(self) -> Array:
        return self.bounds[:, 1] - self.bounds[:, 0]

    @cached_property
    def _outermost(self) -> tuple[Array, Array]:
        """The bounds, wider by what rounding may do to a point on them."""
        size = np.abs(self.bounds).max(axis=1)
        single = np.minimum(SINGLE * size, LITTLE * self._width)
        slack = np.maximum(single, ROUNDING * np.maximum(self._width, size))
        return self._low - slack, self.bounds[:, 1] + slack

    def _from_unit(self, U: Array) -> Array:
        # The upper bound exactly at 1, whatever rounding makes of low + width.
        return np.where(U == 1, self.bounds[:, 1], self._low + U * self._width)

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """(n,) which points lie between the bounds, up to rounding."""
        found = as_points(X, "domain")
        if found.shape[1] != self.d0:
            raise ShapeError(f"domain: X has {found.shape[1]} inputs per point; expected {self.d0}")
        low, high = self._outermost
        within = (found >= low) & (found <= high)
        return np.asarray(within.all(axis=1))

    def snap(self, X: Array) -> Array:
        """(n, d0) points between the bounds, which ``X`` may leave by rounding."""
        return np.minimum(np.maximum(X, self._low), self.bounds[:, 1])

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n, k) which points differ by a millionth of the widths at most."""
        apart = np.abs(X[:, None] - Z) / self._width
        return np.asarray((apart <= SAME).all(axis=2))

    def unused(self, X: Array) -> float:
        """Always infinitely many."""
        return np.inf

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) points drawn uniformly."""
        check_generator(rng)
        return self._from_unit(rng.random((n, self.d0)))

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """Quasi-random points, shifted by the generator; some lie on faces, edges and corners."""
        U = quasi_random(CANDIDATES * min(self.d0, 4), self.d0, rng)
        X = self._from_unit(U)
        if landmarks is not None:
            U = np.concatenate([U, (landmarks - self._low) / self._width])
            X = np.concatenate([X, landmarks])
        return StartPoints(X, neighbours(U))

    def maximisers(
        self,
        function: Function,
        start: StartPoints,
        *,
        gradient: WithGradient | None = None,
        exclude: Array | None = None,
    ) -> tuple[Array, Array]:
        """The best points found: all candidates are looked at, then the best few climb."""
        values = function(start.X)
        spacing = float(len(values)) ** (-1 / self.d0)
        U = self._starts(function, start, values, spacing)
        if gradient is None:
            found, heights = compass_climb(lambda V: function(self._from_unit(V)), U, spacing)
        else:
            found, heights = newton_climb(
                lambda V: self._unit_gradient(gradient, V), U, spacing, scale=float(np.ptp(values))
            )
        X = self._from_unit(found)
        if exclude is not None and len(exclude):
            free = ~self.same(X, exclude).any(axis=1)
            X, heights = X[free], heights[free]
            if not len(X):  # the best candidates that did not move
                free = ~self.same(start.X, exclude).any(axis=1)
                X, heights = start.X[free], values[free]
        best = tied(heights, values)
        return self._distinct(X[best], heights[best])

    def _starts(
        self, function: Function, start: StartPoints, values: Array, spacing: float
    ) -> Array:
        """(k, d0) points of the unit cube to climb from.

        Peaks of the candidates all over the box, and of a closer look around the first of them: an
        observed maximum leaves a peak of the upper bound on every side of it.
        """
        assert start.neighbours is not None
        far = start.X[peaks(values, start.neighbours, FAR)]
        unit = (far - self._low) / self._width
        close, next_to = clouds(unit[:CLOUDS], 2 * spacing)
        near = peaks(function(self._from_unit(close)), next_to, NEAR)
        return np.concatenate([unit, close[near]])

    def _unit_gradient(self, gradient: WithGradient, U: Array) -> tuple[Array, Array]:
        values, slopes = gradient(self._from_unit(U))
        return values, slopes * self._width

    def _distinct(self, X: Array, values: Array) -> tuple[Array, Array]:
        """Without the copies of a point that several climbs have reached."""
        copies = np.tril(self.same(X, X), -1).any(axis=1)
        return X[~copies], values[~copies]

    def __repr__(self) -> str:
        return f"box[{', '.join(f'({low:g}, {high:g})' for low, high in self.bounds)}]"

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {"kind": self.kind, "bounds": self.bounds.tolist()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Box:
        """Inverse of `to_dict`."""
        return cls(np.array(data["bounds"]))


def box(bounds: ArrayLike) -> Box:
    """Continuous inputs between bounds.

    Parameters
    ----------
    bounds : (d0, 2) array
        One (low, high) per input.
    """
    return Box(bounds)  # type: ignore[arg-type]
