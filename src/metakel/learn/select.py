r"""Lambda by predicting held-out data: what every such choice in this library shares.

`score_held_out` learns a path of models without some data and scores each of them on those data;
`HeldOutScores` makes the choice. `cross_validated_lambda` is the rule ``lam="cv"`` of
`learn_kernel`; priors and the paper's figures bring folds, models and scores of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, Generic, TypeVar

import numpy as np

from metakel._arrays import Array
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.gp.posterior import log_evidence
from metakel.grouplasso import lambda_max, path
from metakel.kernels import KernelDictionary, KernelSum
from metakel.kernels.nystrom import spread_rows
from metakel.learn.problem import (
    Loss,
    ScannedTasks,
    as_problem,
    estimate_noise_std,
    refitted_weights,
)

Train = TypeVar("Train")
Test = TypeVar("Test")
Model = TypeVar("Model")

# The path of `cross_validated_lambda`, as ratios of lambda_max; at 1 nothing is selected.
LAM_RATIOS = np.geomspace(1, 1e-3, 16)
FOLDS = 5
# So many tasks of a fold, and rows of a task, tell lambdas apart.
MOST_TESTED, MOST_ROWS = 20, 100
TOLERANCE = 1e-5  # scores need no more digits
# Of the root mean square of the values: a kernel matrix with less noise may not have a Cholesky
# factor.
LEAST_NOISE = 1e-5


@dataclass(frozen=True, eq=False)
class HeldOutScores(Generic[Model, Test]):
    """Scores of held-out data, the larger the better."""

    tests: Sequence[Test]  # (h,) what was predicted, for example tasks
    models: Sequence[Sequence[Model]]  # (h,) what predicted it, learned without it, per lambda
    scores: Array  # (h, L, ...) per test and lambda, and per value of any other choice

    def best(self, worst: float = -inf) -> tuple[int, ...]:
        """Index of lambda and of the other choices with the largest mean score.

        The first of equals wins, the largest lambda where lambdas decrease, and index 0 where
        nothing was held out. Scores below ``worst`` count as that: a test that no model explains
        should not decide.
        """
        if not len(self.tests):
            return (0,)
        mean = np.maximum(self.scores, worst).mean(axis=0)
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(mean)), mean.shape))

    def sparsest(self) -> int:
        """Index of the first lambda that is worse than the best by one standard error at most.

        The error is that of the mean difference over tests, at least two. Scores of (h, L) only.
        Fewer kernels that predict about as well are preferred (Breiman et al., 1984), so that
        differences by chance select nothing.
        """
        lost = self.scores[:, list(self.best())] - self.scores  # (h, L)
        error = lost.std(axis=0, ddof=1) / sqrt(len(lost))
        return int(np.argmax(lost.mean(axis=0) <= error))


def score_held_out(
    folds: Iterable[tuple[Train, Sequence[Test]]],
    fit_path: Callable[[Train], Sequence[Model]],
    score: Callable[[Model, Test], Any],
) -> HeldOutScores[Model, Test]:
    """Score every test under the models that the rest of the data give, one per lambda.

    ``fit_path`` may return one object for several lambdas, which is then scored once.
    """
    tests: list[Test] = []
    models: list[Sequence[Model]] = []
    scores: list[list[Any]] = []
    for train, held in folds:
        if not held:
            continue
        fitted = fit_path(train)
        distinct = {id(model): model for model in fitted}
        for test in held:
            of = {key: score(model, test) for key, model in distinct.items()}
            scores.append([of[id(model)] for model in fitted])
            tests.append(test)
            models.append(fitted)
    return HeldOutScores(tests, models, np.array(scores))


def cross_validated_lambda(
    history: History | ScannedTasks, base: KernelDictionary, loss: Loss = "points"
) -> Array:
    """(p,) lambdas under which the learned kernel predicts held-out tasks well.

    The largest on a path that is within one standard error of the best. Every task is held out
    once (of many tasks, some). A lambda is scored by the log density of the held-out values,
    which is that of each row given the rows of its task before; kernels have the variance, and
    the noise the size, that they have in the other tasks. Lambda is proportional to the typical
    size of the features of a kernel, so that their scaling does not matter.
    """
    if not isinstance(history, History):
        raise InputError(
            'lam="cv" learns again without some of the tasks and needs them in memory; give '
            "another rule, or a number"
        )
    if history.m < 2:
        raise InputError(
            f'lam="cv" predicts tasks that were held out and needs at least 2 tasks; found '
            f"{history.m}: give noise_std= and a rule, or lam= as a number"
        )

    def fit_path(kept: History) -> list[tuple[KernelSum, float]]:
        return _models_along_path(kept, base, loss)

    def score(model: tuple[KernelSum, float], task: Task) -> float:
        kernel, noise_std = model
        rows = spread_rows(np.arange(task.n), MOST_ROWS)
        found = log_evidence(kernel, task.X[rows], task.y[rows], noise_var=noise_std**2)
        return found / len(rows) if loss == "tasks" else found

    # Tasks are dealt to folds by the size of their values: folds are alike, in whatever order
    # the tasks come.
    ordered = replace(history, tasks=tuple(sorted(history, key=lambda t: (float(t.y @ t.y), t.n))))
    folds = (
        (kept, held.tasks[:: 1 + held.m // MOST_TESTED])
        for kept, held in ordered.folds(min(FOLDS, history.m))
    )
    chosen = LAM_RATIOS[score_held_out(folds, fit_path, score).sparsest()]
    problem, weights = as_problem(history, base, loss), np.sqrt(_typical_sizes(history, base))
    lam: Array = chosen * (lambda_max(problem, weights) or 1.0) * weights
    return lam


def _models_along_path(
    history: History, base: KernelDictionary, loss: Loss
) -> list[tuple[KernelSum, float]]:
    """Kernel and noise level of the prior y = f(x) + noise of a task, one per lambda ratio.

    Least squares refits a selection, so that equal ones share a model.
    """
    problem, sizes = as_problem(history, base, loss), _typical_sizes(history, base)
    size = sqrt(float(np.mean(np.concatenate([task.y for task in history]) ** 2)))
    top = lambda_max(problem, np.sqrt(sizes)) or 1.0  # any lambda will do where y is 0
    known: dict[bytes, tuple[KernelSum, float]] = {}
    models = []
    for solution in path(problem, top * LAM_RATIOS, weights=np.sqrt(sizes), tol=TOLERANCE):
        key = (solution.eta if problem.kernel_mode else solution.active).tobytes()
        if key not in known:
            noise = estimate_noise_std(problem, solution)
            strengths = solution.eta
            if not problem.kernel_mode:  # without the shrinkage, and without what noise adds
                strengths = refitted_weights(problem, solution.active, noise)
            noise = max(noise, LEAST_NOISE * (size or 1.0))
            variances = task_variances(base, strengths, sizes, max(size**2 - noise**2, 0.0))
            known[key] = KernelSum(base, variances), noise
        models.append(known[key])
    return models


def _typical_sizes(history: History, base: KernelDictionary) -> Array:
    """(p,) mean k_j(x, x) over all rows; 1 for a kernel that is 0 on all of them."""
    means = base.diags(np.concatenate([task.X for task in history])).mean(axis=1)
    return np.where(means > 0, means, 1.0)


def task_variances(base: KernelDictionary, strengths: Array, sizes: Array, total: float) -> Array:
    """(p,) weights in proportion to the second moments of the coefficients.

    With mean k_j(x, x) of ``sizes``, functions then have the variance ``total``.
    """
    moments = strengths**2 / [dim or 1 for dim in base.dims]
    typical = float(moments @ sizes)
    return np.asarray(moments * (total / typical)) if typical > 0 else moments
