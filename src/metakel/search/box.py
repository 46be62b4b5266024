"""A box of continuous inputs: a quasi-random start, then a climb from the best few points.

Positions are in the unit cube. Distances are between angles, arccos(1 - 2 position): polynomials
change faster towards the ends of an interval, and evenly on this scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, as_points, check_generator
from metakel.errors import ShapeError
from metakel.search.domain import Domain, Score, StartPoints, checked_bounds, tied

# Points closer than this share of the width of the box are the same.
SAME = 1e-6
# Points may be outside by rounding: in float64, and in float32 where that is little in the box.
ROUNDING, SINGLE, LITTLE = 1e-12, 1e-6, 1e-3
CANDIDATES = 768  # for each input, up to 4 of them
FAR, NEAR = 16, 8  # how many climb from candidates, and from a closer look around some of them
CLOUDS = 8
# A part of the points is pushed onto the boundary, where upper bounds are often largest.
STRETCH = 1.1
CLOUD = 16
# How much higher than a peak of the points the function may be, in units of its prominence.
RISE = 2.0
BLOCK = 256
# Of points of the unit cube: (n, d0) -> (n,), and with the (n, d0) derivatives.
UnitFunction = Callable[[Array], Array]
UnitGradient = Callable[[Array], tuple[Array, Array]]


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
    repeat = True  # a second look at the same point averages the noise

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", checked_bounds(self.bounds, "box"))

    @property
    def d0(self) -> int:
        return len(self.bounds)

    @property
    def narrowed(self) -> str:
        return ""

    @property
    def _low(self) -> Array:
        return self.bounds[:, 0]

    @property
    def _width(self) -> Array:
        return self.bounds[:, 1] - self.bounds[:, 0]

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        found = as_points(X, "domain")
        if found.shape[1] != self.d0:
            raise ShapeError(f"domain: X has {found.shape[1]} inputs per point; expected {self.d0}")
        size = np.abs(self.bounds).max(axis=1)
        single = np.minimum(SINGLE * size, LITTLE * self._width)
        slack = np.maximum(single, ROUNDING * np.maximum(self._width, size))
        within = (found >= self._low - slack) & (found <= self.bounds[:, 1] + slack)
        return np.asarray(within.all(axis=1))

    def snap(self, X: Array) -> Array:
        return np.clip(X, *self.bounds.T)

    def same(self, X: Array, Z: Array) -> NDArray[np.bool_]:
        """(n, k) which points differ by a millionth of the widths at most."""
        apart = np.abs(X[:, None] - Z) / self._width
        return np.asarray((apart <= SAME).all(axis=2))

    def unused(self, X: Array) -> float:
        return np.inf

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        check_generator(rng)
        return _from_unit(rng.random((n, self.d0)), self.bounds)

    def start_points(self, rng: np.random.Generator, landmarks: Array | None = None) -> StartPoints:
        """Quasi-random points, shifted by the generator; some lie on faces, edges and corners."""
        U = quasi_random(CANDIDATES * min(self.d0, 4), self.d0, rng)
        X = _from_unit(U, self.bounds)
        if landmarks is not None:
            U = np.concatenate([U, (landmarks - self._low) / self._width])
            X = np.concatenate([X, landmarks])
        return StartPoints(X, neighbors(U), climbs=True)

    def maximizers(
        self, score: Score, start: StartPoints, exclude: Array | None = None
    ) -> tuple[Array, Array]:
        """The best points found: all candidates are looked at, then the best few climb."""
        values = score.values(start.X)
        spacing = float(len(values)) ** (-1 / self.d0)
        U = self._starts(score, start, values, spacing)
        scale = float(np.ptp(values))
        X, heights = climb(score, _from_unit(U, self.bounds), self.bounds, spacing, scale)
        if exclude is not None and len(exclude):
            free = ~self.same(X, exclude).any(axis=1)
            X, heights = X[free], heights[free]
            if not len(X):  # the best candidates that did not move
                free = ~self.same(start.X, exclude).any(axis=1)
                X, heights = start.X[free], values[free]
        best = tied(heights, values)
        X, heights = X[best], heights[best]
        copies = np.tril(self.same(X, X), -1).any(axis=1)  # several climbs may reach one point
        return X[~copies], heights[~copies]

    def _starts(self, score: Score, start: StartPoints, values: Array, spacing: float) -> Array:
        """(k, d0) points of the unit cube to climb from.

        Peaks of the candidates all over the box, and of a closer look around the first of them: an
        observed maximum leaves a peak of the upper bound on every side of it.
        """
        assert start.neighbors is not None
        far = start.X[peaks(values, start.neighbors, FAR)]
        unit = (far - self._low) / self._width
        close, next_to = clouds(unit[:CLOUDS], 2 * spacing)
        near = peaks(score.values(_from_unit(close, self.bounds)), next_to, NEAR)
        return np.concatenate([unit, close[near]])

    def __repr__(self) -> str:
        return f"box[{', '.join(f'({low:g}, {high:g})' for low, high in self.bounds)}]"


def box(bounds: ArrayLike) -> Box:
    """Continuous inputs between bounds.

    Parameters
    ----------
    bounds : (d0, 2) array
        One (low, high) per input.
    """
    return Box(bounds)  # type: ignore[arg-type]


# -- how the unit cube is searched -----------------------------------------------------------------


def quasi_random(count: int, d0: int, rng: np.random.Generator) -> Array:
    """(count, d0) quasi-random points, moved around the cube by a random shift.

    Multiples of the square roots of the primes modulo 1 (Richtmyer). They fill the cube about as
    evenly as Sobol points, and importing scipy.stats for those takes a second. Two of three are
    drawn towards the boundary, evenly by angle.
    """
    cube = (rng.random(d0) + np.arange(count)[:, None] * np.sqrt(_primes(d0))) % 1.0
    cube = np.clip(0.5 + STRETCH * (cube - 0.5), 0.0, 1.0)
    by_angle = np.arange(count) % 3 > 0
    cube[by_angle] = _position(cube[by_angle])
    corners = 2**d0
    if corners <= count // 16:
        cube[:corners] = (np.arange(corners)[:, None] >> np.arange(d0)) & 1
    return cube


def clouds(U: Array, reach: float) -> tuple[Array, NDArray[np.intp]]:
    """CLOUD points around each of ``U`` (k, d0) in a fixed pattern, and their neighbours in it.

    (k CLOUD, d0) and (k CLOUD, 2 d0 + 2) arrays.
    """
    k, d0 = U.shape
    pattern, next_to = _pattern(d0)
    angles = np.clip(_angle(U)[:, None] + reach * pattern, 0.0, 1.0)
    shift = CLOUD * np.arange(k)[:, None, None]
    return _position(angles).reshape(-1, d0), (shift + next_to).reshape(k * CLOUD, -1)


def neighbors(U: Array) -> NDArray[np.intp]:
    """(n, 2 d0 + 2) nearest other points of every point of ``U`` (n, d0), by angle."""
    return _nearest(_angle(U))


def peaks(values: Array, neighbors: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Up to ``limit`` indices of values that no neighbour exceeds, the most promising first.

    The largest value is among them. How far a value is above its neighbours says how much higher
    the function may be between them, so those that cannot reach the largest are left out.
    """
    around = values[neighbors]
    top = np.flatnonzero(values >= around.max(axis=1))
    promise = values[top] + RISE * (values[top] - around[top].mean(axis=1))
    order = np.argsort(-promise, kind="stable")[:limit]
    chosen = top[order[promise[order] >= values.max()]]
    best = np.flatnonzero(values == values.max())[:1]
    return np.concatenate([best, chosen[chosen != best]])


