r"""Level and scale of a new task: y = a + s (m(x) + g(x)), with spreads taken from the history.

The level a ~ N(level, s^2 level_variance) is one more direction of the kernel. The scale s is
log-normal and integrated out on a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metakel._arrays import Array

GRID = 15
GRID_WIDTH = 2.5
SMALLEST_SPREAD = 0.3
EXTRA_LEVEL_VARIANCE = 0.1


@dataclass(frozen=True)
class TaskModel:
    """What past tasks say about the level and scale of the next one.

    Parameters
    ----------
    level : float
        Mean of the task means.
    level_variance : float
        Variance of the level in units of the squared scale.
    scale : float
        Median standard deviation of a task.
    spread : float
        Standard deviation of the log of the scale.
    """

    level: float
    level_variance: float
    scale: float
    spread: float

    @cached_property
    def scales(self) -> Array:
        """(15,) grid of scales."""
        return self.scale * np.exp(self.spread * np.linspace(-GRID_WIDTH, GRID_WIDTH, GRID))

    @cached_property
    def log_weights(self) -> Array:
        """(15,) log prior probabilities of the grid."""
        exponent = -(np.linspace(-GRID_WIDTH, GRID_WIDTH, GRID) ** 2) / 2
        return np.asarray(exponent - np.log(np.exp(exponent).sum()))


def task_model(means: Sequence[float] | Array, spreads: Sequence[float] | Array) -> TaskModel:
    """From the means and the positive standard deviations of past tasks."""
    levels, scales = np.asarray(means, float), np.asarray(spreads, float)
    scale = float(np.median(scales))
    return TaskModel(
        level=float(levels.mean()),
        level_variance=float(levels.var()) / scale**2 + EXTRA_LEVEL_VARIANCE,
        scale=scale,
        spread=max(float(np.log(scales).std()), SMALLEST_SPREAD),
    )
