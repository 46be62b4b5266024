"""Solve the group lasso (Eq. 8) to a certified duality gap.

The groups enter a working set by how much they violate optimality. Newton's method minimises over
the working set; then the duality gap over all groups is computed from the raw data, until it is
small enough.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, NotConverged, ShapeError
from metakel.grouplasso.evaluators import FeatureEvaluator, GramEvaluator
from metakel.grouplasso.newton import Evaluator, Iterate, Residual, dual_value, evaluate, minimize
from metakel.grouplasso.problem import Index, Problem

Progress = Callable[[int, float], None]
FIRST = 10  # groups that the working set begins with
# Below this multiple of lambda_max most groups are active, so more of them are added at once.
TINY = 1e-4
ROUNDS = 200


@dataclass(frozen=True, eq=False)
class Solution:
    """A minimiser of Eq. 8 with its duality gap.

    Attributes
    ----------
    beta : (m, d) array or None
        Coefficients; None where the tasks are given by Gram matrices, or on disk.
    eta : (p,) array
        Norms of the groups, the weights of Proposition 4.1.
    objective : float
    loss : float
        Its first part: the mean square of the residuals, with the weights of the loss.
    gap : float
        Primal minus dual objective, relative to the mean square of y, from raw residuals.
    kkt : float
        Largest violation of the optimality conditions (B.6, B.7), relative to lambda.
    iterations : int
        Number of Newton steps.
    converged : bool
        Whether ``gap`` reached the tolerance.
    lam : (p,) array
    padded : tuple of arrays
        Residuals in the padded form of ``problem.batches``; none for tasks on disk.
    """

    beta: Array | None
    eta: Array
    objective: float
    loss: float
    gap: float
    kkt: float
    iterations: int
    converged: bool
    lam: Array
    problem: Problem = field(repr=False)
    padded: tuple[Array, ...] = field(default=(), repr=False)

    @cached_property
    def residuals(self) -> tuple[Array, ...]:
        """Observations minus fit: one (n_s,) array per task."""
        if self.problem.evaluator is not None:
            raise InputError("residuals are not kept for tasks on disk")
        out: list[Array] = [np.empty(0)] * self.problem.m
        for batch, part in zip(self.problem.batches, self.padded, strict=True):
            for s, row in zip(batch.tasks, part, strict=True):
                weight = self.problem.task_weights[s]
                out[s] = row[: self.problem.sizes[s]] / np.sqrt(weight)
        return tuple(out)

    @cached_property
    def unique(self) -> bool:
        """False where other weights fit equally well, e.g. because of duplicated groups."""
        evaluator, active = evaluator_of(self.problem), self.active
        if not active.size:
            return True
        evaluator.extend(active)
        evaluator.at(np.arange(active.size), self.eta[active] / self.lam[active])
        H = evaluator.hessian(evaluator.active)
        if not (H.diagonal() > 0).all():
            return False
        scale = 1 / np.sqrt(H.diagonal())
        return bool(np.linalg.eigvalsh(H * np.outer(scale, scale))[0] > 1e-9)

    @property
    def active(self) -> Index:
        """Indices of the selected groups."""
        return np.flatnonzero(self.eta)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Solution({self.active.size} of {self.eta.size} groups, "
            f"objective {self.objective:.6g}, gap {self.gap:.1e}, {self.iterations} steps, {state})"
        )


def solve(
    problem: Problem,
    lam: ArrayLike,
    *,
    tol: float = 1e-10,
    start: ArrayLike | None = None,
    max_iterations: int = 1000,
    progress: Progress | None = None,
) -> Solution:
    """Minimise Eq. 8 to a certified duality gap.

    Parameters
    ----------
    problem : Problem
    lam : float or (p,) array
        The paper's lambda (half of it is the ``alpha`` of celer, skglm and scikit-learn).
    tol : float
        Duality gap to reach, relative to the mean square of y.
    start : (p,) array, optional
        Weights ``eta`` to start from, e.g. those of a similar lambda.
    max_iterations : int
        Maximal number of Newton steps. A `NotConverged` warning reports the gap reached.
    progress : callable(round, gap), optional
        Called with the certified relative gap whenever the working set was optimised.
    """
    check_problem(problem)
    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    x = None if start is None else _as_weights(start, problem.p) / strengths
    return solve_with(
        problem, evaluator, strengths, x, tol=tol, max_iterations=max_iterations, progress=progress
    )


def check_problem(problem: object) -> None:
    """Raise where the argument is not a problem, e.g. the history it is made from."""
    if not hasattr(problem, "group_scores"):
        raise InputError(
            f"problem is a {type(problem).__name__}; expected a Problem, made by "
            "Problem.from_arrays, from_tasks or from_grams (metakel.learn.as_problem(history, "
            "base) makes it from a History)"
        )


def lambda_max(problem: Problem, weights: ArrayLike | None = None) -> float:
    """Smallest lambda at which every coefficient is zero: max_j (2/N) ||(Phi'y)^(j)|| / w_j."""
    check_problem(problem)
    scores = problem.group_scores()
    _check_scores(scores)
    norms = 2 / problem.total * np.sqrt(scores)
    return float(np.max(norms if weights is None else norms / np.asarray(weights)))


def _check_scores(scores: Array) -> None:
    """Features may be large: their first products are checked instead."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        raise InputError(f"the features of group {wrong[0]} hold nan or infinite numbers")


def evaluator_of(problem: Problem) -> Evaluator:
    """The evaluator for the kind of data that the problem holds."""
    if problem.evaluator is not None:
        found: Evaluator = problem.evaluator(problem)
        return found
    return GramEvaluator(problem) if problem.kernel_mode else FeatureEvaluator(problem)


def as_strengths(lam: ArrayLike, p: int) -> Array:
    """One positive lambda per group."""
    values = as_numbers(lam, "lam")
    if values.ndim > 1 or values.size not in (1, p):
        raise ShapeError(
            f"lam has shape {values.shape}; expected one number, or one per group, ({p},)"
        )
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        raise InputError(f"lam holds {values[wrong].flat[0]}; expected finite numbers > 0")
    return np.broadcast_to(values, (p,)).copy()


def as_numbers(lam: ArrayLike | None, name: str) -> Array:
    """``lam`` as an array of numbers; the rules of `metakel.learn` are resolved before."""
    try:
        if lam is not None:
            return np.asarray(lam, np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"{name} is {lam!r}; expected numbers > 0 (metakel.learn.rules.choose_lambda computes "
        "them by a rule; nothing is selected from lambda_max on)"
    )


def _as_weights(start: ArrayLike, p: int) -> Array:
    values = np.asarray(start, np.float64)
    if values.shape != (p,):
        raise ShapeError(f"start has shape {values.shape}; expected ({p},)")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError("start must hold finite weights >= 0")
    return values


def solve_with(
    problem: Problem,
    evaluator: Evaluator,
    lam: Array,
    x: Array | None,
    *,
    tol: float,
    aim: float = inf,
    max_iterations: int,
    progress: Progress | None = None,
) -> Solution:
    """`solve` from weights x = eta / lambda, with an evaluator that keeps its working set.

    ``aim`` is a smaller gap than ``tol`` to aim for. Not reaching it is no failure, because
    rounding may prevent it.
    """
    if not tol >= 0:
        raise InputError(f"tol is {tol}; expected a number >= 0")
    end = optimize(
        evaluator, lam, x, tol=min(tol, aim), max_iterations=max_iterations, progress=progress
    )
    gap = end.gap / evaluator.energy if evaluator.energy else 0.0
    converged = gap <= tol
    if not converged:
        warnings.warn(
            f"the group lasso stopped after {end.iterations} Newton steps at a relative duality "
            f"gap of {gap:.1e}; tol is {tol:.1e}",
            NotConverged,
            stacklevel=3,
        )
    return Solution(
        beta=evaluator.beta(),
        eta=end.residual.norms,
        objective=end.objective,
        loss=end.residual.square,
        gap=gap,
        kkt=_violation(evaluator, end.residual, lam),
        iterations=end.iterations,
        converged=converged,
        lam=lam,
        problem=problem,
        padded=tuple(end.residual.rows),
    )


def _violation(evaluator: Evaluator, residual: Residual, lam: Array) -> float:
    """B.6, B.7: z^(j) = lam_j beta^(j)/||beta^(j)|| where active, ||z^(j)|| <= lam_j elsewhere."""
    active = residual.norms > 0
    beyond = np.sqrt(residual.scores[~active]) / lam[~active] - 1
    off = evaluator.misfit(lam) / lam[evaluator.work[evaluator.active]]
    return float(np.concatenate([beyond, off]).max(initial=0.0))


# -- the working set -------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """The point where the optimisation stopped, and its duality gap."""

    residual: Residual
    objective: float
    gap: float
    iterations: int


def optimize(
    evaluator: Evaluator,
    lam: Array,
    x: Array | None,
    *,
    tol: float,
    max_iterations: int,
    progress: Progress | None,
) -> End:
    """Minimise over all groups, from x (p,) or from zero, to a gap of tol times the energy."""
    target = tol * evaluator.energy
    state = np.zeros(evaluator.work.size) if x is None else x[evaluator.work]
    if x is not None and (outside := _outside(evaluator, x > 0)).size:
        evaluator.extend(outside)
        state = x[evaluator.work]
    from_zero = x is None
    steps = 0
    if not from_zero:
        # A good start is improved before the raw data are read.
        now = evaluate(evaluator, lam[evaluator.work], state)
        now = minimize(evaluator, now, tol=0.3 * target, max_iterations=max_iterations)
        state, steps = now.x, now.iterations
    end = _certify(evaluator, lam, steps)
    _check_scores(end.residual.scores)
    first = True
    for round_ in range(ROUNDS):
        if end.gap <= target or end.iterations >= max_iterations:
            break
        ratio = np.sqrt(end.residual.scores) / lam
        candidates = _outside(evaluator, ratio > 1)
        most = max(FIRST if first else FIRST // 2, int(np.count_nonzero(state)))
        if first and float(ratio.max()) * TINY > 1:
            most *= 4
        new = np.sort(candidates[np.argsort(-ratio[candidates], kind="stable")][:most])
        if new.size:
            evaluator.extend(new)
            state = np.concatenate([state, np.zeros(new.size)])
        if from_zero:
            now = evaluate(evaluator, lam[evaluator.work], evaluator.start(lam[evaluator.work]))
        else:
            now = Iterate(
                state, lam[evaluator.work], end.residual.inner, end.residual.scores[evaluator.work]
            )
        # While groups still enter, an approximate minimum over the working set is enough.
        rough = candidates.size > 0 and evaluator.rough
        before, from_zero, first = end, False, False
        found = minimize(
            evaluator,
            now,
            tol=max(0.3 * target, 0.03 * end.gap if rough else 0.0),
            max_iterations=max_iterations - end.iterations,
        )
        state = found.x
        end = _certify(evaluator, lam, end.iterations + found.iterations)
        if progress is not None:
            progress(round_, end.gap / evaluator.energy)
        complete = not new.size and not _outside(evaluator, end.residual.scores > lam * lam).size
        if complete and not end.gap < 0.5 * before.gap:
            break  # only rounding is left
    return end


def _outside(evaluator: Evaluator, chosen: NDArray[np.bool]) -> Index:
    """The chosen groups (p,) that are not in the working set."""
    outside = chosen.copy()
    outside[evaluator.work] = False
    return np.flatnonzero(outside)


def _certify(evaluator: Evaluator, lam: Array, iterations: int) -> End:
    """The duality gap over all groups, from the raw data."""
    residual = evaluator.residual()
    primal = residual.square + float(np.dot(lam, residual.norms))
    dual = dual_value(residual.inner, residual.square, np.sqrt(residual.scores), lam)
    return End(residual, primal, primal - dual, iterations)
