"""Duality gaps of solutions at many lambdas, computed from raw residuals in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso.batch import Index, group_starts, group_sums
from metakel.grouplasso.path.batched_newton import dual_values
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.solve import Solution

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
class Raw:
    """The quantities of L duality gaps from the raw data, as `Residual` has them for one."""

    scores: Array  # (p, L) squared norms of z^(j)
    misfit: Array  # (k, L) ||z^(j) - lam_j beta^(j)/||beta^(j)|| ||^2 of the estimate's groups
    square: Array  # (L,) ||r||^2 / N
    inner: Array  # (L,) y'r / N


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
    raw = _raw(problem, estimate, pull.repeat(dims, axis=0), starts)
    eta = np.zeros_like(lam)
    eta[:, groups] = norms.T
    objective = raw.square + np.einsum("lj,lj->l", lam, eta)
    ratio = np.sqrt(raw.scores) / lam.T
    gap = objective - dual_values(raw.inner, raw.square, ratio.max(axis=0))
    gap /= problem.energy
    # B.6 on active groups, B.7 on the others.
    off = ratio - 1
    off[groups] = np.where(norms > 0, np.sqrt(raw.misfit) / strengths, off[groups])
    kkt = np.maximum(off.max(axis=0), 0.0)
    return Certified(problem, estimate, lam, eta, objective, gap, kkt, gap <= tol)


def _raw(problem: Problem, estimate: Estimate, pull: Array, starts: Index) -> Raw:
    """``pull`` (c, L) is lam_j / ||beta^(j)||, where active; ``starts`` are those of the groups."""
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
    return Raw(scale**2 * scores, scale**2 * misfit, square / problem.total, inner / problem.total)


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
