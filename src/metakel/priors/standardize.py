"""Past tasks made comparable: level and scale taken out, very bad values raised to a fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.data import History

# Tukey's fence: values this many quartile ranges below the lower quartile are outliers. How bad a
# failure was says nothing about where the best values are, but would dominate the scale.
FENCE = 1.5
# A spread this far below the size of the values is rounding, not signal.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class StandardizedTasks:
    """Tasks that vary, with mean 0 and variance 1 each.

    Parameters
    ----------
    X : m arrays (n_s, d0)
    z : m arrays (n_s,)
    means, spreads : (m,) arrays
        Level and scale that were taken out.
    names : m str
    constant : names of the tasks left out because all their values are equal
    winsorized : int
        How many values were raised to the fence.
    """

    X: Sequence[Array]
    z: Sequence[Array]
    means: Array
    spreads: Array
    names: tuple[str, ...]
    constant: tuple[str, ...]
    winsorized: int

    @property
    def m(self) -> int:
        """How many tasks there are."""
        return len(self.z)


def standardize(history: History) -> StandardizedTasks:
    """Take level and scale out of every past task."""
    X, z, means, spreads, names = [], [], [], [], []
    constant, winsorized = [], 0
    for task in history:
        y = winsorize(task.y)
        spread = float(y.std())
        if spread <= ROUNDING * float(np.abs(y).max()):
            constant.append(task.name)
            continue
        winsorized += int((y > task.y).sum())
        X.append(task.X)
        z.append((y - y.mean()) / spread)
        means.append(float(y.mean()))
        spreads.append(spread)
        names.append(task.name)
    return StandardizedTasks(
        X, z, np.array(means), np.array(spreads), tuple(names), tuple(constant), winsorized
    )


def winsorize(y: Array) -> Array:
    """Raise values below Tukey's lower fence to it; not where half of the values are equal."""
    low, high = np.quantile(y, [0.25, 0.75])
    return np.maximum(y, low - FENCE * (high - low)) if high > low else y
