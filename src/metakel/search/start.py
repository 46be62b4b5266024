"""Where the search in a box starts: points that fill it evenly, and who is next to whom.

Positions are in the unit cube. Distances are between angles, arccos(1 - 2 position): polynomials
change faster towards the ends of an interval, and evenly on this scale.
"""

from __future__ import annotations

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
