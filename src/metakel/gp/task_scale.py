r"""Level and scale of a new task: y = a + s (m(x) + g(x)), with spreads taken from the history.

The level a ~ N(level, s^2 level_variance) is one more direction of the kernel. The logarithm of the
scale s has a Student t distribution, integrated out on a grid: past tasks say what is usual, and
its heavy tails let the values of a new task overrule them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log

import numpy as np

from metakel._arrays import Array

# Steps of the grid in units of the spread, and how far it reaches at least: a factor of 1000.
GRID_STEP = 2.5 / 7
GRID_REACH = log(1e3)
DEGREES_OF_FREEDOM = 4
SMALLEST_SPREAD = 0.3
EXTRA_LEVEL_VARIANCE = 0.1
# A larger variance says no more, and costs digits of everything else.
LARGEST_LEVEL_VARIANCE = 1e6
# Levels and scales further out than this many standard deviations, robustly estimated, are moved
# there: one task in another unit says nothing about the next one.
OUTLYING = 3.0
NORMAL_MAD = 1.4826  # standard deviation over median absolute deviation of a normal distribution


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
    def _steps(self) -> Array:
        """Points of the grid in units of the spread; symmetric about 0."""
        half = ceil(GRID_REACH / (self.spread * GRID_STEP))
        return np.asarray(GRID_STEP * np.arange(-half, half + 1), dtype=np.float64)

    @cached_property
    def scales(self) -> Array:
        """(g,) grid of scales."""
        return np.asarray(self.scale * np.exp(self.spread * self._steps))

    @cached_property
    def log_weights(self) -> Array:
        """(g,) log prior probabilities of the grid."""
        nu = DEGREES_OF_FREEDOM
        exponent = -(nu + 1) / 2 * np.log1p(self._steps**2 / nu)
        return np.asarray(exponent - np.log(np.exp(exponent).sum()))


def task_model(means: Sequence[float] | Array, spreads: Sequence[float] | Array) -> TaskModel:
    """From the means and the positive standard deviations of past tasks."""
    levels = _without_outliers(np.asarray(means, float))
    scale = float(np.median(spreads))
    variance = float(levels.var()) / scale**2 + EXTRA_LEVEL_VARIANCE
    log_scales = _without_outliers(np.log(np.asarray(spreads, float)))
    return TaskModel(
        level=float(levels.mean()),
        level_variance=min(variance, LARGEST_LEVEL_VARIANCE),
        scale=scale,
        spread=max(float(log_scales.std()), SMALLEST_SPREAD),
    )


def _without_outliers(values: Array) -> Array:
    """Values far from the median, in units of the median absolute deviation, moved nearer."""
    centre = float(np.median(values))
    width = OUTLYING * NORMAL_MAD * float(np.median(np.abs(values - centre)))
    return np.clip(values, centre - width, centre + width)
