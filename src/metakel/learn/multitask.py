"""Tasks that differ in their level: their group lasso, and the GP prior that its solution gives."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.gp import Posterior, posterior
from metakel.grouplasso import Problem, Solution
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn.problem import as_problem
from metakel.learn.select import noise_and_strengths, task_variances

# A spread below this fraction of the task means counts as 0.
FLAT = 1e-12
# Noise below this fraction of the spread is rounding.
LEAST_NOISE = 1e-6


def rows_by_label(labels: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Row numbers of every task, tasks in order of appearance."""
    rows: dict[Hashable, list[int]] = {}
    for i, label in enumerate(labels):
        rows.setdefault(label, []).append(i)
    return rows


@dataclass(frozen=True, eq=False)
class TaskPrior:
    """The prior of a task: y = f(x) + noise, f ~ GP(level, kernel)."""

    kernel: KernelSum
    level: float
    noise_std: float

    def posterior(self, X: Array, y: Array) -> Posterior:
        """Posterior of f given values of one task (Eq. 3)."""
        return posterior(self.kernel, X, y, noise_var=self.noise_std**2, prior_mean=self.level)

    def left(self, X: Array, y: Array, Z: Array, values: Array) -> Array:
        """Residuals of ``values`` at ``Z`` when predicted from (X, y), rows of the same task."""
        return values - self.posterior(X, y).mean(Z)


@dataclass(frozen=True, eq=False)
class MultiTaskProblem:
    """The group lasso (Eq. 8) for values around the mean of their task.

    Base kernel 0 is the constant, which models the level of a task.

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
        Mean square of the values around the level. It is generous, to shrink levels little.
    """

    base: KernelDictionary
    history: History
    problem: Problem
    level: float
    spread: float
    level_variance: float

    @classmethod
    def of(
        cls, X: Array, y: Array, labels: Sequence[Hashable], base: KernelDictionary
    ) -> MultiTaskProblem:
        """Make the problem from rows, with a task label each."""
        rows = rows_by_label(labels).values()
        means = [float(y[i].mean()) for i in rows]
        pairs = zip(rows, means, strict=True)
        centred = History.from_pairs((X[i], y[i] - mean) for i, mean in pairs)
        level = float(np.mean(means))
        spread = sqrt(sum(float(task.y @ task.y) for task in centred) / len(y))
        if spread <= FLAT * max(abs(mean) for mean in means):
            spread = 0.0
        level_variance = float(np.mean((y - level) ** 2))
        return cls(base, centred, as_problem(centred, base), level, spread, level_variance)

    @cached_property
    def sizes(self) -> Array:
        """(p,) mean k_j(x, x) over all rows."""
        points = np.concatenate([task.X for task in self.history])
        return np.asarray(self.base.diags(points).mean(axis=1))

    def task_prior(self, solution: Solution, noise_std: float | None) -> TaskPrior:
        """Selected base kernels with the variance that they have in the tasks, and the noise."""
        kept = np.union1d(solution.active, [0])
        noise, strengths = noise_and_strengths(self.problem, solution, kept, noise_std)
        noise = max(noise, LEAST_NOISE * (self.spread or abs(self.level) or 1.0))
        strengths = np.append(0.0, strengths[1:])  # the level has a variance of its own
        signal = max(self.spread**2 - noise**2, 0.0)
        variances = task_variances(self.base, strengths, self.sizes, signal)
        variances[0] = self.level_variance
        return TaskPrior(KernelSum(self.base, variances), self.level, noise)
