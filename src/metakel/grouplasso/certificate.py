"""Certificates for many lambdas at once, from raw residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso.problem import Problem
from metakel.grouplasso.solve import Solution
from metakel.grouplasso.stack import dual_values
from metakel.grouplasso.together import Estimate

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Raw:
    """What the raw data say about L coefficients, as `evaluate.Residual` does about one."""

    scores: Array  # (L, p) squared norms of z^(j)
    misfit: Array  # (L, k) ||z^(j) - lam_j beta^(j)/||beta^(j)|| ||^2 of the groups worked on
    square: Array  # (L,) ||r||^2 / N
    inner: Array  # (L,) y'r / N
    residuals: list[Array]  # per batch (m, L, n)


def solutions(problem: Problem, estimate: Estimate, lam: Array, tol: float) -> list[Solution]:
    """What the estimates are worth at lam (L, p), from the raw data; uncertified ones included."""
    groups, dims = estimate.groups, np.diff(problem.starts)[estimate.groups]
    starts = np.cumsum(dims) - dims
    norms = np.sqrt(_grouped(estimate.beta.transpose(1, 0, 2), starts))
    pull = np.divide(lam[:, groups], norms, out=np.zeros_like(norms), where=norms > 0)
    raw = _raw(problem, estimate, pull.repeat(dims, axis=1), starts)
    eta = np.zeros_like(lam)
    eta[:, groups] = norms
    objective = raw.square + np.einsum("lj,lj->l", lam, eta)
    ratio = np.sqrt(raw.scores) / lam
    gap = objective - dual_values(raw.inner, raw.square, ratio.max(axis=1))
    gap /= problem.energy
    # B.6 on active groups, B.7 on the others.
    off = ratio - 1
    off[:, groups] = np.where(norms > 0, np.sqrt(raw.misfit) / lam[:, groups], off[:, groups])
    kkt = np.maximum(off.max(axis=1), 0.0)
    numbers = (array.tolist() for array in (objective, gap, kkt, estimate.iterations))
    return [
        Solution(
            beta=beta,
            eta=eta[i],
            objective=value,
            gap=distance,
            kkt=violation,
            iterations=steps,
            converged=distance <= tol,
            lam=lam[i],
            problem=problem,
            padded=tuple([r[:, i] for r in raw.residuals]),
        )
        for i, (beta, value, distance, violation, steps) in enumerate(
            zip(_full(problem, estimate), *numbers, strict=True)
        )
    ]


def _raw(problem: Problem, estimate: Estimate, pull: Array, starts: Index) -> Raw:
    count = len(estimate.beta)
    scores, misfit = np.zeros((count, problem.p)), np.zeros((count, starts.size))
    square, inner = np.zeros(count), np.zeros(count)
    residuals, stop = [], 0
    for batch in problem.batches:
        assert batch.Phi is not None
        rows = slice(stop, stop := stop + batch.tasks.size)
        beta = estimate.beta[:, rows].transpose(1, 0, 2)  # (m, L, c)
        r = np.matmul(beta, np.take(batch.Phi, estimate.columns, axis=1))  # (m, L, n)
        np.subtract(batch.y[:, None], r, out=r)
        z = np.matmul(r, batch.Phi.transpose(0, 2, 1))  # (m, L, d)
        z *= 2 / problem.total
        scores += _grouped(z, problem.starts[:-1])
        away = np.take(z, estimate.columns, axis=2)
        away -= beta * pull
        misfit += _grouped(away, starts)
        square += np.einsum("sln,sln->l", r, r) / problem.total
        inner += np.matmul(r, batch.y[:, :, None]).sum(axis=0)[:, 0] / problem.total
        residuals.append(r)
    return Raw(scores, misfit, square, inner, residuals)


def _full(problem: Problem, estimate: Estimate) -> Array:
    """(L, m, d) coefficients of all columns, tasks in their own order."""
    count, m, _ = estimate.beta.shape
    order = np.concatenate([batch.tasks for batch in problem.batches])
    full = np.zeros((count, m, int(problem.starts[-1])))
    full[:, order[:, None], estimate.columns] = estimate.beta
    return full


def _grouped(values: Array, starts: Index) -> Array:
    """(L, k) sums of squares of (m, L, c) values over tasks and the columns of each group."""
    sums: Array = np.einsum("slc,slc->lc", values, values)
    return sums if starts.size == sums.shape[1] else np.add.reduceat(sums, starts, axis=1)