@lru_cache(maxsize=64)
def _pattern(d0: int) -> tuple[Array, NDArray[np.intp]]:
    steps = np.arange(1.0, CLOUD + 1)[:, None] * np.sqrt(_primes(d0))
    pattern: Array = 2 * (steps % 1.0) - 1
    return pattern, _nearest(pattern)


def _nearest(positions: Array) -> NDArray[np.intp]:
    n, d0 = positions.shape
    count = min(2 * d0 + 2, n - 1)
    squares = (positions**2).sum(axis=1)
    found = np.empty((n, count), dtype=np.intp)
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        apart = squares - 2 * positions[rows] @ positions.T  # but for a constant in every row
        apart[np.arange(len(rows)), rows] = np.inf
        found[rows] = np.argpartition(apart, count - 1, axis=1)[:, :count]
    return found


def _position(angle: Array) -> Array:
    """Positions in [0, 1] of angles in [0, 1], 1 being half a turn."""
    return np.asarray((1 - np.cos(np.pi * angle)) / 2)


def _angle(position: Array) -> Array:
    """Inverse of `_position`."""
    return np.asarray(np.arccos(1 - 2 * position) / np.pi)


def _primes(count: int) -> Array:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return np.array(found, dtype=np.float64)


# Spacing of the gradients whose differences give the curvature.
PROBE = 1e-4
NEWTON_STEPS = 5
SHARES = 2.0 ** -np.arange(1, 6)  # of a step into a part that is ruled out by a score of -inf
# Gains below this share of the range of the values are not worth a step.
GAIN = 4e-4
COMPASS_STEPS = 32


