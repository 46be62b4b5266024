"""Many lambdas of one problem at once: a few nodes first, then all from between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso.evaluate import alone
from metakel.grouplasso.newton import NEGLIGIBLE
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.stack import Columns, newton_step, restricted_solve

Array = NDArray[np.float64]
Index = NDArray[np.intp]
FEWEST = 8  # lambdas; fewer are solved one after another
WIDEST = 64  # columns of the problem
LARGEST = 1 << 22  # numbers in its Gram matrices
FIRST, MOST = 6, 12  # columns worked on: at first, and at most
NODES = 14
STEPS = 8
ROUGH = 1e-3  # relative gap at the nodes, from which the others take one step or two
CARRY = 0.8  # share of lambdas left over above which the finished ones stay
STACK = 5000  # systems at a time, which bounds the memory


@dataclass(frozen=True)
class Estimate:
    """Coefficients at L lambdas, decreasing; what they are worth is for a certificate to say."""

    groups: Index  # (k,) the groups that were worked on
    columns: Index  # (c,) and their columns
    beta: Array  # (L, m, c) tasks in the order of the batches
    iterations: NDArray[np.intp]  # (L,)


@dataclass(frozen=True)
class Nodes:
    """Weights x (k, l) of some groups at a few lambdas, and their slopes in 1 / sigma."""

    groups: Index
    sigma: Array
    x: Array
    slopes: Array


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

    Returns estimates for the leading lambdas, or None where there are none.
    """
    everything = _gather(problem)
    if not np.isfinite(everything.h).all():
        return None
    target = 0.3 * tol * everything.energy
    coarse = np.unique(np.linspace(0, sigma.size - 1, min(NODES, sigma.size)).astype(np.intp))
    nodes = _nodes(everything, sigma[coarse], shape)
    if not nodes.sigma.size or not nodes.groups.size:
        return None
    groups, sigma = nodes.groups, sigma[: coarse[nodes.sigma.size - 1] + 1]
    columns, shape = everything.select(groups), shape[groups]
    x = _between(nodes, sigma)
    beta = np.empty((sigma.size, problem.m, len(columns.h)))
    taken = np.empty(sigma.size, np.intp)
    room = max(1, STACK // problem.m)
    memory = columns.memory(min(room, sigma.size))
    for first in range(0, sigma.size, room):
        part = slice(first, first + room)
        found, taken[part] = settle(
            columns, x[:, part], shape[:, None] * sigma[part], target, memory
        )
        beta[part] = found.transpose(1, 2, 0)
    return Estimate(groups, everything.places(groups), beta, taken)


def _gather(problem: Problem) -> Columns:
    scale = 2 / problem.total
    grams, h = [], []
    for batch in problem.batches:
        assert batch.Phi is not None
        grams.append(np.matmul(batch.Phi, batch.Phi.transpose(0, 2, 1)))
        h.append(np.matmul(batch.Phi, batch.y[:, :, None])[..., 0])
    G = np.ascontiguousarray(np.concatenate(grams).transpose(1, 2, 0))
    G *= scale
    return Columns(
        G, scale * np.ascontiguousarray(np.concatenate(h).T), problem.starts, problem.energy
    )


def _nodes(everything: Columns, sigma: Array, shape: Array) -> Nodes:
    """Newton's method at a few lambdas, roughly, from what each group would do alone.

    Begins with the groups that correlate most with y, lets in those whose scores exceed lambda and
    lets go those that have no weight anywhere.
    """
    lam = shape[:, None] * sigma
    energies = everything.summed(np.einsum("cm,cm->c", everything.h, everything.h))
    order = np.argsort(-energies / shape**2, kind="stable")
    few = np.cumsum(everything.dims[order]) <= max(FIRST, everything.dims[order[0]])
    groups = np.sort(order[few])
    x = alone(energies[groups, None], lam[groups], everything.curvature[groups, None])
    for step in range(STEPS + 1):
        columns, strength = everything.select(groups), lam[groups]
        point = columns.point(x, columns.memory(sigma.size))
        rough = point.gaps(strength) > ROUGH * everything.energy
        beyond = np.zeros(lam.shape, np.bool)
        if not rough.any():
            scores = everything.scores(point.beta, everything.places(groups))
            beyond = scores > lam * lam * (1 + 1e-6)
            beyond[groups] = False
        H = columns.hessian(point)
        new = np.flatnonzero(beyond.any(axis=1))
        full = everything.dims[groups].sum() + everything.dims[new].sum() > MOST
        if full or step == STEPS or not (rough.any() or new.size):
            break
        x = newton_step(H, x, point.scores, strength)
        wanted = x.any(axis=1) | (not x.any())
        x = np.concatenate([x[wanted], np.zeros((new.size, sigma.size))])
        groups = np.concatenate([groups[wanted], new])
        order = np.argsort(groups)
        groups, x = groups[order], x[order]
    wrong = rough | beyond.any(axis=0)
    reach = int(np.argmax(wrong)) if wrong.any() else sigma.size
    # From ||z^(j)|| = sigma shape_j follows dx/dmu = sigma^3 H^-1 shape^2 on active groups.
    pull = np.repeat(shape[groups, None] ** 2, sigma.size, axis=1)
    slopes = sigma**3 * restricted_solve(H, x > 0, pull, np.zeros_like(x))
    return Nodes(groups, sigma[:reach], x[:, :reach], slopes[:, :reach])


def settle(
    columns: Columns, x: Array, lam: Array, target: float, memory: Array
) -> tuple[Array, NDArray[np.intp]]:
    """Newton's method from x (k, L): beta (c, L, m) and the steps taken (L,).

    Lambdas drop out as their gaps within the working set reach the target.
    """
    x = np.where(x * columns.curvature[:, None] < NEGLIGIBLE, 0.0, x)
    beta = np.empty((len(columns.h), x.shape[1], columns.h.shape[1]))
    taken = np.zeros(x.shape[1], np.intp)
    left = np.arange(x.shape[1])
    for step in range(STEPS + 1):
        point = columns.point(np.take(x, left, axis=1), memory)
        beta[:, left] = point.beta
        bad = np.flatnonzero(point.gaps(np.take(lam, left, axis=1)) > target)
        if step == STEPS or not bad.size:
            break
        # To carry a few finished ones along costs less than copies of all others.
        if bad.size < CARRY * left.size:
            left, point = left[bad], point.at(bad)
        H, strength = columns.hessian(point), np.take(lam, left, axis=1)
        moved = newton_step(H, point.x, point.scores, strength)
        moved[moved * columns.curvature[:, None] < NEGLIGIBLE] = 0.0
        x[:, left] = moved
        taken[left] += 1
    return beta, taken


def _between(nodes: Nodes, sigma: Array) -> Array:
    """Weights (k, L) at sigma by cubics in mu = 1 / sigma between the nodes.

    A group that enters between two nodes is continued backwards from the second.
    """
    if nodes.sigma.size == 1:
        return np.repeat(nodes.x, sigma.size, axis=1)
    left = np.searchsorted(-nodes.sigma, -sigma, side="right") - 1
    left = np.clip(left, 0, nodes.sigma.size - 2)
    mu = 1 / nodes.sigma
    width = mu[left + 1] - mu[left]
    t = (1 / sigma - mu[left]) / width
    x0, x1 = nodes.x[:, left], nodes.x[:, left + 1]
    d0, d1 = width * nodes.slopes[:, left], width * nodes.slopes[:, left + 1]
    s = 1 - t
    cubic = s * s * (x0 * (1 + 2 * t) + d0 * t) + t * t * (x1 * (1 + 2 * s) - d1 * s)
    guess = np.where(x0 > 0, np.where(x1 > 0, cubic, x0 + t * d0), x1 - d1 * s)
    return np.maximum(guess, 0.0)
