"""Rows of tasks as a learning problem, and a prior from what the group lasso selects in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.gp import Posterior, posterior
from metakel.grouplasso import Problem, Solution
from metakel.integrations.sklearn.labels import rows_by_label
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn import as_problem
from metakel.learn.select import noise_and_strengths, task_variances

# Below this share of their spread, values do not vary, and noise is rounding.
FLAT, LEAST_NOISE = 1e-12, 1e-6


@dataclass(frozen=True, eq=False)
class Belief:
    """The prior of a task: y = level + f(x) + noise, f ~ GP(0, kernel)."""

    kernel: KernelSum
    level: float
    noise_std: float

    def posterior(self, X: Array, y: Array) -> Posterior:
        """Of f, given values of one task (Eq. 3)."""
        return posterior(self.kernel, X, y - self.level, noise_var=self.noise_std**2)

    def left(self, X: Array, y: Array, Z: Array, values: Array) -> Array:
        """What predictions from (X, y) leave of the ``values`` at ``Z`` of the same task."""
        return values - self.level - self.posterior(X, y).mean(Z)


@dataclass(frozen=True, eq=False)
class MultiTaskProblem:
    """Values of every task minus their mean, as Eq. 8 over base kernels of which 0 is constant.

    Parameters
    ----------
    base : KernelDictionary
    history : History
    problem : Problem
    level : float
        Mean of the task means.
    spread : float
        Root mean square of the values around the means of their tasks.
    level_variance : float
        Mean square of the values around the level: generous, so that levels are hardly shrunk.
    """

    base: KernelDictionary
    history: History
    problem: Problem
    level: float
    spread: float
    level_variance: float

    @classmethod
    def of(
        cls, X: Array, y: Array, labels: Sequence[Any], base: KernelDictionary
    ) -> MultiTaskProblem:
        """From rows with labels of their tasks."""
        rows = rows_by_label(labels).values()
        means = [float(y[i].mean()) for i in rows]
        pairs = zip(rows, means, strict=True)
        centred = History.from_pairs((X[i], y[i] - mean) for i, mean in pairs)
        level = float(np.mean(means))
        spread = sqrt(sum(float(task.y @ task.y) for task in centred) / len(y))
        if spread <= FLAT * max(abs(mean) for mean in means):
            spread = 0.0
        problem = as_problem(centred, base)
        assert isinstance(problem, Problem)
        return cls(base, centred, problem, level, spread, float(np.mean((y - level) ** 2)))

    @cached_property
    def sizes(self) -> Array:
        """(p,) mean k_j(x, x) over all rows."""
        points = np.concatenate([task.X for task in self.history])
        return np.asarray(self.base.diags(points).mean(axis=1))

    def belief(self, solution: Solution, noise_std: float | None) -> Belief:
        """Selected base kernels with the variance that they have in the tasks, and the noise."""
        kept = np.union1d(solution.active, [0])
        noise, strengths = noise_and_strengths(self.problem, solution, kept, noise_std)
        noise = max(noise, LEAST_NOISE * (self.spread or abs(self.level) or 1.0))
        strengths = np.append(0.0, strengths[1:])  # the level has a variance of its own
        signal = max(self.spread**2 - noise**2, 0.0)
        variances = task_variances(self.base, strengths, self.sizes, signal)
        variances[0] = self.level_variance
        return Belief(KernelSum(self.base, variances), self.level, noise)
