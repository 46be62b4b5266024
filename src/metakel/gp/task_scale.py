r"""Level and scale of a new task: y = a + s (m(x) + g(x)), with spreads taken from the history.

The level a ~ N(level, s^2 level_variance) is one more direction of the kernel. The scale s is
integrated out on a grid: log-normal as among past tasks, with a small weight on any smaller scale.
Not on larger ones: one very bad value would make them likely, and the search too wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array

GRID = 15
GRID_WIDTH = 2.5
SMALLEST_SPREAD = 0.3
EXTRA_LEVEL_VARIANCE = 0.1
# A first value this many standard deviations from where past tasks expect it is that of a task at
# another level. Nearer ones are evidence for or against what was learned.
UNEXPECTED = 4.0
# Standard deviation of a level about which nothing is known, in units of the scale. A larger one
# says no more, and costs digits of everything else.
VAGUE = 30.0
# The scale of a task may be smaller by any factor, with this probability; grid of its logarithm
# beyond that of past tasks.
OTHER_SCALE = 0.05
TAIL_STEP, TAIL_REACH = 1.0, log(1e6)
# Levels and scales of past tasks further out than this many standard deviations, robustly
# estimated, are moved there: one task in another unit says nothing about the next one.
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
    def _grid(self) -> tuple[Array, Array]:
        """Logarithms of the scales over the usual one, and their probabilities."""
        steps = np.linspace(-GRID_WIDTH, GRID_WIDTH, GRID)
        usual = np.exp(-(steps**2) / 2)
        inner, step = self.spread * steps, self.spread * (steps[1] - steps[0])
        tail = np.arange(inner[-1] + TAIL_STEP, max(TAIL_REACH, inner[-1]) + TAIL_STEP, TAIL_STEP)
        logs = np.concatenate([-tail[::-1], inner])
        cells = np.where(logs < inner[0], TAIL_STEP, step)
        anything = cells / (pi * (1 + logs**2))
        weights = OTHER_SCALE * anything / anything.sum()
        weights[len(tail) : len(tail) + GRID] += (1 - OTHER_SCALE) * usual / usual.sum()
        return logs, weights

    @cached_property
    def scales(self) -> Array:
        """(g,) grid of scales, increasing."""
        return np.asarray(self.scale * np.exp(self._grid[0]))

    @cached_property
    def squares(self) -> Array:
        """(g,) of the scales."""
        return np.asarray(self.scales**2)

    @cached_property
    def log_scales(self) -> Array:
        """(g,) logarithms of the scales."""
        return np.asarray(np.log(self.scales))

    @cached_property
    def usual(self) -> NDArray[np.bool_]:
        """(g,) which scales of the grid past tasks allow for."""
        return np.asarray(np.abs(self._grid[0]) <= GRID_WIDTH * self.spread * (1 + 1e-9))

    @cached_property
    def log_weights(self) -> Array:
        """(g,) log prior probabilities of the grid."""
        return np.asarray(np.log(self._grid[1]))

    def expects(self, y: float) -> bool:
        """Whether past tasks allow for a first value ``y``."""
        sd = self.scale * sqrt(1 + self.level_variance)
        return bool(abs(y - self.level) <= UNEXPECTED * sd)

    def at_other_level(self, y: float) -> TaskModel:
        """For a task with a value ``y`` that past tasks do not allow for: a level around it."""
        return replace(self, level=y, level_variance=VAGUE**2)


def task_model(means: Sequence[float] | Array, spreads: Sequence[float] | Array) -> TaskModel:
    """From the means and the positive standard deviations of past tasks."""
    levels = _without_outliers(np.asarray(means, float))
    log_scales = _without_outliers(np.log(np.asarray(spreads, float)))
    scale = float(np.median(spreads))
    level_sd = min(float(levels.std()) / scale, VAGUE)
    return TaskModel(
        level=float(levels.mean()),
        level_variance=level_sd**2 + EXTRA_LEVEL_VARIANCE,
        scale=scale,
        spread=max(float(log_scales.std()), SMALLEST_SPREAD),
    )


def _without_outliers(values: Array) -> Array:
    """Values far from the median, in units of the median absolute deviation, moved nearer."""
    centre = float(np.median(values))
    width = OUTLYING * NORMAL_MAD * float(np.median(np.abs(values - centre)))
    return np.clip(values, centre - width, centre + width)
