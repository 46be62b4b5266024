"""The model of a task about which no history says anything: fitted to its own values.

Two Gaussian processes count the same: one with a Matern kernel set by hand, and one with a
lengthscale per input, signal and noise of the largest posterior density given the values (type II
likelihood, `fit_matern52`). The second learns which inputs matter, and is wrong about it at times;
the first keeps it from getting stuck. Values are standardised by their own mean and standard
deviation. The next point has the largest expected improvement; the first is the centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from metakel._arrays import Array
from metakel.gp.incremental import IncrementalGP
from metakel.gp.posterior import LEVEL_VARIANCE, fit_matern52
from metakel.gp.task_gp import DefaultGP, TaskModel, TaskProcess
from metakel.optimize.mixture import RECENT, MixtureModel
from metakel.optimize.mixture_scores import MixtureWeights
from metakel.optimize.model import Score
from metakel.optimize.record import Outcomes
from metakel.optimize.regret import RegretCalibration

# The kernel is fitted again after each of the first values, later when so many more are there.
EVERY, LATER = 30, 0.1


class RefittedModel(MixtureModel):
    """A cold start: a default process beside one that is fitted again as values come in.

    Takes the arguments of `MixtureModel`, with one process, the default, which also stands in for
    the other until there are values. The model depends on the values and their order alone, not on
    how many came at a time.
    """

    acquisition: ClassVar[str] = "ei"
    variance_weights: ClassVar[tuple[float, float]] = (1.0, 0.0)  # the function itself improves

    def __init__(
        self,
        processes: Sequence[TaskProcess],
        start_weights: Sequence[float],
        scale: TaskModel,
        **options: Any,
    ) -> None:
        (default,), (weight,) = processes, start_weights
        super().__init__((default, default), (weight / 2, weight / 2), scale, **options)
        self._past = scale
        self._values = np.empty(0)
        self._fitted = 0  # to how many of the values

    @property
    def scale(self) -> float:
        """The usual scale of a past task."""
        return self._past.scale

    @property
    def mix(self) -> MixtureWeights:
        """Equal weights: by its likelihood, what was fitted to the values would always win."""
        if self._mix is None:
            found = super().mix
            self._mix = replace(found, weights=np.tile(found.scale_shares / 2, (2, 1)))
        return self._mix

    def observe(self, X: Array, y: Array, noise_std: Array) -> Self:
        """After the observations of one call; their noise is estimated."""
        model = self._after(X, y)
        if isinstance(self.regret, RegretCalibration) and not self.trace.left:
            model._follow(self, X)
        return model

    def _after(self, X: Array, y: Array) -> Self:
        model = copy(self)
        model._observed = np.concatenate([self._observed, X])
        model._values = np.append(self._values, y)
        model._t, model._best = len(model._values), max(self._best, float(y.max()))
        model._refit()
        model._mix, model._kept = None, {}
        return model

    def _refit(self) -> None:
        X, y = self._observed, self._values
        count = last_fit(self._t)
        if count != self._fitted:
            task = own_scale(y[:count], self._past)
            shared = fit_matern52([X[:count]], [(y[:count] - task.level) / task.scale])
            self._processes, self._fitted = (self._processes[0], DefaultGP(shared)), count
        self._task = own_scale(y, self._past)
        Z = np.zeros((0, self.d0)) if self._Z is None else self._Z
        self._gp = IncrementalGP(self._processes, self._task, Z).observe_all(X, y)

    def catch_up(self, outcomes: Outcomes, steps: int) -> tuple[int, Self]:
        """After a restart: all but the last steps at once, if no certificate follows them."""
        until = len(outcomes.ends) - RECENT
        follows = isinstance(self.regret, RegretCalibration) and not self.trace.left
        if until <= steps or (follows and self._t < self._longest):
            return steps, self
        rows = slice(outcomes.ends[steps - 1] if steps else 0, outcomes.ends[until - 1])
        return until, self._after(outcomes.X[rows], outcomes.y[rows])

    def _rule(self) -> Score:
        return self.expected_improvement(self._best)


def last_fit(t: int) -> int:
    """To how many of ``t`` values the kernel was fitted last."""
    count = min(t, EVERY)
    while (following := count + max(int(LATER * count), 1)) <= t:
        count = following
    return count


class _KnownScale(TaskModel):
    """A level and a scale that were estimated from the values themselves."""

    @cached_property
    def _grid(self) -> tuple[Array, Array]:
        return np.zeros(1), np.ones(1)


def own_scale(y: Array, past: TaskModel) -> TaskModel:
    """Mean and standard deviation of values; the scale of past tasks where they do not vary."""
    spread = float(y.std())
    scale = spread if spread > 1e-12 * float(np.abs(y).max(initial=0.0)) else past.scale
    return _KnownScale(float(y.mean()), LEVEL_VARIANCE, scale, past.spread)
