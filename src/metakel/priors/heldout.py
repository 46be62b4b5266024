"""What held-out tasks say of a prior: its choices, its noise, and whether the history helps.

The prior is learned from half of the tasks and predicts the other half, and the other way round.
A log score is the log density per value over that of white noise N(0, 1), the best guess without
any structure.

A column that is no setting, such as a reading of the weather, makes every run look unlike every
other one. If the check fails, it is repeated without each parameter; of all that improve it the
best one is left out, and again, as long as this helps.

Tasks that agree with no others are set aside before (`agreeing_tasks`). What task s shows is fitted
by a function f_s. The affinity of two tasks is the correlation between f_s at the points of task u
and the values there, averaged over both directions. Tasks that are alike have a high affinity; that
of tasks with values that say nothing, or the opposite, is about 0 or negative. The core are the
tasks that have at least half of the affinity that these have among themselves. Where it leaves out
a quarter of the tasks or more, it alone teaches. In clean histories nothing comes near that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import TINY, Array, as_number, as_numbers
from metakel.errors import typed_list
from metakel.gp.posterior import LEVEL_VARIANCE, log_density, white_noise_log_density
from metakel.gp.processes import ColdProcess, LearnedProcess
from metakel.kernels.nystrom import spread_rows
from metakel.learn.select import score_held_out
from metakel.priors.principal import (
    DEFAULT_LAM_RATIO,
    LAM_RATIOS,
    TaskFeatures,
    featurize,
    keep,
    principal_functions,
    select_along_path,
    selection_problem,
)
from metakel.priors.standardize import StandardizedTasks
from metakel.space import Space

# How noisy a task is differs from task to task: ratios to the noise that all tasks share.
NOISE_RATIOS = (1.0, 0.1, 0.01)
EQUALLY = tuple(1 / len(NOISE_RATIOS) for _ in NOISE_RATIOS)
RESIDUAL_WEIGHTS = (0.05, 0.1, 0.2, 0.4)
DEFAULT_RESIDUAL_WEIGHT = 0.1
# A history that explains held-out tasks by less than this, in nats per value, is not used.
NEEDED_LOG_SCORE = 0.1
# A task that nothing explains counts as this bad when choosing, however surprising it is.
WORST_LOG_SCORE = -3.0
ROWS, TASKS = 50, 24


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What held-out tasks say.

    Parameters
    ----------
    tasks : (h,) indices of the tasks that were held out once
    log_scores : (h,) array
        Log density per value under the prior learned from the others, over white noise.
    cold_log_scores : (h,) array
        The same for the cold start.
    lam_ratio, residual_weight : float
        The choices that predict best: lambda over lambda_max, and the weight of the shared kernel.
    noise_ratio : 3 floats
        Which share of the tasks has 1, 1/10 and 1/100 of the usual noise.
    """

    tasks: NDArray[np.intp]
    log_scores: Array
    cold_log_scores: Array
    lam_ratio: float = DEFAULT_LAM_RATIO
    residual_weight: float = DEFAULT_RESIDUAL_WEIGHT
    noise_ratio: tuple[float, ...] = EQUALLY

    def __post_init__(self) -> None:
        as_numbers("tasks", self.tasks, (None,), low=0)
        for name in ("log_scores", "cold_log_scores"):
            as_numbers(name, getattr(self, name), self.tasks.shape)
        for name in ("lam_ratio", "residual_weight"):
            as_number(name, getattr(self, name), 0)
        as_numbers("noise_ratio", self.noise_ratio, (len(EQUALLY),), low=TINY)

    @classmethod
    def unchecked(cls) -> HeldOut:
        """Where there are too few tasks to hold some out."""
        return cls(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))

    @property
    def checked(self) -> bool:
        """Whether there were enough tasks to hold some out."""
        return self.tasks.size > 0

    @cached_property
    def log_score(self) -> float:
        """Median over tasks, which one odd task cannot sway; nan where nothing was held out."""
        return float(np.median(self.log_scores)) if self.checked else float("nan")

    @property
    def better_than_cold(self) -> int:
        """How many held-out tasks the prior predicts better than the cold start."""
        return int((self.log_scores > self.cold_log_scores).sum())

    @property
    def helps(self) -> bool:
        """Whether the history may be used.

        One that cannot be checked is used; the cold start beside it takes over where it misleads.
        """
        return not self.checked or self.log_score >= NEEDED_LOG_SCORE


