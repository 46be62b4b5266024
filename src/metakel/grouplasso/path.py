"""Solutions of the group lasso (Eq. 8) along a sequence of lambdas, each with its duality gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.grouplasso.problem import Index, Problem
from metakel.grouplasso.solve import (
    Progress,
    Solution,
    as_numbers,
    as_strengths,
    check_problem,
    check_tolerance,
    evaluator_of,
    lambda_max,
    solve_with,
)


@dataclass(frozen=True, eq=False)
class Path(Sequence[Solution]):
    """A sequence of one `Solution` per lambda, and their values as arrays."""

    solutions: tuple[Solution, ...]

    @property
    def lam(self) -> Array:
        """(L, p) lambdas."""
        return np.array([solution.lam for solution in self])

    @property
    def eta(self) -> Array:
        """(L, p) norms of the groups."""
        return np.array([solution.eta for solution in self])

    @property
    def objective(self) -> Array:
        """(L,) values of Eq. 8."""
        return np.array([solution.objective for solution in self])

    @property
    def gap(self) -> Array:
        """(L,) relative duality gaps."""
        return np.array([solution.gap for solution in self])

    @property
    def kkt(self) -> Array:
        """(L,) largest violations of the optimality conditions."""
        return np.array([solution.kkt for solution in self])

    @property
    def iterations(self) -> Index:
        """(L,) numbers of Newton steps."""
        return np.array([solution.iterations for solution in self], np.intp)

    @property
    def converged(self) -> NDArray[np.bool]:
        """(L,) whether the gap reached the tolerance."""
        return np.array([solution.converged for solution in self], np.bool)

    def __len__(self) -> int:
        return len(self.solutions)

    @overload
    def __getitem__(self, i: int) -> Solution: ...

    @overload
    def __getitem__(self, i: slice) -> Path: ...

    def __getitem__(self, i: int | slice) -> Solution | Path:
        return Path(self.solutions[i]) if isinstance(i, slice) else self.solutions[i]

    def __repr__(self) -> str:
        active = [solution.active.size for solution in self]
        return (
            f"Path({len(self)} lambdas, {min(active)} to {max(active)} of {self[0].eta.size} "
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
    check_tolerance(tol)
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
    return Path(tuple(found))


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
