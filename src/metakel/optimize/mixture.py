"""The model of a prior: learned processes beside a default one, weighed by their evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.confidence.fallback import AlarmEvent
from metakel.gp.incremental import IncrementalGP
from metakel.gp.success import SuccessChance
from metakel.gp.task_gp import TaskGP, TaskModel, TaskProcess
from metakel.optimize.mixture_scores import (
    MixtureScores,
    MixtureWeights,
)
from metakel.optimize.model import BestRuns, Model, Score, Search, spread_batch
from metakel.optimize.record import BULK, Outcomes
from metakel.optimize.regret import RegretCalibration, RegretTrace, shape
from metakel.optimize.thinning import LIMIT, first_values, thinned
from metakel.search import StartPoints

# Below this weight the history is given up. If the learned process is right, its weight ever falls
# from 0.95 to 0.01 with probability below 0.06 % (Ville's inequality).
LOST_TRUST = 0.01
RECENT = 4  # steps that are taken in one by one after a restart, for results that come late
# Points whose scores differ by less than this share of their range are equally good choices.
TIED = 1e-6

Store = Callable[[], dict[str, Any]]


class MixtureModel(MixtureScores):
    """Gaussian processes for the new task, averaged by their posterior weights.

    Parameters
    ----------
    processes : sequence of TaskProcess
        Learned ones and a default; neighbours that differ in their noise only share the rest.
    start_weights : sequence of float
        Their weights before any value.
    scale : TaskModel
        Level and scale of a task; a first value far from the levels of past tasks overrules them.
    store : callable
        Gives the JSON form of what the model was made from.
    regret : RegretCalibration or str
        What replays on past tasks say of the regret, or why there are none.
    delta : float
        Probability with which what is promised may fail.
    limits : (low, high)
        Between which all values lie, in the sign to be maximised.
    best_runs : BestRuns, optional
        Runs of past tasks to refer to.
    success : SuccessChance, optional
        The chance that a run gives a value. A choice is worth the logarithm of it less, in units of
        the scale of a task.
    """

    kind: ClassVar[str] = "mixture"

    def __init__(
        self,
        processes: Sequence[TaskProcess],
        start_weights: Sequence[float],
        scale: TaskModel,
        *,
        d0: int,
        store: Store,
        regret: RegretCalibration | str = "the optimizer was not replayed on past tasks",
        delta: float = 1.0,
        limits: tuple[float, float] = (-inf, inf),
        best_runs: BestRuns | None = None,
        success: SuccessChance | None = None,
    ) -> None:
        self._processes, self._start = tuple(processes), tuple(start_weights)
        self._task, self._d0, self._store = scale, d0, store
        self.regret, self.limits, self.best_runs = regret, limits, best_runs
        self._success, self._observed = success, np.empty((0, d0))
        self._failing: Array | None = None  # chances at the start points
        self._delta = delta
        self.trace = RegretTrace()
        self._best, self._closed, self._scores = -inf, np.zeros(0, dtype=np.intp), np.zeros(0)
        self._learned = np.array([isinstance(p, TaskGP) for p in processes])
        self._guarded = bool(self._learned.any() and not self._learned.all())
        self._Z: Array | None = None
        self._rows: dict[bytes, int] = {}  # which start points there are
        self._gp = IncrementalGP(self._processes, scale, np.zeros((0, d0)))
        self._mean = False
        self._without_fantasies: Self | None = None  # the same model, if this one has some
        # Worked out when they are asked for, from the processes as they are.
        self._mix: MixtureWeights | None = None
        self._kept: dict[str, Any] = {}  # scores and predictions at the start points
        self._alarm: AlarmEvent | None = None
        self._other_level = False
        self._decides: Self | None = None  # given other values than this one, if they are many
        self._t = 0

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
        return self._d0

    @property
    def scale(self) -> float:
        """The usual scale of a task."""
        return self._task.scale

    def prepare(self, start: StartPoints) -> Self:
        """Ready to be searched from these points: their predictions are kept up to date."""
        model = copy(self)
        model._Z, model._rows, model._kept = start.X, _row_numbers(start.X), {}
        model._gp = IncrementalGP(self._processes, self._task, start.X)
        model._mean = bool(model._gp.prediction.slope[0].any())
        model._failing = None if self._success is None else self._success.failing(start.X)
        return model

    # Values and fantasies

    def observe(self, X: Array, y: Array, noise_std: Array) -> Self:
        """After the observations of one call; their noise is part of what was learned."""
        model = copy(self)
        model._observed = np.concatenate([self._observed, X])
        if len(X) > BULK:
            model._take_all(X, y)
        else:
            for x, value in zip(X, y, strict=True):
                model._take(x, float(value))
        model._mix, model._kept = None, {}
        model._ring()
        if isinstance(self.regret, RegretCalibration) and not self.trace.left:
            model._follow(self, X)
        return model

    def _follow(self, before: Self, X: Array) -> None:
        """Extend the trace, if the rule that was replayed would have chosen this point, too."""
        t = self._t
        if t > self._longest or self._Z is None:
            return
        if len(X) > 1 or not before._chooses(X[0]):
            self.trace = RegretTrace(self.trace.best, self.trace.shapes, t)
            return
        candidate = self._candidate(X[0])
        if candidate is not None:
            self._closed = np.append(self._closed, candidate)
        self._scores = self._rule().values(self._Z).copy()
        self._scores[self._closed] = -inf
        top = np.delete(self.upper_bound().values(self._Z), self._closed).max(initial=-inf)
        self.trace = self.trace.after(self._best, shape(float(top), self._best, self.scale, t))

    def _rule(self) -> Score:
        """What was maximised in the replays."""
        return self.upper_bound()

    def _chooses(self, x: Array) -> bool:
        """Whether ``x`` scores as high as any start point that is left."""
        first = self.first_score()
        scores = self._scores if first is None else first.values(self._Z)  # type: ignore[arg-type]
        candidate = self._candidate(x)
        if candidate is not None:
            here = float(scores[candidate])
        else:
            here = float((first or self._rule()).values(x[None])[0])
        finite = scores[np.isfinite(scores)]
        return not len(finite) or here >= finite.max() - TIED * (np.ptp(finite) + TIED)

    @property
    def _longest(self) -> int:
        return self.regret.longest if isinstance(self.regret, RegretCalibration) else 0

    def _take(self, x: Array, y: float) -> None:
        candidate = self._candidate(x)
        self._settle_level(x, y)
        self._gp = self._gp.observe(x, y, candidate)
        self._t += 1
        self._best = max(self._best, y)

    def _settle_level(self, x: Array, y: float) -> None:
        """A first value that past tasks do not allow for is that of a task at another level."""
        if self._t:
            return
        means = self._gp.elsewhere().at(x[None]).slope[:, 0]
        if not self._task.expects(y, means):
            self._task, self._other_level = self._task.at_other_level(y), True
            self._gp = self._gp.with_scale(self._task)

    def _take_all(self, X: Array, y: Array) -> None:
        self._settle_level(X[0], float(y[0]))
        try:
            self._gp = self._gp.observe_all(X, y)
        except np.linalg.LinAlgError:  # many values at one point, and hardly any noise
            for x, value in zip(X, y, strict=True):
                self._take(x, float(value))
            return
        self._t += len(y)
        self._best = max(self._best, float(y.max()))

    def catch_up(self, outcomes: Outcomes, steps: int) -> tuple[int, Self]:
        """After a restart: all but the last steps by one factorisation, if nothing is promised.

        Certificates follow a run step by step.
        """
        until = len(outcomes.ends) - RECENT
        if not isinstance(self.regret, str) or until - steps <= BULK:
            return steps, self
        rows = slice(outcomes.ends[steps - 1] if steps else 0, outcomes.ends[until - 1])
        model = copy(self)
        model._take_all(outcomes.X[rows], outcomes.y[rows])
        model._observed = np.concatenate([self._observed, outcomes.X[rows]])
        model._mix, model._kept = None, {}
        model._ring_at(np.array(outcomes.ends[steps:until]))
        return until, model

    def condition(self, outcomes: Outcomes) -> Self:
        """Given all outcomes of a record; those of a long one as `optimize.thinning` says."""
        if outcomes.t <= LIMIT:
            return super().condition(outcomes)
        model = super().condition(first_values(outcomes))
        decides = self._decides
        if decides is None:
            decides = copy(self if self._first is None else self._first)
            decides.regret = "it decides only"
        model._decides = decides = Model.condition(decides, thinned(outcomes))
        model._gp, model._mix = decides._gp, decides.mix
        model._kept = {}
        return model

    def _candidate(self, x: Array) -> int | None:
        """Which of the start points ``x`` is, to the last bit."""
        return self._rows.get((x + 0.0).tobytes())

    def _ring(self) -> None:
        """An alarm is about the values so far, and stays."""
        if self._alarm is not None:
            return
        usual, trust = float(self.mix.scale_shares @ self._task.usual), self.transfer_weight
        if self._unlike(trust, usual):
            self._alarm = self._alarm_at(self._t, trust)

    def _ring_at(self, times: NDArray[np.intp]) -> None:
        """The alarm that values taken in at once would have raised after each of these times."""
        if self._alarm is not None:
            return
        joint = self._gp.log_likelihoods_at(times)  # (processes, k, g)
        joint += self._task.log_weights + np.log(self._start)[:, None, None]
        weights = np.exp(joint - joint.max(axis=(0, 2), keepdims=True))
        weights /= weights.sum(axis=(0, 2), keepdims=True)
        trust = weights[self._learned].sum(axis=(0, 2))
        usual = weights[:, :, self._task.usual].sum(axis=(0, 2))
        for t, weight, share in zip(times.tolist(), trust.tolist(), usual.tolist(), strict=True):
            if self._unlike(weight, share):
                self._alarm = self._alarm_at(t, weight)
                return

    def _unlike(self, weight: float, usual: float) -> bool:
        """Whether the task is unlike the past ones, by the weights of history and usual scales."""
        lost = self._guarded and weight < LOST_TRUST
        return lost or (bool(self._learned.any()) and (self._other_level or usual < LOST_TRUST))

    def _alarm_at(self, time: int, weight: float) -> AlarmEvent:
        if self._guarded and weight < LOST_TRUST:
            reason = f"the values favour the default model: trust in the history is {weight:.1g}"
        elif self._other_level:
            reason = "the first value is far from those of all past tasks"
        else:
            reason = "the values vary by far less than those of past tasks"
        return AlarmEvent(time, reason)

    def with_fantasies(self, X: Array) -> Self:
        """Scores take the points as every process predicts them, minus one standard deviation.

        So the search keeps away from them. Nothing was observed, so the weights of processes and
        scales and the means of `predict` stay; standard deviations shrink.
        """
        model = copy(self)
        model._mix = self.mix
        if len(X):
            model._without_fantasies, model._kept = self._without_fantasies or self, {}
            model._gp = self._gp.with_fantasies(X)
        return model

    def choose(self, score: Score, search: Search) -> Array:
        """The best point (d0,) by the score, apart from those that are being run."""
        return spread_batch(score, search)

    # Weights

    @property
    def transfer_weight(self) -> float:
        """Posterior weight of what was learned, however noisy the task, against the default."""
        return float(self.mix.members[self._learned].sum())

    @property
    def log_evidence(self) -> float:
        """Log density of the observed values, up to a constant."""
        return self.mix.log_evidence

    @property
    def alarm(self) -> AlarmEvent | None:
        """The first time at which the values contradicted the history.

        The weight of the history is lost, or level or scale are none of a past task.
        Nothing is promised any more; decisions go on by the posterior weights.
        """
        return self._alarm

    # Bounds

    @property
    def no_bounds(self) -> str:
        """Why there are no confidence bounds."""
        return "a prior decides without one; `prior.confidence()` makes one"

    @property
    def delta(self) -> float:
        """Probability with which a certificate may fail."""
        return self._delta

    def describe(self) -> str:
        """How far the history is trusted."""
        if not self._learned.any():
            return "no history"
        return f"trust {self.transfer_weight:.2f} in the history"

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of what the model was made from."""
        return {"kind": self.kind, **self._store()}


Loader = Callable[[Mapping[str, Any]], MixtureModel]
_LOADERS: dict[str, Loader] = {}


def register_loader(kind: str, loader: Loader) -> None:
    """How to read a stored model that was made from a prior; called by `metakel.priors`."""
    _LOADERS[kind] = loader


def load_mixture(data: Mapping[str, Any]) -> MixtureModel:
    """Inverse of `MixtureModel.to_dict`."""
    return _LOADERS[MixtureModel.kind](data)


def _row_numbers(Z: Array) -> dict[bytes, int]:
    """Of equal rows the first; 0.0 and -0.0 are one number."""
    raw, width = (Z + 0.0).tobytes(), Z.itemsize * Z.shape[1]
    rows = range(len(Z))
    return {raw[i * width : (i + 1) * width]: i for i in reversed(rows)}
