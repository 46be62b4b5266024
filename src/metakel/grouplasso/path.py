r"""Several lambdas, each started from those before: a path, and the group square-root lasso.

The square-root lasso is for noise of unknown size (Bunea, Lederer and She, 2013):

.. math:: \min_\beta \frac{\|y - \Phi\beta\|}{\sqrt N} + \sum_j \lambda'_j \|\beta^{(j)}\|

has the solution of Eq. 8 at lambda = 2 lambda' sigma, where sigma is the root mean square of the
residuals of that same solution. So we search for the fixed point sigma, with one lasso per trial.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.solve import (
    Progress,
    Solution,
    as_numbers,
    as_strengths,
    check_problem,
    evaluator_of,
    lambda_max,
    solve_with,
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
) -> tuple[Solution, ...]:
    """Solve the group lasso (Eq. 8) for a sequence of lambdas, each started from those before.

    Parameters
    ----------
    problem : Problem
    lams : (L,) array, optional
        Values of lambda, best in decreasing order.
    count, ratio : int, float
        Without ``lams``: ``count`` values from lambda_max to ``ratio`` times lambda_max, evenly
        spaced on the log scale.
    weights : (p,) array, optional
        Multiply every lambda, for one lambda per group.
    tol : float
        Duality gap to reach, relative to the mean square of y.
    max_iterations : int
        Maximal number of Newton steps per lambda.
    progress : callable(i, gap), optional
        Called after the i-th solution with its relative gap.
    """
    check_problem(problem)
    shape = np.ones(problem.p) if weights is None else as_strengths(weights, problem.p)
    values = _grid(problem, shape, count, ratio) if lams is None else _given(lams)
    evaluator, found = evaluator_of(problem), list[Solution]()
    for i, value in enumerate(values):
        x = _extrapolated(found, 1 / values[: i + 1])
        solution = solve_with(
            problem, evaluator, value * shape, x, tol=tol, max_iterations=max_iterations
        )
        found.append(solution)
        if progress is not None:
            progress(i, solution.gap)
    return tuple(found)


def _grid(problem: Problem, shape: Array, count: int, ratio: float) -> Array:
    top = lambda_max(problem, shape)
    if top == 0.0:
        raise InputError(
            "lambda_max is 0: y does not correlate with any feature; expected data with signal"
        )
    if not (0 < ratio < 1 and count >= 1):
        raise InputError(f"found ratio {ratio}, count {count}; expected 0 < ratio < 1 <= count")
    return np.geomspace(top, ratio * top, count)


def _given(lams: ArrayLike) -> Array:
    values = np.atleast_1d(as_numbers(lams, "lams"))
    if values.ndim > 1 or not values.size:
        raise ShapeError(f"lams has shape {values.shape}; expected a sequence of numbers")
    return as_strengths(values, values.size)


def _extrapolated(found: list[Solution], inverse: Array) -> Array | None:
    """Weights x to start from at the last of the inverse lambdas (i + 1,), after i solutions.

    x = eta / lambda grows nearly linearly in 1/lambda: it is linear for orthogonal features, as
    long as no group enters or leaves.
    """
    if not found:
        return None
    here: Array = found[-1].eta / found[-1].lam
    if len(found) == 1 or inverse[-2] == inverse[-3]:
        return here
    before: Array = found[-2].eta / found[-2].lam
    reach = (inverse[-1] - inverse[-2]) / (inverse[-2] - inverse[-3])
    guess: Array = here + reach * (here - before)
    return np.where((before > 0) & (guess > 0), guess, here)


# The smallest noise level that is estimated, relative to the root mean square of y. Smaller
# residuals may be rounding errors.
EXACT_FIT = 1e-6
# Duality gap to aim for, relative to sigma^2: a fit at gap g has an error of at most sqrt(g), in
# root mean square.
AIM = 1e-2


def solve_square_root(
    problem: Problem,
    lam: ArrayLike,
    *,
    tol: float = 1e-10,
    start: ArrayLike | None = None,
    max_iterations: int = 1000,
    progress: Progress | None = None,
) -> tuple[Solution, float]:
    """Solve the group square-root lasso, without knowing the noise level.

    Parameters
    ----------
    problem : Problem
    lam : float or (p,) array
        lambda', which does not depend on the noise (`metakel.learn.rules.pivotal_lambda`).
    tol, max_iterations
        As in `solve`.
    start : (p,) array, optional
        Weights x = eta / lambda to start from.
    progress : callable(trial, gap), optional
        Called after every trial value of sigma.

    Returns
    -------
    solution : Solution
        The solution of Eq. 8 at ``solution.lam`` = 2 lambda' sigma.
    sigma : float
        Root mean square of its residuals. Because the lasso shrinks, it exceeds the noise level
        where the signal is strong; `metakel.learn.problem.estimate_noise_std` corrects that.

    Notes
    -----
    Without any noise in the observations, the fit gets ever closer as sigma decreases. The search
    stops at 1e-6 of the root mean square of y, where lambda is large enough for any smaller noise.
    Data with too few observations can be fitted exactly whatever the noise; this is an error.
    """
    check_problem(problem)
    strengths = as_strengths(lam, problem.p)
    evaluator = evaluator_of(problem)
    energy = sqrt(evaluator.energy)
    if energy == 0.0:
        raise InputError("all observations are 0; the noise level cannot be estimated from them")
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
            aim=AIM * exp(2 * log_sigma) / evaluator.energy,
            max_iterations=max_iterations,
        )
        eta = solution.eta
        return solution

    def excess(log_sigma: float) -> float:
        """log of the residuals' root mean square, minus log of the sigma assumed.

        Cached, because it depends slightly on where the solver starts, and the search for its root
        relies on signs that do not change.
        """
        if log_sigma not in known:
            solution = solution_at(log_sigma)
            level = max(sqrt(solution.loss), 1e-3 * exp(log_sigma))
            known[log_sigma] = log(level) - log_sigma
            if progress is not None:
                progress(len(known), solution.gap)
        return known[log_sigma]

    root, exact = _root(excess, log(energy))
    solution = solution_at(root)
    if exact:
        if _degrees_of_freedom(problem, solution) < 1:  # as many columns as observations
            raise InputError(
                "the square-root lasso fits the observations exactly, so the noise level cannot be "
                "estimated from them; use fewer base kernels, more observations per task or a "
                "larger lam, or give noise_std"
            )
        return solution, exp(root)
    return solution, sqrt(solution.loss)


def _root(excess: Callable[[float], float], top: float) -> tuple[float, bool]:
    """log(sigma) at which the excess is 0, and False; or its lower limit, and True.

    With sigma, lambda and the residual grow, but the residual more slowly. So the excess decreases
    through zero once, below ``top``, the level of the observations. The second case is that of an
    excess that is still negative at the smallest sigma (`EXACT_FIT`).
    """
    from scipy.optimize import brentq

    if excess(top) >= 0:
        return top, False  # lambda' is too large for any group to be selected
    right, left, bottom = top, top - 1.0, top + log(EXACT_FIT)
    while excess(left) < 0:
        if left == bottom:
            return bottom, True
        right, left = left, max(left - 1.0, bottom)
    return float(brentq(excess, left, right, xtol=1e-10, rtol=1e-12)), False


def _degrees_of_freedom(problem: Problem, solution: Solution) -> float:
    """Observations minus fitted columns (in kernel mode, effective dimensions)."""
    dims = [problem.dims[j] for j in solution.active]
    if None not in dims:
        return float(np.maximum(problem.sizes - sum(d or 0 for d in dims), 0).sum())
    weights = 2 / problem.total * solution.eta / solution.lam
    fitted = 0.0
    for batch in problem.batches:
        assert batch.K is not None
        values = np.linalg.eigvalsh(np.tensordot(weights, batch.K, 1))
        fitted += float((values / (1 + values)).sum())
    return problem.total - fitted
