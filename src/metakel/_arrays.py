"""Points and values from outside, as checked arrays of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, ShapeError

Array = NDArray[np.float64]


def as_points(X: ArrayLike, where: str) -> Array:
    """Points as a finite ``(n, d0)`` array; a vector is n points of one input each."""
    points = _as_floats(X, f"{where}: X")
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] == 0:
        raise ShapeError(f"{where}: X has shape {points.shape}; expected (n, d0) with d0 >= 1")
    _check_finite(points, f"{where}: X")
    return points


def as_values(y: ArrayLike, n: int, where: str) -> Array:
    """Observed values as a finite ``(n,)`` array; a column ``(n, 1)`` is read as one."""
    values = _as_floats(y, f"{where}: y")
    if values.shape == (n, 1):
        values = values.reshape(n)
    if values.shape != (n,):
        raise ShapeError(
            f"{where}: X has {n} rows but y has shape {values.shape}; "
            "a task pairs X of shape (n, d0) with y of shape (n,)"
        )
    _check_finite(values, f"{where}: y")
    return values


def _as_floats(values: ArrayLike, what: str) -> Array:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be read as an array of numbers: {error}") from None


def _check_finite(values: Array, what: str) -> None:
    if not np.isfinite(values).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(
            f"{what} holds {values[first]} at index {first if len(first) > 1 else first[0]}; "
            "expected finite numbers (drop or impute the row first)"
        )
