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
from metakel.learn.multitask import MultiTaskProblem, rows_by_label
from metakel.learn.options import DEFAULT, PIVOTAL

logger = logging.getLogger("metakel")

# Shares of lambda_max; at 1 nothing is selected, and a task is its mean.
SHARES = np.array([1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01])
FOLDS = 3
# So many tasks tell the shares apart.
MOST_TESTED = 50
# A level per task costs next to nothing, as an intercept should.
LEVEL_STRENGTH = 1e-3
# Held-out errors need no more digits.
TOLERANCE = 1e-5
# Values that the base kernels fit exactly say nothing of the noise; the rules for lambda then take
# it to be this share of their spread.
UNTOLD_NOISE = 1e-2


def learn(
    lesson: MultiTaskProblem,
    share: float | None,
    *,
    noise_std: float | None,
    lam: str | ArrayLike,
    delta: float,
    rng: np.random.Generator,
) -> LearnedKernel:
    """`learn_kernel` at a share of lambda_max, or by a rule, also where nothing varies."""
    history, base = lesson.history, lesson.base
    strengths = _strengths(lesson)
    top = lambda_max(lesson.problem, strengths)
    if lesson.spread == 0 or top == 0:  # at any lambda and noise nothing is selected
        noise_std = noise_std or lesson.spread or 1.0
        return learn_kernel(history, base, noise_std=noise_std)
    if share is not None:
        lam = share * top * _with_level(strengths)
        chosen = learn_kernel(history, base, lam=lam, noise_std=noise_std)
        return replace(chosen, rule="cross-validation")
    if noise_std is None and isinstance(lam, str) and lam in (DEFAULT, PIVOTAL):
        try:
            return learn_kernel(history, base, lam=lam, delta=delta, rng=rng)
        except InputError as error:  # an exact fit; anything else is raised again below
            noise_std = UNTOLD_NOISE * lesson.spread
            logger.info("noise taken to be %.3g: %s", noise_std, error)
    return learn_kernel(history, base, noise_std=noise_std, lam=lam, delta=delta, rng=rng)


def choose_share(
    X: Array, y: Array, labels: Sequence[Any], base: KernelDictionary, noise_std: float | None
) -> float:
    """The share of lambda_max with the smallest squared error on held-out rows of every task."""
    task, place = np.empty((2, len(y)), dtype=np.intp)
    for s, rows in enumerate(rows_by_label(labels).values()):
        task[rows], place[rows] = s, np.arange(len(rows)) % FOLDS
    errors = np.zeros(len(SHARES))
    for fold in range(FOLDS):
        errors += _held_out_errors(X, y, task, base, noise_std, place == fold)
    return float(SHARES[np.argmin(errors)])


def _held_out_errors(
    X: Array,
    y: Array,
    task: NDArray[np.intp],
    base: KernelDictionary,
    noise_std: float | None,
    held: NDArray[np.bool_],
) -> Array:
    """(shares,) squared errors on the rows ``held`` of tasks that have others."""
    taught = ~held
    errors = np.zeros(len(SHARES))
    tested = np.intersect1d(task[held], task[taught])
    tested = tested[:: 1 + len(tested) // MOST_TESTED]
    if not len(tested):
        return errors
    lesson = MultiTaskProblem.of(X[taught], y[taught], task[taught].tolist(), base)
    strengths = _strengths(lesson)
    top = lambda_max(lesson.problem, strengths)
    if lesson.spread == 0 or top == 0:
        return errors
    pairs = [
        (np.flatnonzero(taught & (task == s)), np.flatnonzero(held & (task == s))) for s in tested
    ]
    known: dict[bytes, float] = {}  # what is selected decides what is predicted
    solutions = path(lesson.problem, top * SHARES, weights=_with_level(strengths), tol=TOLERANCE)
    for i, solution in enumerate(solutions):
        selected = solution.active.tobytes()
        if selected not in known or lesson.problem.kernel_mode:
            belief = lesson.belief(solution, noise_std)
            left = [belief.left(X[i], y[i], X[rows], y[rows]) for i, rows in pairs]
            known[selected] = float(np.sum(np.concatenate(left) ** 2))
        errors[i] = known[selected]
    return errors


def _strengths(lesson: MultiTaskProblem) -> Array:
    """(p,) typical sizes of the features: the lasso should not see their scale."""
    return np.sqrt(np.where(lesson.sizes > 0, lesson.sizes, 1.0))


def _with_level(strengths: Array) -> Array:
    return np.append(LEVEL_STRENGTH * strengths[:1], strengths[1:])
