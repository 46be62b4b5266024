"""The best runs of past tasks, by which a suggestion is explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metakel._arrays import Array


@dataclass(frozen=True, eq=False)
class BestRuns:
    """The best few runs of every past task, which a prior keeps to refer to.

    Parameters
    ----------
    points : (n,) tuple of dict
        Where they were.
    X : (n, d0) array
        The same as numbers.
    tasks : (n,) tuple of str
        Of which task each of them is.
    values : (n,) array
        What was measured, in the sign of the output.
    typical : (n,) array
        The median of all values of that task.
    lengthscales : (d0,) array
        Distance along each input over which values change.
    output : str
        What was measured.
    """

    points: tuple[Any, ...]
    X: Array
    tasks: tuple[str, ...]
    values: Array
    typical: Array
    lengthscales: Array
    output: str = "value"

    def distances(self, x: Array) -> Array:
        """(n,) to the point ``x`` (d0,), in length scales."""
        return np.asarray(np.linalg.norm((self.X - x) / self.lengthscales, axis=1))
