"""Lambda for a regressor: the one that predicts rows from the other rows of their task."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso import lambda_max, path
from metakel.kernels import KernelDictionary
from metakel.learn import LearnedKernel, learn_kernel
from metakel.learn.problem import CV, DEFAULT, PIVOTAL
from metakel.learn.select import (
    MultiTaskProblem,
    TaskPrior,
    fit_selections,
    rows_by_label,
    score_held_out,
)

logger = logging.getLogger("metakel")

# Ratios of lambda_max; at 1 nothing is selected, and a task is its mean.
LAM_RATIOS = np.array([1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01])
FOLDS = 3
# So many tasks tell the ratios apart.
MOST_TESTED = 50
# A level per task costs next to nothing, as an intercept should.
LEVEL_STRENGTH = 1e-3
# Held-out errors need no more digits.
TOLERANCE = 1e-5
# Values that the base kernels fit exactly say nothing of the noise; the rules for lambda then take
# it to be this share of their spread.
UNKNOWN_NOISE = 1e-2


def learn(
    multitask: MultiTaskProblem,
    lam_ratio: float | None,
    *,
    noise_std: float | None,
    lam: str | ArrayLike,
    delta: float,
    rng: np.random.Generator,
) -> LearnedKernel:
    """`learn_kernel` at a ratio of lambda_max, or by a rule, also where nothing varies."""
    history, base = multitask.history, multitask.base
    strengths = _strengths(multitask)
    top = lambda_max(multitask.problem, strengths)
    if multitask.spread == 0 or top == 0:  # at any lambda and noise nothing is selected
        noise_std = noise_std or multitask.spread or 1.0
        return learn_kernel(history, base, noise_std=noise_std)
    if lam_ratio is not None:
        lam = lam_ratio * top * _with_level(strengths)
        chosen = learn_kernel(history, base, lam=lam, noise_std=noise_std)
        return replace(chosen, rule=CV)
    if noise_std is None and isinstance(lam, str) and lam in (DEFAULT, PIVOTAL):
        try:
            return learn_kernel(history, base, lam=lam, delta=delta, rng=rng)
        except InputError as error:  # an exact fit; anything else is raised again below
            noise_std = UNKNOWN_NOISE * multitask.spread
            logger.info("noise taken to be %.3g: %s", noise_std, error)
    return learn_kernel(history, base, noise_std=noise_std, lam=lam, delta=delta, rng=rng)


TaskRows = tuple[NDArray[np.intp], NDArray[np.intp]]  # of one task: known, and to predict


def choose_lam_ratio(
    X: Array, y: Array, labels: Sequence[Any], base: KernelDictionary, noise_std: float | None
) -> float:
    """The ratio of lambda_max with the smallest squared error on held-out rows of every task.

    Rows are held out, not tasks: these are the tasks to predict, and there may be only one.
    """
    task, place = np.empty((2, len(y)), dtype=np.intp)
    for s, rows in enumerate(rows_by_label(labels).values()):
        task[rows], place[rows] = s, np.arange(len(rows)) % FOLDS

    def fit_path(train: NDArray[np.intp]) -> list[TaskPrior]:
        multitask = MultiTaskProblem.of(X[train], y[train], task[train].tolist(), base)
        return _priors_along_path(multitask, noise_std)

    def score(task_prior: TaskPrior, test: TaskRows) -> float:
        known, held = test
        left = task_prior.left(X[known], y[known], X[held], y[held])
        return -float(np.sum(left**2))

    folds = (_fold(task, place == fold) for fold in range(FOLDS))
    best, *_ = score_held_out(folds, fit_path, score).best()
    return float(LAM_RATIOS[best])


def _fold(
    task: NDArray[np.intp], held: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], list[TaskRows]]:
    """Rows to learn from, and the rows ``held`` of tasks that have others."""
    tested = np.intersect1d(task[held], task[~held])
    tested = tested[:: 1 + len(tested) // MOST_TESTED]
    tests = [
        (np.flatnonzero(~held & (task == s)), np.flatnonzero(held & (task == s))) for s in tested
    ]
    return np.flatnonzero(~held), tests


def _priors_along_path(multitask: MultiTaskProblem, noise_std: float | None) -> list[TaskPrior]:
    """One task_prior per ratio of lambda_max."""
    strengths = _strengths(multitask)
    top = lambda_max(multitask.problem, strengths)
    if multitask.spread == 0 or top == 0:  # nothing to tell lambdas apart
        (nothing,) = path(multitask.problem, [1.0], tol=TOLERANCE)
        return [multitask.task_prior(nothing, noise_std)] * len(LAM_RATIOS)
    solutions = path(
        multitask.problem, top * LAM_RATIOS, weights=_with_level(strengths), tol=TOLERANCE
    )
    return fit_selections(
        multitask.problem, solutions, lambda s: multitask.task_prior(s, noise_std)
    )


def _strengths(multitask: MultiTaskProblem) -> Array:
    """(p,) typical sizes of the features: the lasso should not see their scale."""
    return np.sqrt(np.where(multitask.sizes > 0, multitask.sizes, 1.0))


def _with_level(strengths: Array) -> Array:
    return np.append(LEVEL_STRENGTH * strengths[:1], strengths[1:])
