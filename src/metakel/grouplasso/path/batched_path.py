"""Solve one problem for many lambdas at once.

Between two entries of groups the coefficients are analytic in lambda. `entry_order` guesses the
order in which groups enter, `series` sums the power series between entries, `batched_newton`
improves what these do not solve accurately enough, and `certificate` verifies all of it.
"""

from __future__ import annotations

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.batch import Index, columns_of
from metakel.grouplasso.path.batched_newton import MAX_STEPS, ActiveColumns, minimise
from metakel.grouplasso.path.certificate import Certified, Estimate, certify
from metakel.grouplasso.path.entry_order import find_stages
from metakel.grouplasso.path.series import expand, sum_up
from metakel.grouplasso.problem import Problem

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
