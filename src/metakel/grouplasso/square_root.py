r"""The group square-root lasso, for noise of unknown size (Bunea, Lederer and She, 2013).

.. math:: \min_\beta \frac{\|y - \Phi\beta\|}{\sqrt N} + \sum_j \lambda'_j \|\beta^{(j)}\|

is the lasso of Eq. 8 at lambda = 2 lambda' sigma with sigma the residual level that it leaves
itself, so we look for the sigma that reproduces itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError
from metakel.grouplasso.problem import Problem, check_problem
from metakel.grouplasso.remote import Remote
from metakel.grouplasso.solve import Solution, as_strengths, evaluator_of, solve_with
from metakel.grouplasso.working_set import Progress

Array = NDArray[np.float64]
# The smallest noise that is told from residuals, as a share of the root mean square of y: what is
# left below it may be rounding.
EXACT_FIT = 1e-6
# Gap to reach over sigma^2: a fit at gap g is off by sqrt(g) at most, in root mean square.
SHARP = 1e-2


def solve_square_root(
    problem: Problem | Remote,
    lam: ArrayLike,
    *,
    tol: float = 1e-10,
    start: ArrayLike | None = None,
    max_iterations: int = 1000,
    progress: Progress | None = None,
) -> tuple[Solution, float]:
    """The solution and the noise level sigma that belongs to it.

    ``lam`` is lambda', which does not depend on the noise (`regularisation.pivotal_lambda`). The
    solution is that of Eq. 8 at ``solution.lam`` = 2 lambda' sigma. As the lasso shrinks, sigma
    exceeds the noise where the signal is strong; `refit.noise_left` takes that off again.
    ``start`` are weights x = eta / lambda (p,) to begin with.

    Observations that the features explain without any noise are fitted ever more closely as sigma
    falls. It stops at 1e-6 of the root mean square of y, where lambda is large enough for any
    smaller noise. A fit that is exact for want of observations says nothing and is refused.
    """
    check_problem(problem)
    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    energy = sqrt(evaluator.energy)
    if energy == 0.0:
        raise InputError("all observations are 0; they tell nothing about the noise level")
    x = None if start is None else np.asarray(start, np.float64)
    eta: Array | None = None
    known: dict[float, float] = {}

    def solution_at(log_sigma: float) -> Solution:
        nonlocal eta
        scaled = 2 * exp(log_sigma) * strengths
        solution = solve_with(
            problem,
            evaluator,
            scaled,
            x if eta is None else eta / scaled,
            tol=tol,
            aim=SHARP * exp(2 * log_sigma) / evaluator.energy,
            max_iterations=max_iterations,
        )
        eta = solution.eta
        return solution

    def excess(log_sigma: float) -> float:
        """log of the level that is left, minus log of the level assumed.

        Asked once of every sigma: it depends a little on where the solver starts, and the root is
        searched for between signs that must not change.
        """
        if log_sigma not in known:
            solution = solution_at(log_sigma)
            level = max(residual_level(problem, solution), 1e-3 * exp(log_sigma))
            known[log_sigma] = log(level) - log_sigma
            if progress is not None:
                progress(len(known), solution.gap)
        return known[log_sigma]

    root, exact = _root(excess, log(energy))
    solution = solution_at(root)
    if exact:
        _check_spare(problem, solution)
        return solution, exp(root)
    return solution, residual_level(problem, solution)


def _root(excess: Callable[[float], float], top: float) -> tuple[float, bool]:
    """Where the excess is 0, or the log of the smallest sigma and True where it is negative there.

    A larger sigma means a larger lambda and a larger residual, but one that grows more slowly: the
    excess falls through zero once, somewhere below the level of the observations, ``top``.
    """
    from scipy.optimize import brentq

    if excess(top) >= 0:
        return top, False  # lambda' is so large that nothing is selected
    right, left, bottom = top, top - 1.0, top + log(EXACT_FIT)
    while excess(left) < 0:
        if left == bottom:
            return bottom, True
        right, left = left, max(left - 1.0, bottom)
    return float(brentq(excess, left, right, xtol=1e-10, rtol=1e-12)), False


def _check_spare(problem: Problem | Remote, solution: Solution) -> None:
    """Raise where the fit is exact because it has as many columns as there are observations."""
    if _spare(problem, solution) < 1:
        raise InputError(
            "the square-root lasso fits the observations exactly, so the noise level cannot "
            "be told from them: fewer base kernels, more observations per task, a larger lam, "
            "or noise_std itself would help"
        )


def _spare(problem: Problem | Remote, solution: Solution) -> float:
    """Observations beyond the columns, or the directions in kernel mode, that are fitted."""
    dims = [problem.dims[j] for j in solution.active]
    if None not in dims:
        return float(np.maximum(problem.sizes - sum(d or 0 for d in dims), 0).sum())
    if not isinstance(problem, Problem):
        return float(problem.total)  # Gram matrices are elsewhere; lambda' vouches for the fit
    weights = 2 / problem.total * solution.eta / solution.lam
    fitted = 0.0
    for batch in problem.batches:
        assert batch.K is not None
        values = np.linalg.eigvalsh(np.tensordot(weights, batch.K, 1))
        fitted += float((values / (1 + values)).sum())
    return problem.total - fitted


def residual_level(problem: Problem | Remote, solution: Solution) -> float:
    """Root mean square of the residuals, in the weights of the loss."""
    if not isinstance(problem, Problem):
        return sqrt(max(solution.objective - float(np.dot(solution.lam, solution.eta)), 0.0))
    squares = [float(r @ r) for r in solution.residuals]
    return sqrt(float(np.dot(problem.task_weights, squares)) / problem.total)
