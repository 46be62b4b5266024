"""solve(problem, lam) -> Solution, and the same along a path of lambdas."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, NotConverged, ShapeError
from metakel.grouplasso.evaluate import Evaluator, Residual
from metakel.grouplasso.features import FeatureEvaluator
from metakel.grouplasso.grams import GramEvaluator
from metakel.grouplasso.problem import Problem, lambda_max
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
    unique : bool
        False where the active groups leave a flat direction (duplicates): other weights fit alike.
    padded : residuals as the batches of ``problem`` hold them; see `residuals`
    """

    beta: Array | None
    eta: Array
    objective: float
    gap: float
    kkt: float
    iterations: int
    converged: bool
    lam: Array
    unique: bool
    problem: Problem = field(repr=False)
    padded: tuple[Array, ...] = field(repr=False)

    @cached_property
    def residuals(self) -> tuple[Array, ...]:
        """m arrays (n_s,), observations minus fit."""
        out: list[Array] = [np.empty(0)] * self.problem.m
        for batch, part in zip(self.problem.batches, self.padded, strict=True):
            for s, row in zip(batch.tasks, part, strict=True):
                weight = self.problem.task_weights[s]
                out[s] = row[: self.problem.sizes[s]] / np.sqrt(weight)
        return tuple(out)

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
        Weights ``eta`` to start from, e.g. of a neighbouring lambda.
    progress : callable(round, gap), optional
        Called after every round over the working set with the certified relative gap.
    """
    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    x = None if start is None else _as_weights(start, problem.p) / strengths
    return solve_with(
        problem, evaluator, strengths, x, tol=tol, max_iterations=max_iterations, progress=progress
    )


def path(
    problem: Problem,
    lams: ArrayLike | None = None,
    *,
    count: int = 100,
    ratio: float = 1e-3,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
    max_iterations: int = 1000,
    progress: Progress | None = None,
) -> list[Solution]:
    """Solutions from lambda_max down, each started from the one before.

    ``lams`` are used as given (best in decreasing order); without them, ``count`` values from
    lambda_max to ``ratio`` times it, evenly on the log scale. ``weights`` (p,) multiply each of
    them, for one lambda per group.
    """
    shape = np.ones(problem.p) if weights is None else as_strengths(weights, problem.p)
    if lams is None:
        top = lambda_max(problem, shape)
        if top == 0.0:
            raise InputError("lambda_max is 0: y does not correlate with any feature; no path")
        if not (0 < ratio < 1 and count >= 1):
            raise InputError(f"found ratio {ratio}, count {count}; expected 0 < ratio < 1 <= count")
        values = np.geomspace(top, ratio * top, count)
    else:
        values = np.atleast_1d(np.asarray(lams, np.float64))
        if values.ndim > 1 or not values.size:
            raise ShapeError(f"lams has shape {values.shape}; expected a sequence of numbers")
    evaluator = evaluator_of(problem)
    x: Array | None = None
    out = []
    for i, value in enumerate(values):
        strengths = as_strengths(value * shape, problem.p)
        solution = solve_with(
            problem, evaluator, strengths, x, tol=tol, max_iterations=max_iterations
        )
        out.append(solution)
        x = _ahead(out, values, i)
        if progress is not None:
            progress(i, solution.gap)
    return out


def _ahead(found: list[Solution], values: Array, i: int) -> Array:
    """Where to start at values[i + 1]: x grows nearly linearly in 1/lambda.

    Exactly so for orthogonal features, as long as no group enters or leaves.
    """
    here = found[i].eta / found[i].lam
    if i == 0 or i + 1 == len(values) or values[i] == values[i - 1]:
        return here
    before = found[i - 1].eta / found[i - 1].lam
    ahead, step = 1 / values[i + 1] - 1 / values[i], 1 / values[i] - 1 / values[i - 1]
    guess = here + ahead / step * (here - before)
    return np.where((before > 0) & (guess > 0), guess, here)


def evaluator_of(problem: Problem) -> Evaluator:
    """The evaluator for the form in which the problem's tasks are given."""
    return GramEvaluator(problem) if problem.kernel_mode else FeatureEvaluator(problem)


def as_strengths(lam: ArrayLike, p: int) -> Array:
    """One positive lambda per group."""
    values = np.asarray(lam, np.float64)
    if values.ndim > 1 or values.size not in (1, p):
        raise ShapeError(f"lam has shape {values.shape}; expected one number or {p} of them")
    if not (np.isfinite(values) & (values > 0)).all():
        worst = values.reshape(-1)[~(np.isfinite(values.reshape(-1)) & (values.reshape(-1) > 0))][0]
        raise InputError(f"lam holds {worst}; expected positive finite numbers")
    return np.broadcast_to(values, (p,)).copy()


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
    max_iterations: int,
    progress: Progress | None = None,
) -> Solution:
    """`solve` with an evaluator that keeps its working set from one lambda to the next."""
    if not tol >= 0:
        raise InputError(f"tol is {tol}; expected a number >= 0")
    end = optimise(evaluator, lam, x, tol=tol, max_iterations=max_iterations, progress=progress)
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
        unique=_unique(evaluator, end.residual),
    )


def _violation(evaluator: Evaluator, residual: Residual, lam: Array) -> float:
    """B.6, B.7: z^(j) = lam_j beta^(j)/||beta^(j)|| where active, ||z^(j)|| <= lam_j elsewhere."""
    active = residual.norms > 0
    beyond = np.sqrt(residual.scores[~active]) / lam[~active] - 1
    off = evaluator.misfit(lam) / lam[evaluator.work[evaluator.active]]
    return float(np.concatenate([beyond, off]).max(initial=0.0))


def _unique(evaluator: Evaluator, residual: Residual) -> bool:
    if not residual.norms.any():
        return True
    H = evaluator.hessian(evaluator.active)
    if not (H.diagonal() > 0).all():
        return False
    scale = 1 / np.sqrt(H.diagonal())
    return bool(np.linalg.eigvalsh(H * np.outer(scale, scale))[0] > 1e-9)
