"""Leave tasks out: predict and tune them with what the others teach, and with nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.priors import Prior, TableOptimizer, learn_prior

FOLDS = 3
TASKS = 24  # at most so many are played through
ROWS = 300  # of a task
SEEN = 5  # values told before the rest is predicted
EVALUATIONS = 20
LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95])


@dataclass(frozen=True, eq=False)
class Played:
    """One held-out task under one belief.

    Parameters
    ----------
    surprises : (r,) array
        (value - mean) / sd of rows that were not told.
    sharpness : float
        Mean predicted standard deviation in units of the task's.
    regret : (T,) array
        Best possible minus best found, in units of the task's standard deviation.
    """

    surprises: Array
    sharpness: float
    regret: Array


@dataclass(frozen=True, eq=False)
class Check:
    """What held-out tasks show; ``learned``, ``cold`` and ``random`` (h, T) by task."""

    names: tuple[str, ...]
    learned: tuple[Played, ...]
    cold: tuple[Played, ...]
    random: Array

    @property
    def covered(self) -> tuple[Array, Array]:
        """Share of held-out values inside central intervals of `LEVELS`: learned, cold."""
        return _covered(self.learned), _covered(self.cold)

    @property
    def sharpness(self) -> tuple[float, float]:
        """Mean width of the predictions, learned and cold, in units of a task's spread."""
        learned = float(np.mean([p.sharpness for p in self.learned]))
        return learned, float(np.mean([p.sharpness for p in self.cold]))

    @property
    def curves(self) -> dict[str, Array]:
        """(T,) mean regret by way of searching."""
        return {
            "learned": np.mean([p.regret for p in self.learned], axis=0),
            "cold": np.mean([p.regret for p in self.cold], axis=0),
            "random": self.random.mean(axis=0),
        }

    @property
    def harmed(self) -> tuple[str, ...]:
        """Tasks on which the history made things clearly worse than a cold start."""
        worse = [
            float(a.regret.mean() - b.regret.mean())
            for a, b in zip(self.learned, self.cold, strict=True)
        ]
        return tuple(name for name, w in zip(self.names, worse, strict=True) if w > 0.05)

    def within(self, share: float, evaluations: int) -> float:
        """Regret that this share of the tasks does not exceed after so many evaluations."""
        last = [p.regret[min(evaluations, len(p.regret)) - 1] for p in self.learned]
        return float(np.quantile(last, share, method="higher"))


def check_history(history: History, rng: np.random.Generator, *, folds: int = FOLDS) -> Check:
    """Learn from some tasks, try the others, in turns."""
    if history.m < 2 * folds:
        raise InputError(f"{history.m} tasks are too few to leave some out; expected {2 * folds}")
    names, learned, cold, random = [], [], [], []
    for rest, held in history.folds(folds):
        prior = learn_prior(rest)
        for whole in held.tasks[: max(TASKS // folds, 1)]:
            task = _some_rows(whole, rng)
            if np.ptp(task.y) == 0:
                continue
            seen = rng.permutation(task.n)[:SEEN]
            names.append(task.name)
            learned.append(_play(prior, task, seen))
            cold.append(_play(replace(prior, task_gp=None, calibration=None), task, seen))
            random.append(random_regret(task.y / task.y.std(), EVALUATIONS))
    return Check(tuple(names), tuple(learned), tuple(cold), np.array(random))


def _play(prior: Prior, task: Task, seen: NDArray[np.intp]) -> Played:
    sign = -1.0 if prior.info.minimize else 1.0  # tasks hold what is to be maximised
    rows = prior.space.decode(task.X)
    predictor = _table(prior, rows)
    for i in seen:
        predictor.tell(int(i), sign * float(task.y[int(i)]))
    others = np.setdiff1d(np.arange(task.n), seen)
    mean, sd = predictor.predict([rows[i] for i in others])
    surprises = (sign * task.y[others] - mean) / sd
    optimizer, best = _table(prior, rows), []
    for _ in range(min(EVALUATIONS, task.n)):
        row = optimizer.ask()
        optimizer.tell(row, sign * float(task.y[row]))
        best.append(float(task.y.max() - sign * optimizer.best[1]))
    spread = float(task.y.std())
    regret = np.pad(np.array(best), (0, EVALUATIONS - len(best)), mode="edge")
    return Played(surprises, float(sd.mean()) / spread, regret / spread)


def _table(prior: Prior, rows: list[dict[str, object]]) -> TableOptimizer:
    optimizer = prior.optimizer(rows)
    assert isinstance(optimizer, TableOptimizer)
    return optimizer


def _some_rows(task: Task, rng: np.random.Generator) -> Task:
    kept = np.sort(rng.permutation(task.n)[:ROWS])
    return Task(task.X[kept], task.y[kept], task.name)


def random_regret(y: Array, evaluations: int) -> Array:
    """(T,) expected regret of rows drawn without repetition, exactly."""
    order = np.sort(y)
    n = len(order)
    regret = np.zeros(evaluations)
    # P(best of t is at most the i-th smallest) = C(i, t) / C(n, t), by a running product.
    for t in range(1, evaluations + 1):
        below = np.arange(n + 1, dtype=np.float64)
        chance = np.ones(n + 1)
        for k in range(min(t, n)):
            chance *= np.maximum(below - k, 0) / (n - k)
        regret[t - 1] = order[-1] - np.diff(chance) @ order
    return regret


def _covered(played: Sequence[Played]) -> Array:
    """Tasks count alike, however many rows they have."""
    widths = np.array([_width(level) for level in LEVELS])
    shares = [(np.abs(p.surprises)[:, None] <= widths).mean(axis=0) for p in played]
    return np.asarray(np.mean(shares, axis=0))


def _width(level: float) -> float:
    """How many standard deviations hold this share of a normal distribution."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if erf(middle / sqrt(2)) < level else (low, middle)
    return low
