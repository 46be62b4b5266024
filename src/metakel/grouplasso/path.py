"""path(problem, lams) -> one Solution per lambda: together where that is faster, else in turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, ShapeError
from metakel.grouplasso import together
from metakel.grouplasso.certificate import solutions
from metakel.grouplasso.evaluate import Evaluator
from metakel.grouplasso.problem import Problem, lambda_max
from metakel.grouplasso.solve import (
    Solution,
    as_strengths,
    check_tolerance,
    evaluator_of,
    solve_with,
)
from metakel.grouplasso.working_set import Progress

Array = NDArray[np.float64]


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
    """Solutions from lambda_max down.

    ``lams`` are used as given (best in decreasing order); without them, ``count`` values from
    lambda_max to ``ratio`` times it, evenly on the log scale. ``weights`` (p,) multiply each of
    them, for one lambda per group.

    Where columns are few, all lambdas are solved together; those whose answer does not reach
    ``tol``, and all other problems, are solved in turn, each started from the one before.
    """
    shape = np.ones(problem.p) if weights is None else as_strengths(weights, problem.p)
    values = _grid(problem, shape, count, ratio) if lams is None else _given(lams)
    check_tolerance(tol)
    known = _together(problem, values, shape, tol, max_iterations)
    evaluator: Evaluator | None = None
    out: list[Solution] = []
    for i, value in enumerate(values):
        solution = known.get(i)
        if solution is None:
            evaluator = evaluator or evaluator_of(problem)
            solution = solve_with(
                problem,
                evaluator,
                as_strengths(value * shape, problem.p),
                _ahead(out, values) if out else None,
                tol=tol,
                max_iterations=max_iterations,
            )
        out.append(solution)
        if progress is not None:
            progress(i, solution.gap)
    return out


def _grid(problem: Problem, shape: Array, count: int, ratio: float) -> Array:
    top = lambda_max(problem, shape)
    if top == 0.0:
        raise InputError("lambda_max is 0: y does not correlate with any feature; no path")
    if not (0 < ratio < 1 and count >= 1):
        raise InputError(f"found ratio {ratio}, count {count}; expected 0 < ratio < 1 <= count")
    return np.geomspace(top, ratio * top, count)


def _given(lams: ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(lams, np.float64))
    if values.ndim > 1 or not values.size:
        raise ShapeError(f"lams has shape {values.shape}; expected a sequence of numbers")
    return as_strengths(values, values.size)


def _together(
    problem: Problem, values: Array, shape: Array, tol: float, max_iterations: int
) -> dict[int, Solution]:
    """Certified solutions by their place in ``values``; repeated values share one."""
    sigma, places = np.unique(-values, return_inverse=True)
    if not together.suits(problem, sigma.size) or max_iterations < together.STEPS:
        return {}
    try:
        # Whatever rounding does to a hard problem, the certificate tells.
        with np.errstate(all="ignore"):
            estimate = together.estimate(problem, -sigma, shape, tol=tol)
    except np.linalg.LinAlgError:
        return {}
    if estimate is None:
        return {}
    reached = -sigma[: len(estimate.beta), None]
    found = solutions(problem, estimate, reached * shape, tol)
    return {i: found[k] for i, k in enumerate(places) if k < len(found) and found[k].converged}


def _ahead(found: list[Solution], values: Array) -> Array:
    """Where to start at the next value: x grows nearly linearly in 1/lambda.

    Exactly so for orthogonal features, as long as no group enters or leaves.
    """
    i = len(found) - 1
    here = found[i].eta / found[i].lam
    if i == 0 or values[i] == values[i - 1]:
        return here
    before = found[i - 1].eta / found[i - 1].lam
    ahead, step = 1 / values[i + 1] - 1 / values[i], 1 / values[i] - 1 / values[i - 1]
    guess = here + ahead / step * (here - before)
    return np.where((before > 0) & (guess > 0), guess, here)