def hold_out(featurized: TaskFeatures, *, mean: bool) -> HeldOut:
    """Score every lambda and residual weight on tasks that the prior was not learned from."""
    m = featurized.m
    if m < 2:
        return HeldOut.unchecked()

    def fit_path(training: range) -> list[LearnedProcess]:
        found = principal_functions(featurized, training, mean=mean)
        problem = selection_problem(found, *featurized.of(training))
        return [keep(found, active) for active in select_along_path(problem, LAM_RATIOS)]

    folds = []
    for first in (0, 1):
        held = list(range(1 - first, m, 2))[:TASKS]
        folds.append((range(first, m, 2), [_HeldOutTask.of(featurized, s) for s in held]))
    found = score_held_out(folds, fit_path, _log_scores)
    i, j = found.best(WORST_LOG_SCORE)
    residual_weight = RESIDUAL_WEIGHTS[j]
    probabilities = [
        _noise_ratios(models[i], task, residual_weight)
        for models, task in zip(found.models, found.tests, strict=True)
    ]
    # One more task of each noise ratio in equal parts, so that none is ruled out.
    counts = np.sum(probabilities, axis=0) + np.array(EQUALLY)
    indices = np.array([task.index for task in found.tests], dtype=np.intp)
    order = np.argsort(indices)
    return HeldOut(
        indices[order],
        found.scores[order, i, j],
        np.array([found.tests[k].cold_log_score() for k in order]),
        LAM_RATIOS[i],
        residual_weight,
        tuple((counts / counts.sum()).tolist()),
    )


@dataclass(frozen=True, eq=False)
class _HeldOutTask:
    """Rows of a task to predict: values z (n,), features psi (n, r), shared kernel K0 (n, n)."""

    index: int
    X: Array
    z: Array
    psi: Array
    K0: Array
    noise: Array  # ratios of the variances of the noise to the usual one

    @classmethod
    def of(cls, featurized: TaskFeatures, s: int) -> _HeldOutTask:
        """At most 50 rows of task s, spread over all of them."""
        tasks, F = featurized.tasks, featurized.F[s]
        rows = spread_rows(np.arange(len(F)), ROWS)
        X = tasks.X[s][rows]
        noise = tasks.noise[s][rows] if tasks.noise else np.ones(len(rows))
        return cls(s, X, tasks.z[s][rows], F[rows], featurized.basis.shared(X, X), noise)

    def log_score(self, C: Array, z: Array) -> Array:
        """Per value over white noise: N(0, C) at z, for stacks of C."""
        return (log_density(C, z) - white_noise_log_density(self.z)) / len(z)

    def cold_log_score(self) -> float:
        """Under the cold start."""
        cold = ColdProcess.typical(self.X.shape[1])
        C = cold.shared(self.X, self.X) + LEVEL_VARIANCE
        C.flat[:: len(C) + 1] += cold.noise
        return float(self.log_score(C, self.z))


def _log_scores(task_gp: LearnedProcess, task: _HeldOutTask) -> Array:
    """(4,) log scores, one per residual weight."""
    residual = np.array(RESIDUAL_WEIGHTS)[:, None, None] * task.K0
    C = _explained(task_gp, task) + residual + LEVEL_VARIANCE
    C[..., np.arange(len(task.z)), np.arange(len(task.z))] += task_gp.noise * task.noise
    return task.log_score(C, task.z - task.psi @ task_gp.mu)


def _noise_ratios(task_gp: LearnedProcess, task: _HeldOutTask, residual_weight: float) -> Array:
    """(3,) posterior probabilities of the noise ratios, equal before."""
    K = _explained(task_gp, task) + residual_weight * task.K0 + LEVEL_VARIANCE
    C = np.tile(K, (len(NOISE_RATIOS), 1, 1))
    noise = task_gp.noise * np.array(NOISE_RATIOS)
    C[:, np.arange(len(task.z)), np.arange(len(task.z))] += noise[:, None] * task.noise
    logs = log_density(C, task.z - task.psi @ task_gp.mu)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _explained(task_gp: LearnedProcess, task: _HeldOutTask) -> Array:
    """(n, n) covariance by the principal functions."""
    Phi = task.psi @ np.asfortranarray(task_gp.directions)  # an order by which sums are rounded
    return np.asarray((Phi * task_gp.eta) @ Phi.T)