def climb(
    score: Score,
    X: Array,
    bounds: Array,
    radius: float,
    scale: float,
    free: NDArray[np.intp] | None = None,
    finest: float = 0.0,
) -> tuple[Array, Array]:
    """Climb from every point (k, d0) at once, by Newton's method where there is a gradient.

    The first step may go as far as ``radius``, a share of the bounds (d0, 2). ``scale``, the range
    of the values, says what gain is negligible. Columns that are ``free`` change, by default all.
    Without a gradient, steps below the share ``finest`` are not worth an evaluation. What comes
    back is where every climb ended (k, d0), never below its start, and the value there (k,).
    """
    free = np.arange(X.shape[1]) if free is None else free
    width, slopes = bounds[:, 1] - bounds[:, 0], score.gradient

    def values(V: Array) -> Array:
        return score.values(_from_unit(V, bounds))

    def gradient(V: Array) -> tuple[Array, Array]:
        assert slopes is not None
        found, slope = slopes(_from_unit(V, bounds))
        return found, slope * width

    U = (X - bounds[:, 0]) / width
    if slopes is None:
        U, heights = _compass_climb(values, U, radius, free, finest)
    else:
        U, heights = _newton_climb(gradient, U, radius, scale, free)
    return _from_unit(U, bounds), heights


def _from_unit(U: Array, bounds: Array) -> Array:
    # The upper bound exactly at 1, whatever rounding makes of low + width.
    low, high = bounds.T
    return np.asarray(np.where(U == 1, high, low + U * (high - low)))


def _newton_climb(
    gradient: UnitGradient, U: Array, radius: float, scale: float, free: NDArray[np.intp]
) -> tuple[Array, Array]:
    """Newton's method with trust regions; curvature from the gradients at neighbours.

    A few points cost hardly more than one, so every step looks at each climber and its neighbours
    in one call.
    """
    U, radii = U.copy(), np.full(len(U), radius)
    value, slope, curvature = _quadratic_model(gradient, U, free)
    step = _newton_step(U[:, free], slope, curvature, radii)
    for _ in range(NEWTON_STEPS):
        # Twice the gain of a Newton step; who cannot become the best with it stays behind.
        promise = np.einsum("ki,ki->k", slope, step)
        moving = np.flatnonzero(value + promise > value.max() + GAIN * scale)
        if not len(moving):
            break
        trial = U[moving]
        trial[:, free] = np.clip(trial[:, free] + step[moving], 0.0, 1.0)
        trial_value, trial_slope, trial_curvature = _quadratic_model(gradient, trial, free)
        better = trial_value > value[moving]
        radii[moving[~better]] /= 4
        moved = moving[better]
        U[moved], value[moved] = trial[better], trial_value[better]
        slope[moved], curvature[moved] = trial_slope[better], trial_curvature[better]
        barred = np.isneginf(trial_value)
        if barred.any():  # as far as the way is open, and no further
            rows, radii[moving[barred]] = moving[barred], 0.0
            way = U[rows] + SHARES[:, None, None] * (trial[barred] - U[rows])
            heights = gradient(way.reshape(-1, U.shape[1]))[0].reshape(len(SHARES), -1)
            top = heights.argmax(axis=0), np.arange(len(rows))
            gained = heights[top] > value[rows]
            U[rows[gained]], value[rows[gained]] = way[top][gained], heights[top][gained]
        step[moving] = _newton_step(
            U[np.ix_(moving, free)], slope[moving], curvature[moving], radii[moving]
        )
    return U, value


