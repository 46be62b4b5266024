r"""The group square-root lasso, for noise of unknown size (Bunea, Lederer and She, 2013).

.. math:: \min_\beta \frac{\|y - \Phi\beta\|}{\sqrt N} + \sum_j \lambda'_j \|\beta^{(j)}\|

is the lasso of Eq. 8 at lambda = 2 lambda' sigma with sigma the residual level that it leaves
itself, so we look for the sigma that reproduces itself.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.remote import Remote
from metakel.grouplasso.solve import Solution, as_strengths, evaluator_of, solve_with
from metakel.grouplasso.working_set import Progress

Array = NDArray[np.float64]
# A residual this far below the observations is an exact fit, which knows nothing of the noise.
EXACT_FIT = 1e-7


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
    """
    from scipy.optimize import brentq

    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    energy = sqrt(evaluator.energy)
    if energy == 0.0:
        raise InputError("all observations are 0; they tell nothing about the noise level")
    x = None if start is None else np.asarray(start, np.float64)
    solution: Solution | None = None
    calls = 0

    def excess(log_sigma: float) -> float:
        """log of the level that is left, minus log of the level assumed."""
        nonlocal x, solution, calls
        scaled = 2 * exp(log_sigma) * strengths
        solution = solve_with(problem, evaluator, scaled, x, tol=tol, max_iterations=max_iterations)
        x = solution.eta / scaled
        level = residual_level(problem, solution)
        if level <= EXACT_FIT * energy:
            raise InputError(
                "the square-root lasso fits the observations exactly, so the noise level cannot "
                "be told from them: fewer base kernels, more observations per task, a larger lam, "
                "or noise_std itself would help"
            )
        calls += 1
        if progress is not None:
            progress(calls, solution.gap)
        return log(level) - log_sigma

    # A larger sigma means a larger lambda and a larger residual, but one that grows more slowly:
    # the excess falls through zero once, somewhere below the level of the observations.
    right = log(energy)
    left = right - 1.0
    if excess(right) < 0:
        while excess(left) < 0:
            right, left = left, left - 1.0
        root = brentq(excess, left, right, xtol=1e-10, rtol=1e-12)
    else:
        root = right  # lambda' is so large that nothing is selected
    left_over = excess(root)
    assert solution is not None
    return solution, exp(root + left_over)


def residual_level(problem: Problem | Remote, solution: Solution) -> float:
    """Root mean square of the residuals, in the weights of the loss."""
    if not isinstance(problem, Problem):
        return sqrt(max(solution.objective - float(np.dot(solution.lam, solution.eta)), 0.0))
    squares = [float(r @ r) for r in solution.residuals]
    return sqrt(float(np.dot(problem.task_weights, squares)) / problem.total)