# Each is a check of its own: of more parameters, or more left out, chance would find one to blame.
MOST_PARAMETERS, MOST_LEFT_OUT = 16, 2
# In nats per value. A smaller gain is no reason to doubt a parameter.
SPOILING_GAIN = 0.1


def spoiling_note(tasks: StandardizedTasks, space: Space, held: HeldOut, *, mean: bool) -> str:
    """Which parameters to leave out for the check to pass; empty where it takes more than that."""
    names = [name for name in space.free if space[name].width]
    if held.helps or not 1 < len(names) <= MOST_PARAMETERS:
        return ""
    left_out, score = list[str](), held.log_score
    for _ in range(min(MOST_LEFT_OUT, len(names) - 1)):
        tried = {
            name: hold_out(featurize(_constant(tasks, space, [*left_out, name])), mean=mean)
            for name in names
            if name not in left_out
        }
        best = max(tried, key=lambda name: tried[name].log_score)
        if not tried[best].log_score >= score + SPOILING_GAIN:
            return ""
        left_out, score = [*left_out, best], tried[best].log_score
        if score >= NEEDED_LOG_SCORE:
            return _leave_out(left_out, score)
    return ""


def _leave_out(names: list[str], score: float) -> str:
    one = len(names) == 1
    return (
        f"without {' and '.join(names)} the held-out check passes, with {score:+.2f} nats; if "
        f"{'it is no setting' if one else 'they are no settings'}, leave {'it' if one else 'them'} "
        f"out: exclude={names}, or --exclude {typed_list(tuple(names))}"
    )


def _constant(tasks: StandardizedTasks, space: Space, names: Sequence[str]) -> StandardizedTasks:
    """All runs as if these parameters had one value."""
    X = [rows.copy() for rows in tasks.X]
    for rows in X:
        for name in names:
            rows[:, space.columns[name]] = 0.0
    return replace(tasks, X=X)


# From fewer tasks nothing can be learned and checked on the others.
SMALLEST_CORE = 3
# Affinity to the core over that within, below which a task is not like the others.
ALIKE = 0.5
# Tasks of a core predict one another at least this well.
LEAST_AFFINITY = 0.2
# Tasks are set aside where they are at least this share of all.
SET_ASIDE = 0.25
SWEEPS = 20
# Tasks that are compared: the time grows with their square.
MOST_TASKS = 256


def agreeing_tasks(featurized: TaskFeatures) -> NDArray[np.intp]:
    """Indices of the tasks to learn from: all, or the core where many agree with no others."""
    everyone = np.arange(featurized.m)
    if not SMALLEST_CORE <= featurized.m <= MOST_TASKS:
        return everyone
    found = core(affinity(featurized))
    few = found is not None and len(found) <= (1 - SET_ASIDE) * featurized.m
    return found if found is not None and few else everyone


def affinity(featurized: TaskFeatures) -> Array:
    """(m, m) how well tasks predict one another, as correlations; 0 on the diagonal."""
    m, w = featurized.m, featurized.coefficients.w
    R = np.empty((m, m))
    for u in range(m):
        rows = spread_rows(np.arange(len(featurized.tasks.z[u])), ROWS)
        F, z = featurized.F[u][rows], featurized.tasks.z[u][rows]
        z = z - z.mean()
        fitted = F @ w.T  # (n_u, m)
        fitted -= fitted.mean(axis=0)
        sizes = np.linalg.norm(fitted, axis=0) * np.linalg.norm(z)
        R[:, u] = (z @ fitted) / np.where(sizes > 0, sizes, 1.0)
    R += R.T
    R /= 2
    R.flat[:: m + 1] = 0.0
    return R


def core(R: Array) -> NDArray[np.intp] | None:
    """Tasks with at least half of the affinity that these have among themselves; None for none."""
    m = len(R)
    found = np.argsort(-R.mean(axis=1), kind="stable")[: max(SMALLEST_CORE, m // 3)]
    for _ in range(SWEEPS):
        among = float(R[np.ix_(found, found)].sum()) / max(len(found) * (len(found) - 1), 1)
        if among < LEAST_AFFINITY:
            return None
        inside = np.isin(np.arange(m), found)
        to_core = R[:, inside].sum(axis=1) / np.maximum(inside.sum() - inside, 1)
        kept = np.flatnonzero(to_core >= ALIKE * among)
        if len(kept) < SMALLEST_CORE:
            return None
        if np.array_equal(kept, np.sort(found)):
            break
        found = kept
    return np.sort(found)
