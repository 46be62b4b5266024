"""Solutions along a sequence of lambdas: at once where that is faster, else one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.grouplasso.batch import Index
from metakel.grouplasso.evaluator import Evaluator
from metakel.grouplasso.path.batched_path import solve_together
from metakel.grouplasso.path.certificate import Certified
from metakel.grouplasso.problem import Problem, check_problem, lambda_max
from metakel.grouplasso.solve import (
    Progress,
    Solution,
    as_numbers,
    as_strengths,
    check_tolerance,
    evaluator_of,
    solve_with,
)


class Path(Sequence[Solution]):
    """A sequence of one `Solution` per lambda, each created on access, and arrays of their values.

    Attributes
    ----------
    lam, eta : (L, p) arrays
    objective, gap, kkt : (L,) arrays
    iterations : (L,) array of int
    converged : (L,) array of bool
    """

    def __init__(self, lam: Array, common: Certified | None, rows: Index) -> None:
        """Solutions at lam (L, p): row ``rows[i]`` of ``common``, or -1 for one to `put` later."""
        self.lam, self.converged = lam, rows >= 0
        self._common, self._rows = common, rows
        self._own: dict[int, Solution] = {}
        if common is None:
            self.eta, self.iterations = np.zeros_like(lam), np.zeros(len(lam), np.intp)
            self.objective, self.gap, self.kkt = np.full((3, len(lam)), np.nan)
        else:
            self.eta, self.iterations = common.eta[rows], common.iterations[rows]
            self.objective, self.gap = common.objective[rows], common.gap[rows]
            self.kkt = common.kkt[rows]

    def put(self, i: int, solution: Solution) -> None:
        """Set the i-th solution."""
        self._own[i] = solution
        self.eta[i], self.iterations[i] = solution.eta, solution.iterations
        self.objective[i], self.gap[i], self.kkt[i] = solution.objective, solution.gap, solution.kkt
        self.converged[i] = solution.converged

    def __len__(self) -> int:
        return len(self.lam)

    @overload
    def __getitem__(self, i: int) -> Solution: ...

    @overload
    def __getitem__(self, i: slice) -> list[Solution]: ...

    def __getitem__(self, i: int | slice) -> Solution | list[Solution]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        place = range(len(self))[i]
        if place not in self._own:
            assert self._common is not None
            self._own[place] = self._common.solution(int(self._rows[place]))
        return self._own[place]

    def __repr__(self) -> str:
        active = (self.eta > 0).sum(axis=1)
        return (
            f"Path({len(self)} lambdas, {active.min()} to {active.max()} of {self.eta.shape[1]} "
            f"groups, worst gap {self.gap.max():.1e})"
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
) -> Path:
    """Solve the group lasso (Eq. 8) for a sequence of lambdas.

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

    Notes
    -----
    Problems with few columns are solved for all lambdas at once. Solutions that do not reach
    ``tol``, and all other problems, are solved one by one, each started from the one before.
    """
    check_problem(problem)
    shape = np.ones(problem.p) if weights is None else as_strengths(weights, problem.p)
    values = _grid(problem, shape, count, ratio) if lams is None else _given(lams)
    check_tolerance(tol)
    common, rows = solve_together(problem, values, shape, tol, max_iterations)
    found = Path(values[:, None] * shape, common, rows)
    evaluator: Evaluator | None = None
    for i in range(len(found)) if progress or not found.converged.all() else ():
        if not found.converged[i]:
            evaluator = evaluator or evaluator_of(problem)
            x = _extrapolated(found, i, values) if i else None
            solution = solve_with(
                problem, evaluator, found.lam[i], x, tol=tol, max_iterations=max_iterations
            )
            found.put(i, solution)
        if progress is not None:
            progress(i, float(found.gap[i]))
    return found


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


def _extrapolated(found: Path, i: int, values: Array) -> Array:
    """Start for the i-th value: x grows nearly linearly in 1/lambda.

    It is linear for orthogonal features, as long as no group enters or leaves.
    """
    here: Array = found.eta[i - 1] / found.lam[i - 1]
    if i == 1 or values[i - 1] == values[i - 2]:
        return here
    before = found.eta[i - 2] / found.lam[i - 2]
    next_step, last_step = 1 / values[i] - 1 / values[i - 1], 1 / values[i - 1] - 1 / values[i - 2]
    guess: Array = here + next_step / last_step * (here - before)
    return np.where((before > 0) & (guess > 0), guess, here)
