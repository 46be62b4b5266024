"""What is believed of a task before its first value: learned processes and a cold start.

Where the history says nothing, processes are fitted to the task's own values instead (`refitted`):
one with a kernel set by hand and one with a lengthscale per input, signal and noise of the largest
posterior density. They count the same: by its likelihood, what was fitted to the values would
always win, and the other one keeps it from getting stuck. Values are standardised by their own mean
and standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.averages import MixtureWeights, mixture_weights
from metakel.gp.factor import Factor, Frame, common_rows
from metakel.gp.posterior import LEVEL_VARIANCE, fit_matern52
from metakel.gp.processes import ColdProcess, KnownScale, LevelAndScale, TaskProcess
from metakel.gp.success import SuccessChance
from metakel.optimize.model import BestRuns
from metakel.optimize.replays import RegretCalibration, RegretScores

# A cold start is fitted again after each of the first values, later when so many more are there.
EVERY, LATER = 30, 0.1


@dataclass(frozen=True, eq=False)
class TaskPrior:
    """Surrogate model of a task before its first value.

    Parameters
    ----------
    processes : tuple of TaskProcess
        Learned ones and a cold start; neighbours that differ in their noise only share the rest.
    weights : tuple of float
        Their weights before any value.
    task : LevelAndScale
        Of a task; a first value far from the levels of past tasks overrules them.
    d0 : int
        Number of inputs.
    refits : bool
        Whether there is one cold start alone, beside which another is fitted to the values.
    store : callable
        Gives the JSON form of what the model was made from.
    regret : RegretCalibration or str
        What replays on past tasks say of the regret, or why there are none.
    delta : float
        Probability with which what is promised may fail.
    output_range : (low, high)
        Between which all values lie, in the sign to be maximised.
    best_runs : BestRuns, optional
        Runs of past tasks to refer to.
    success : SuccessChance, optional
        The chance that a run gives a value. A choice is worth the logarithm of it less, in units of
        the scale of a task.
    portfolio : (k, d0) array, optional
        Points to try first, where the past says so more surely than the model.
    emulated : callable, optional
        Scores of replays on tasks drawn from the prior, at the points (n, d0) of a new table.
    """

    processes: tuple[TaskProcess, ...]
    weights: tuple[float, ...]
    task: LevelAndScale
    d0: int
    refits: bool = False
    store: Callable[[], dict[str, Any]] = dict
    regret: RegretCalibration | str = "the optimizer was not replayed on past tasks"
    delta: float = 1.0
    output_range: tuple[float, float] = (-inf, inf)
    best_runs: BestRuns | None = None
    success: SuccessChance | None = None
    portfolio: Array | None = None
    emulated: Callable[[Array], RegretScores] | None = None

    @cached_property
    def learned(self) -> NDArray[np.bool_]:
        """(P,) which processes past tasks taught."""
        return np.array([process.learned for process in self.processes])

    @property
    def guarded(self) -> bool:
        """Whether the values may favour a cold start."""
        return bool(self.learned.any() and not self.learned.all())

    @cached_property
    def cold(self) -> TaskPrior:
        """The same task without what was learned of its values."""
        process = self.processes[int(np.argmin(self.learned))]
        why = "a cold start was not replayed on past tasks"
        return replace(
            self, processes=(process,), weights=(1.0,), refits=True, regret=why, portfolio=None
        )

    @property
    def longest(self) -> int:
        """For how many values the optimizer was replayed on past tasks."""
        return 0 if isinstance(self.regret, str) else self.regret.longest

    def factor(self, Z: Array) -> Factor:
        """Before any value, over candidates ``Z`` (N, d0)."""
        processes = self.processes * 2 if self.refits else self.processes
        return Factor.of(processes, self.task, Z)

    def average(self, factor: Factor) -> MixtureWeights:
        """Posterior weights of processes and scales."""
        if not self.refits:
            return mixture_weights(factor.log_likelihoods, self.weights, factor.task)
        halves = (self.weights[0] / 2,) * 2
        found = mixture_weights(factor.log_likelihoods, halves, factor.task)
        return replace(found, weights=np.tile(found.scale_shares / 2, (2, 1)))

    def at_level_of(self, frame: Frame, x: Array, y: float) -> Frame:
        """A first value that past tasks do not allow for is that of a task at another level."""
        means = [float(kernel.prepare(x[None]).mean[0]) for kernel in frame.kernels]
        task = self.task if self.task.expects(y, means) else self.task.at_other_level(y)
        return frame if task is frame.task else replace(frame, task=task)


def refitted(prior: TaskPrior, before: Factor, X: Array, y: Array) -> Factor:
    """The processes of a cold start, one of them fitted to the values (t, d0) and (t,)."""
    count, processes = last_fit(len(y)), before.frame.processes
    if count != last_fit(before.t) or common_rows(before.X, before.y, X, y) < count:
        task = own_scale(y[:count], prior.task)
        shared = fit_matern52([X[:count]], [(y[:count] - task.level) / task.scale])
        processes = (processes[0], ColdProcess(shared))
    frame = Frame(processes, own_scale(y, prior.task), before.frame.Z)
    return Factor.within(frame).at_once(X, y)


def last_fit(t: int) -> int:
    """To how many of ``t`` values the kernel was fitted last."""
    count = min(t, EVERY)
    while (following := count + max(int(LATER * count), 1)) <= t:
        count = following
    return count


def own_scale(y: Array, past: LevelAndScale) -> LevelAndScale:
    """Mean and standard deviation of values; the scale of past tasks where they do not vary."""
    spread = float(y.std())
    scale = spread if spread > 1e-12 * float(np.abs(y).max(initial=0.0)) else past.scale
    return KnownScale(float(y.mean()), LEVEL_VARIANCE, scale, past.spread)
