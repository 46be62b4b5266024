"""solve(problem, lam) -> Solution."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, NotConverged, ShapeError
from metakel.grouplasso.evaluate import Evaluator, Residual
from metakel.grouplasso.features import FeatureEvaluator
from metakel.grouplasso.grams import GramEvaluator
from metakel.grouplasso.problem import Problem, check_problem
from metakel.grouplasso.remote import Remote
from metakel.grouplasso.working_set import Progress, optimise

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """A minimiser of Eq. 8 with its certificate.

    Attributes
    ----------
    beta : (m, d) array, or None where only Gram matrices are known
    eta : (p,) array
        Norms of the groups, the weights of Proposition 4.1.
    objective : float
    gap : float
        Primal minus dual objective over the mean square of y, from raw residuals.
    kkt : float
        Largest violation of the optimality conditions (B.6, B.7), relative to lambda.
    iterations : int
        Newton steps.
    converged : bool
    lam : (p,) array
    padded : residuals as the batches of ``problem`` hold them, where ``beta`` does not tell
    """

    beta: Array | None
    eta: Array
    objective: float
    gap: float
    kkt: float
    iterations: int
    converged: bool
    lam: Array
    problem: Problem | Remote = field(repr=False)
    padded: tuple[Array, ...] | None = field(default=None, repr=False)

    @cached_property
    def residuals(self) -> tuple[Array, ...]:
        """m arrays (n_s,), observations minus fit."""
        out: list[Array] = [np.empty(0)] * self.problem.m
        for batch, part in zip(self.problem.batches, self._padded(), strict=True):
            for s, row in zip(batch.tasks, part, strict=True):
                weight = self.problem.task_weights[s]
                out[s] = row[: self.problem.sizes[s]] / np.sqrt(weight)
        return tuple(out)

    def _padded(self) -> Sequence[Array]:
        if self.padded is not None:
            return self.padded
        assert isinstance(self.problem, Problem)
        assert self.beta is not None
        return self.problem.residuals(self.beta)

    @cached_property
    def unique(self) -> bool:
        """False where active groups leave a flat direction (duplicates): others fit alike."""
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
    def active(self) -> NDArray[np.intp]:
        """Indices of the groups that are not zero."""
        return np.flatnonzero(self.eta)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Solution({self.active.size} of {self.eta.size} groups, "
            f"objective {self.objective:.6g}, gap {self.gap:.1e}, {self.iterations} steps, {state})"
        )


def solve(
    problem: Problem | Remote,
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
        Weights ``eta`` to start from, e.g. of a neighbouring lambda.
    max_iterations : int
        Newton steps after which to stop, with a warning that tells the gap.
    progress : callable(round, gap), optional
        Called after every round over the working set with the certified relative gap.
    """
    check_problem(problem)
    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    x = None if start is None else _as_weights(start, problem.p) / strengths
    return solve_with(
        problem, evaluator, strengths, x, tol=tol, max_iterations=max_iterations, progress=progress
    )


def evaluator_of(problem: Problem | Remote) -> Evaluator:
    """The evaluator for the form in which the problem's tasks are given."""
    if not isinstance(problem, Problem):
        return problem.evaluator()
    return GramEvaluator(problem) if problem.kernel_mode else FeatureEvaluator(problem)


def as_strengths(lam: ArrayLike, p: int) -> Array:
    """One positive lambda per group."""
    values = as_numbers(lam, "lam")
    if values.ndim > 1 or values.size not in (1, p):
        raise ShapeError(f"lam has shape {values.shape}; expected one number or {p} of them")
    if not (np.isfinite(values) & (values > 0)).all():
        worst = values.reshape(-1)[~(np.isfinite(values.reshape(-1)) & (values.reshape(-1) > 0))][0]
        raise InputError(f"lam holds {worst}; expected positive finite numbers")
    return np.broadcast_to(values, (p,)).copy()


def as_numbers(lam: ArrayLike | None, name: str) -> Array:
    """What was given for lambda, if it can be read as numbers; rules have names elsewhere."""
    try:
        if lam is not None:
            return np.asarray(lam, np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"{name} is {lam!r}; expected positive numbers (metakel.learn.rules.choose_lambda "
        "makes them by a rule, lambda_max says how large they can be)"
    )


def check_tolerance(tol: float) -> None:
    if not tol >= 0:
        raise InputError(f"tol is {tol}; expected a number >= 0")


def _as_weights(start: ArrayLike, p: int) -> Array:
    values = np.asarray(start, np.float64)
    if values.shape != (p,):
        raise ShapeError(f"start has shape {values.shape}; expected ({p},)")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError("start must hold finite weights >= 0")
    return values


def solve_with(
    problem: Problem | Remote,
    evaluator: Evaluator,
    lam: Array,
    x: Array | None,
    *,
    tol: float,
    aim: float = inf,
    max_iterations: int,
    progress: Progress | None = None,
) -> Solution:
    """`solve` with an evaluator that keeps its working set from one lambda to the next.

    ``aim`` is a gap below ``tol`` to try for, which rounding may keep out of reach.
    """
    check_tolerance(tol)
    end = optimise(
        evaluator, lam, x, tol=min(tol, aim), max_iterations=max_iterations, progress=progress
    )
    gap = end.gap / evaluator.energy if evaluator.energy else 0.0
    converged = gap <= tol
    if not converged:
        warnings.warn(
            f"group lasso stopped after {end.iterations} steps at relative gap {gap:.1e}, "
            f"short of {tol:.1e}",
            NotConverged,
            stacklevel=3,
        )
    return Solution(
        beta=evaluator.beta(),
        eta=end.residual.norms,
        objective=end.objective,
        gap=gap,
        kkt=_violation(evaluator, end.residual, lam),
        iterations=end.iterations,
        converged=converged,
        lam=lam,
        problem=problem,
        padded=tuple(evaluator.residuals()),
    )


def _violation(evaluator: Evaluator, residual: Residual, lam: Array) -> float:
    """B.6, B.7: z^(j) = lam_j beta^(j)/||beta^(j)|| where active, ||z^(j)|| <= lam_j elsewhere."""
    active = residual.norms > 0
    beyond = np.sqrt(residual.scores[~active]) / lam[~active] - 1
    off = evaluator.misfit(lam) / lam[evaluator.work[evaluator.active]]
    return float(np.concatenate([beyond, off]).max(initial=0.0))
