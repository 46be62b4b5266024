"""How the unit cube is searched: points that fill it evenly, then local climbs from several starts.

Positions are in the unit cube. Distances are between angles, arccos(1 - 2 position): polynomials
change faster towards the ends of an interval, and evenly on this scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array

# A part of the points is pushed onto the boundary, where upper bounds are often largest.
STRETCH = 1.1
CLOUD = 16
# How much higher than a peak of the points the function may be, in units of its prominence.
RISE = 2.0
BLOCK = 256


@dataclass(frozen=True, eq=False)
class StartPoints:
    """Points at which every search of a domain begins.

    Parameters
    ----------
    X : (n, d0) array
        As a model sees them.
    neighbours : (n, k) array of int, optional
        Which points are next to each; not needed where all points of a domain are here.
    U : (n, d) array, optional
        As a named space sees them, where that differs.
    """

    X: Array
    neighbours: NDArray[np.intp] | None = None
    U: Array | None = None


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


def neighbours(U: Array) -> NDArray[np.intp]:
    """(n, 2 d0 + 2) nearest other points of every point of ``U`` (n, d0), by angle."""
    return _nearest(_angle(U))


def peaks(values: Array, neighbours: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Up to ``limit`` indices of values that no neighbour exceeds, the most promising first.

    The largest value is among them. How far a value is above its neighbours says how much higher
    the function may be between them, so those that cannot reach the largest are left out.
    """
    around = values[neighbours]
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
# Gains below this share of the range of the values are not worth a step.
GAIN = 4e-4
COMPASS_STEPS = 32


def newton_climb(
    gradient: Callable[[Array], tuple[Array, Array]],
    U: Array,
    radius: float,
    scale: float,
    free: NDArray[np.intp] | None = None,
) -> tuple[Array, Array]:
    """Newton's method with trust regions; curvature from the gradients at d0 neighbours.

    A few points cost hardly more than one, so every step looks at each climber and its neighbours
    in one call.

    Parameters
    ----------
    gradient : (n, d0) -> (n,), (n, d0)
        Values and gradients.
    U : (k, d0) array
        Where to start.
    radius : float
        How far the first step may go.
    scale : float
        The range of the values over the cube, which says what gain is negligible.
    free : array of int, optional
        Columns that may change; by default all.

    Returns
    -------
    (k, d0) and (k,) arrays
        Where every climb ended, never below its start, and the value there.
    """
    U, radii = U.copy(), np.full(len(U), radius)
    free = np.arange(U.shape[1]) if free is None else free
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
        step[moving] = _newton_step(
            U[np.ix_(moving, free)], slope[moving], curvature[moving], radii[moving]
        )
    return U, value


def _quadratic_model(
    gradient: Callable[[Array], tuple[Array, Array]], U: Array, free: NDArray[np.intp]
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


def compass_climb(
    function: Callable[[Array], Array], U: Array, radius: float
) -> tuple[Array, Array]:
    """Search without gradients: the best of 2 d0 neighbours, or half the distance.

    Parameters and results are those of `newton_climb`.
    """
    k, d0 = U.shape
    value = function(U)
    directions = np.concatenate([np.eye(d0), -np.eye(d0)])
    reach = np.full(k, radius)
    rows = np.arange(k)
    for _ in range(COMPASS_STEPS):
        around = np.clip(U[:, None] + reach[:, None, None] * directions, 0.0, 1.0)
        values = function(around.reshape(-1, d0)).reshape(k, 2 * d0)
        best = values.argmax(axis=1)
        better = values[rows, best] > value
        U = np.where(better[:, None], around[rows, best], U)
        value = np.where(better, values[rows, best], value)
        reach = np.where(better, reach, reach / 2)
    return U, value
