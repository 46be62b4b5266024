"""Solutions along a sequence of lambdas, at once where that is faster, and their duality gaps.

Between two entries of groups the coefficients are analytic in lambda. `series` guesses the order in
which groups enter and sums the power series between entries, `batched_newton` improves what this
does not solve accurately enough, and duality gaps from the raw data verify all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.grouplasso.newton import Evaluator
from metakel.grouplasso.path.batched_newton import MAX_STEPS, ActiveColumns, dual_values, minimise
from metakel.grouplasso.path.series import expand, find_stages, sum_up
from metakel.grouplasso.problem import Index, Problem, columns_of, group_starts, group_sums
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

# Where solving at once is worthwhile: the fewest lambdas, and the most columns and numbers in the
# Gram matrices.
MIN_LAMBDAS, MAX_COLUMNS, MAX_NUMBERS = 8, 64, 1 << 22
MAX_ACTIVE = 12  # columns that may be active
# Error estimate of a series: accepted up to ACCEPT tol, used as a start up to USABLE (both relative
# to the energy).
ACCEPT, USABLE = 0.2, 0.1


def solve_together(
    problem: Problem, values: Array, shape: Array, tol: float, max_iterations: int
) -> tuple[Certified | None, Index]:
    """Solutions at lam_j = value shape_j, and for each of the values (L,) its row among them.

    The row is -1 where no solution reached the tolerance.
    """
    sigma, rows = -values, np.arange(values.size)
    if not (sigma[1:] > sigma[:-1]).all():
        sigma, rows = np.unique(sigma, return_inverse=True)
    none = np.full(values.size, -1)
    if not is_worthwhile(problem, sigma.size) or max_iterations < MAX_STEPS:
        return None, none
    try:
        # Rounding may spoil a hard problem; the certificate finds out.
        with np.errstate(all="ignore"):
            found = estimate(problem, -sigma, shape, tol=tol)
    except np.linalg.LinAlgError:
        return None, none
    if found is None:
        return None, none
    reached = -sigma[: found.beta.shape[2], None]
    common = certify(problem, found, reached * shape, tol)
    good = np.zeros(sigma.size, np.bool)
    good[: len(reached)] = common.converged
    return common, np.where(good[rows], rows, -1)


def is_worthwhile(problem: Problem, count: int) -> bool:
    """Whether ``count`` lambdas are faster at once: only if the problem has few columns."""
    d = problem.d
    return (
        d is not None
        and count >= MIN_LAMBDAS
        and d <= MAX_COLUMNS
        and d * d * problem.m <= MAX_NUMBERS
        and problem.energy > 0
    )


def estimate(problem: Problem, sigma: Array, shape: Array, *, tol: float) -> Estimate | None:
    """Solve at lam_j = sigma shape_j for decreasing sigma (L,), while few columns are active.

    Uses power series, and Newton's method where these converge too slowly. Returns estimates for
    the leading lambdas, or None if there are none.
    """
    everything = all_columns(problem)
    if not np.isfinite(everything.h).all():
        return None
    stages = find_stages(everything, shape, sigma[-1], MAX_ACTIVE)
    sigma = sigma[sigma >= stages.floor]
    if not stages.groups or not sigma.size:
        return None
    groups = np.array(stages.groups)
    columns, shape = everything.select(groups), shape[groups]
    sums = sum_up(expand(stages, columns.dims, shape), sigma, shape, stages.top)
    steps = np.zeros(sigma.size, np.intp)
    rest = np.flatnonzero(~((sums.error <= ACCEPT * tol * everything.energy) & sums.clear))
    if rest.size:
        lam = shape[:, None] * sigma[rest]
        x = sums.norms[rest].T / lam
        useless = ~(sums.error[rest] <= USABLE * everything.energy)
        if useless.any():
            x[:, useless] = columns.independent_weights(lam[:, useless])
        beta, steps[rest] = minimise(columns, x, lam, 0.3 * tol * everything.energy)
        sums.beta[:, :, rest] = beta.swapaxes(1, 2)
    return Estimate(groups, columns_of(groups, everything.starts), sums.beta, steps)


def all_columns(problem: Problem) -> ActiveColumns:
    """Gram matrices and correlations of all columns, tasks in the order of the batches."""
    d, scale, first = int(problem.starts[-1]), 2 / problem.total, 0
    G, h = np.empty((d, d, problem.m)), np.empty((d, problem.m))
    for batch in problem.batches:
        assert batch.Phi is not None
        some = slice(first, first := first + len(batch.y))
        gram = np.matmul(batch.Phi, batch.Phi.transpose(0, 2, 1))
        np.multiply(gram.transpose(1, 2, 0), scale, out=G[:, :, some])
        h[:, some] = scale * np.matmul(batch.Phi, batch.y[:, :, None])[..., 0].T
    return ActiveColumns(G, h, problem.starts, problem.energy)


CHUNK = 1 << 18  # numbers at a time, which bounds the memory
CACHE = 1 << 15  # residuals at a time, which fit into the cache


@dataclass(frozen=True)
class Estimate:
    """Coefficients at L decreasing lambdas, of unknown accuracy before `certify`."""

    groups: Index  # (k,) the groups that may be active
    columns: Index  # (c,) their columns
    beta: Array  # (c, m, L) tasks in the order of the batches
    iterations: Index  # (L,) Newton steps


@dataclass(frozen=True)
class Certified:
    """Estimates at lam (L, p) with their duality gaps; those above the tolerance included."""

    problem: Problem
    estimate: Estimate
    lam: Array
    eta: Array  # (L, p)
    objective: Array  # (L,), as all below
    gap: Array
    kkt: Array
    converged: NDArray[np.bool]

    @property
    def iterations(self) -> Index:
        """(L,) numbers of Newton steps."""
        return self.estimate.iterations

    def solution(self, i: int) -> Solution:
        """The solution at the i-th lambda."""
        order = np.concatenate([batch.tasks for batch in self.problem.batches])
        beta = np.zeros((self.problem.m, int(self.problem.starts[-1])))
        beta[order[:, None], self.estimate.columns] = self.estimate.beta[:, :, i].T
        return Solution(
            beta=beta,
            eta=self.eta[i],
            objective=float(self.objective[i]),
            gap=float(self.gap[i]),
            kkt=float(self.kkt[i]),
            iterations=int(self.iterations[i]),
            converged=bool(self.converged[i]),
            lam=self.lam[i],
            problem=self.problem,
        )


def certify(problem: Problem, estimate: Estimate, lam: Array, tol: float) -> Certified:
    """Duality gaps and optimality violations of the estimates at lam (L, p)."""
    groups, dims = estimate.groups, np.diff(problem.starts)[estimate.groups]
    starts = group_starts(dims)
    norms = np.sqrt(group_sums(np.einsum("csl,csl->cl", estimate.beta, estimate.beta), starts))
    strengths = lam[:, groups].T
    pull = np.divide(strengths, norms, out=np.zeros_like(norms), where=norms > 0)
    scores, misfit, square, inner = _raw(problem, estimate, pull.repeat(dims, axis=0), starts)
    eta = np.zeros_like(lam)
    eta[:, groups] = norms.T
    objective = square + np.einsum("lj,lj->l", lam, eta)
    ratio = np.sqrt(scores) / lam.T
    gap = objective - dual_values(inner, square, ratio.max(axis=0))
    gap /= problem.energy
    # B.6 on active groups, B.7 on the others.
    off = ratio - 1
    off[groups] = np.where(norms > 0, np.sqrt(misfit) / strengths, off[groups])
    kkt = np.maximum(off.max(axis=0), 0.0)
    return Certified(problem, estimate, lam, eta, objective, gap, kkt, gap <= tol)


def _raw(
    problem: Problem, estimate: Estimate, pull: Array, starts: Index
) -> tuple[Array, Array, Array, Array]:
    """The quantities of L duality gaps from the raw data, as `Residual` has them for one.

    Squared norms (p, L) of z^(j), those (k, L) of z^(j) - lam_j beta^(j)/||beta^(j)|| of the
    estimate's groups, ||r||^2 / N and y'r / N (L,). ``pull`` (c, L) is lam_j / ||beta^(j)||, where
    active; ``starts`` are those of the groups.
    """
    L = estimate.beta.shape[2]
    scores, misfit = np.zeros((problem.p, L)), np.zeros((estimate.groups.size, L))
    inner, explained = np.zeros((2, L))
    scale, first = 2 / problem.total, 0
    for batch in problem.batches:
        assert batch.Phi is not None
        count = max(1, CHUNK // (L * batch.Phi.shape[1]))
        for start in range(0, len(batch.y), count):
            Phi, y = batch.Phi[start : start + count], batch.y[start : start + count]
            beta = estimate.beta[:, first : first + len(y)].swapaxes(0, 1)
            first += len(y)
            z, observed = _correlations(Phi, y, beta, estimate.columns)
            inner += observed
            scores += group_sums(np.einsum("sdl,sdl->dl", z, z), problem.starts)
            own = np.take(z, estimate.columns, axis=1)
            explained += np.einsum("sdl,sdl->l", own, beta)
            own -= beta * (pull / scale)
            misfit += group_sums(np.einsum("sdl,sdl->dl", own, own), starts)
    square = np.maximum(inner - explained, 0.0)  # r'r = r'(y - Phi' beta)
    return scale**2 * scores, scale**2 * misfit, square / problem.total, inner / problem.total


def _correlations(Phi: Array, y: Array, beta: Array, columns: Index) -> tuple[Array, Array]:
    """Phi r (m, d, L) and y'r (L,), summed over tasks, where r = y - Phi' beta, beta (m, c, L)."""
    (m, d, n), (_, c, L) = Phi.shape, beta.shape
    few = min(m, max(1, CACHE // (L * n)))
    z, weights, observed, r = _allocate(L, (m, d), (m, c + 1), (m, 1), (few, n))
    np.negative(beta, out=weights[:, :c])
    weights[:, c] = 1.0
    # With y as a further column, a single product gives the residuals.
    fit = np.concatenate([np.take(Phi, columns, axis=1), y[:, None]], axis=1).swapaxes(1, 2)
    for start in range(0, m, few):
        some = slice(start, start + few)
        residuals = np.matmul(fit[some], weights[some], out=r[: len(y[some])])
        np.matmul(Phi[some], residuals, out=z[some])
        np.matmul(y[some, None], residuals, out=observed[some])
    return z, observed.sum(axis=0)[0]


def _allocate(L: int, *shapes: tuple[int, int]) -> list[Array]:
    """Arrays (*shape, L) in one block of memory; separate allocations would dominate the cost."""
    memory = np.empty((sum(a * b for a, b in shapes), L))
    arrays, stop = [], 0
    for a, b in shapes:
        arrays.append(memory[stop : (stop := stop + a * b)].reshape(a, b, L))
    return arrays


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
