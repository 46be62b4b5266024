"""Local searches for a maximum in the unit cube, from several starts at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array

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
