"""A climb among configurations that keep sums of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.space.sums import Polytope

STEPS, PRECISION = 60, 1e-9


def climb_within(
    possible: Polytope,
    along: Callable[[Array], tuple[Array, Array]],
    X: Array,
    bounds: Array,
    columns: NDArray[np.intp],
    spread: float,
) -> Array:
    """(n, d0) ends of climbs from points ``X`` (n, d0), along these columns.

    By sequential quadratic programming (SLSQP of SciPy), which keeps equations and inequalities.

    Parameters
    ----------
    possible : Polytope
    along : (n, d0) -> (n,), (n, d0)
        What is climbed, with its derivatives.
    X : (n, d0) array
    bounds : (k, 2) array
        Low and high of these columns.
    columns : (k,) array of int
        Along which to move.
    spread : float
        How much the values differ in all, in which steps are measured.
    """
    from scipy.optimize import minimize  # which takes long to load

    ends, sums = X.copy(), _constraints(possible, columns)
    for i, start in enumerate(X):

        def negative(v: Any, start: Array = start) -> Any:
            point = start.copy()
            point[columns] = v
            values, slopes = along(point[None])
            return -float(values[0]) / (spread or 1.0), -slopes[0, columns] / (spread or 1.0)

        found: Any = minimize(
            negative,
            start[columns],
            jac=True,
            bounds=[(low, high) for low, high in bounds.tolist()],
            constraints=sums,
            method="SLSQP",
            options={"maxiter": STEPS, "ftol": PRECISION},
        )
        if np.isfinite(found.x).all():
            ends[i, columns] = np.clip(found.x, *bounds.T)
    return ends


def _constraints(possible: Polytope, columns: NDArray[np.intp]) -> Any:
    """The sums in the words of SciPy."""
    moving = [int(np.flatnonzero(columns == c)[0]) for c in possible.columns]
    size = int(possible.columns.max()) + 1

    def scaled(v: Array) -> Array:
        points = np.zeros((1, size))
        points[0, possible.columns] = v[moving]
        return np.asarray(possible.scaled(points)[0])

    def slopes(v: Array, rows: Array) -> Array:
        found = np.zeros((len(rows), len(columns)))
        found[:, moving] = rows * possible.slopes(v[moving])
        return found

    equal = {
        "type": "eq",
        "fun": lambda v: possible.A @ scaled(v) - possible.b,
        "jac": lambda v: slopes(v, possible.A),
    }
    at_most = {
        "type": "ineq",
        "fun": lambda v: possible.h - possible.G @ scaled(v),
        "jac": lambda v: -slopes(v, possible.G),
    }
    return [*([equal] if len(possible.b) else []), *([at_most] if len(possible.h) else [])]
