"""Many lambdas of one problem at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso.newton import NEGLIGIBLE
from metakel.grouplasso.path.batched_newton import Columns, newton_step
from metakel.grouplasso.path.entry_order import enter
from metakel.grouplasso.path.series import expand, sum_up
from metakel.grouplasso.problem import Problem

Array = NDArray[np.float64]
Index = NDArray[np.intp]
FEWEST = 8  # lambdas; fewer are solved one after another
WIDEST = 64  # columns of the problem
LARGEST = 1 << 22  # numbers in its Gram matrices
MOST = 12  # columns worked on
SURE, WILD = 0.2, 0.1  # errors of a series: over tol, good enough; over the energy, no start
STEPS = 8
CARRY = 0.5  # share of lambdas left over above which the finished ones stay
STACK = 5000  # systems at a time, which bounds the memory


@dataclass(frozen=True)
class Estimate:
    """Coefficients at L lambdas, decreasing; what they are worth is for a certificate to say."""

    groups: Index  # (k,) the groups that were worked on
    columns: Index  # (c,) and their columns
    beta: Array  # (c, m, L) tasks in the order of the batches
    iterations: NDArray[np.intp]  # (L,)


def suits(problem: Problem, count: int) -> bool:
    """Whether so many lambdas are worth solving together: columns are few, calls would dominate."""
    d = problem.d
    return (
        d is not None
        and count >= FEWEST
        and d <= WIDEST
        and d * d * problem.m <= LARGEST
        and problem.energy > 0
    )


def estimate(problem: Problem, sigma: Array, shape: Array, *, tol: float) -> Estimate | None:
    """Solve at lam_j = sigma shape_j for sigma (L,) decreasing, as far down as columns stay few.

    By power series, and Newton's method where they converge too slowly. Returns estimates for the
    leading lambdas, or None where there are none.
    """
    everything = _gather(problem)
    if not np.isfinite(everything.h).all():
        return None
    stages = enter(everything, shape, sigma[-1], MOST)
    sigma = sigma[sigma >= stages.floor]
    if not stages.groups or not sigma.size:
        return None
    groups = np.array(stages.groups)
    columns, shape = everything.select(groups), shape[groups]
    sums = sum_up(expand(stages, columns.dims, shape), sigma, shape, stages.top)
    taken = np.zeros(sigma.size, np.intp)
    rest = np.flatnonzero(~((sums.error <= SURE * tol * everything.energy) & sums.clear))
    if rest.size:
        lam = shape[:, None] * sigma[rest]
        x = sums.norms[rest].T / lam
        wild = ~(sums.error[rest] <= WILD * everything.energy)
        if wild.any():
            x[:, wild] = columns.alone(lam[:, wild])
        beta, taken[rest] = settle(columns, x, lam, 0.3 * tol * everything.energy)
        sums.beta[:, :, rest] = beta.swapaxes(1, 2)
    return Estimate(groups, everything.places(groups), sums.beta, taken)


def _gather(problem: Problem) -> Columns:
    d, scale, first = int(problem.starts[-1]), 2 / problem.total, 0
    G, h = np.empty((d, d, problem.m)), np.empty((d, problem.m))
    for batch in problem.batches:
        assert batch.Phi is not None
        some = slice(first, first := first + len(batch.y))
        gram = np.matmul(batch.Phi, batch.Phi.transpose(0, 2, 1))
        np.multiply(gram.transpose(1, 2, 0), scale, out=G[:, :, some])
        h[:, some] = scale * np.matmul(batch.Phi, batch.y[:, :, None])[..., 0].T
    return Columns(G, h, problem.starts, problem.energy)


def settle(columns: Columns, x: Array, lam: Array, target: float) -> tuple[Array, NDArray[np.intp]]:
    """Newton's method from x (k, L): beta (c, L, m) and the steps taken (L,).

    Lambdas drop out as their gaps within the working set reach the target.
    """
    c, m = columns.h.shape
    room = max(1, STACK // m)
    if x.shape[1] <= room:
        return _settle(columns, x, lam, target, columns.memory(x.shape[1]))
    beta, taken = np.empty((c, x.shape[1], m)), np.empty(x.shape[1], np.intp)
    memory = columns.memory(room)
    for first in range(0, x.shape[1], room):
        part = slice(first, first + room)
        beta[:, part], taken[part] = _settle(columns, x[:, part], lam[:, part], target, memory)
    return beta, taken


def _settle(
    columns: Columns, x: Array, lam: Array, target: float, memory: Array
) -> tuple[Array, NDArray[np.intp]]:
    curvature, short = columns.curvature[:, None], sqrt(10 * target / columns.energy)
    x = np.where(x * curvature < NEGLIGIBLE, 0.0, x)
    point = columns.point(x, memory)
    beta, taken, left = point.beta, np.zeros(x.shape[1], np.intp), np.arange(x.shape[1])
    for step in range(STEPS):
        # All come for at least one step.
        bad = np.flatnonzero(point.gaps(lam) > target) if step else left
        if not bad.size:
            break
        # To carry a few finished ones along costs less than copies of all others.
        if bad.size < CARRY * left.size:
            left, point, lam = left[bad], point.at(bad), np.take(lam, bad, axis=1)
        x = newton_step(columns.hessian(point), point.x, point.scores, lam)
        x[x * curvature < NEGLIGIBLE] = 0.0
        taken[left] += 1
        moved = x - point.x
        if (np.abs(moved) * curvature < short * (1 + x * curvature)).all():
            beta[:, left] = point.nearby(columns.spread(x), columns.spread(moved))
            break
        point = columns.point(x, memory)
        beta[:, left] = point.beta
    return beta, taken