def _quadratic_model(
    gradient: UnitGradient, U: Array, free: NDArray[np.intp]
) -> tuple[Array, Array, Array]:
    """Values (k,), gradients (k, f) and Hessians (k, f, f) in the free columns."""
    k, d0 = U.shape
    inward = np.where(U[:, free] > 0.5, -PROBE, PROBE)  # (k, f)
    around = U[:, None] + inward[:, :, None] * np.eye(d0)[free]
    values, slopes = gradient(np.concatenate([U[:, None], around], axis=1).reshape(-1, d0))
    count = len(free) + 1
    slopes = slopes[:, free].reshape(k, count, len(free))
    hessian = (slopes[:, 1:] - slopes[:, :1]) / inward[:, :, None]
    return values[::count].copy(), slopes[:, 0].copy(), (hessian + hessian.swapaxes(1, 2)) / 2


def _newton_step(U: Array, slope: Array, curvature: Array, radii: Array) -> Array:
    """(k, d0) steps uphill: Newton's where the function is concave, longer than radii nowhere."""
    # Inputs at a bound that want to leave the cube stay where they are.
    blocked = ((U <= 0) & (slope < 0)) | ((U >= 1) & (slope > 0))
    if blocked.any():
        slope = np.where(blocked, 0.0, slope)
        free = ~(blocked[:, :, None] | blocked[:, None, :])
        curvature = np.where(free, curvature, 0.0) - blocked[:, :, None] * np.eye(U.shape[1])
    values, vectors = np.linalg.eigh(curvature)
    # Up along directions of positive curvature, too; flat ones are left to the radius.
    size = np.abs(values)
    size = np.maximum(size, 1e-12 + 1e-6 * size.max(axis=1, keepdims=True))
    along = (slope[:, None] @ vectors)[:, 0] / size
    step = (vectors @ along[:, :, None])[:, :, 0]
    length = np.sqrt((step * step).sum(axis=1))
    shrink = np.minimum(1.0, radii / np.maximum(length, 1e-300))
    return np.asarray(step * shrink[:, None])


def _compass_climb(
    function: UnitFunction, U: Array, radius: float, free: NDArray[np.intp], finest: float
) -> tuple[Array, Array]:
    """Without gradients: the best of two neighbours along every column, or half the distance."""
    k, d0 = U.shape
    value = function(U)
    directions = np.concatenate([np.eye(d0)[free], -np.eye(d0)[free]])
    reach = np.full(k, radius)
    rows = np.arange(k)
    for _ in range(COMPASS_STEPS):
        around = np.repeat(U[:, None], len(directions), axis=1)
        reach = np.where(reach < finest, 0.0, reach)
        moved = around[:, :, free] + reach[:, None, None] * directions[:, free]
        around[:, :, free] = np.clip(moved, 0.0, 1.0)
        values = function(around.reshape(-1, d0)).reshape(k, -1)
        best = values.argmax(axis=1)
        better = values[rows, best] > value
        U = np.where(better[:, None], around[rows, best], U)
        value = np.where(better, values[rows, best], value)
        reach = np.where(better, reach, reach / 2)
        if reach.max() < finest:
            break
    return U, value
