"""Certificates for many lambdas at once, from raw residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso.path.batched_newton import dual_values
from metakel.grouplasso.path.batched_path import Estimate
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.solve import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]
CHUNK = 1 << 18  # numbers at a time, which bounds the memory
CACHE = 1 << 15  # residuals at a time, which stay near the processor


@dataclass(frozen=True)
class Raw:
    """What the raw data say about L coefficients, as `evaluate.Residual` does about one."""

    scores: Array  # (p, L) squared norms of z^(j)
    misfit: Array  # (k, L) ||z^(j) - lam_j beta^(j)/||beta^(j)|| ||^2 of the groups worked on
    square: Array  # (L,) ||r||^2 / N
    inner: Array  # (L,) y'r / N


@dataclass(frozen=True)
class Certified:
    """Estimates at lam (L, p), and what the raw data say of them; uncertified ones included."""

    problem: Problem
    estimate: Estimate
    lam: Array
    eta: Array  # (L, p)
    objective: Array  # (L,), as the others
    gap: Array
    kkt: Array
    converged: NDArray[np.bool]

    @property
    def iterations(self) -> Index:
        """(L,) Newton steps."""
        return self.estimate.iterations

    def solution(self, i: int) -> Solution:
        """The estimate at the i-th lambda."""
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
    """What the estimates are worth at lam (L, p), from the raw data."""
    groups, dims = estimate.groups, np.diff(problem.starts)[estimate.groups]
    starts = np.cumsum(dims) - dims
    norms = np.sqrt(_grouped(np.einsum("csl,csl->cl", estimate.beta, estimate.beta), starts))
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
    L = estimate.beta.shape[2]
    scores, misfit = np.zeros((problem.p, L)), np.zeros((starts.size, L))
    inner, explained = np.zeros((2, L))
    scale, first = 2 / problem.total, 0
    for batch in problem.batches:
        assert batch.Phi is not None
        room = max(1, CHUNK // (L * batch.Phi.shape[1]))
        for start in range(0, len(batch.y), room):
            Phi, y = batch.Phi[start : start + room], batch.y[start : start + room]
            beta = estimate.beta[:, first : first + len(y)].swapaxes(0, 1)
            first += len(y)
            z, observed = _correlations(Phi, y, beta, estimate.columns)
            inner += observed
            scores += _grouped(np.einsum("sdl,sdl->dl", z, z), problem.starts[:-1])
            own = np.take(z, estimate.columns, axis=1)
            explained += np.einsum("sdl,sdl->l", own, beta)
            own -= beta * (pull / scale)
            misfit += _grouped(np.einsum("sdl,sdl->dl", own, own), starts)
    square = np.maximum(inner - explained, 0.0)  # r'r = r'(y - Phi' beta)
    return Raw(scale**2 * scores, scale**2 * misfit, square / problem.total, inner / problem.total)


def _correlations(Phi: Array, y: Array, beta: Array, columns: Index) -> tuple[Array, Array]:
    """Phi r (m, d, L) and y'r (L,), summed over tasks, for r = y - Phi' beta and beta (m, c, L)."""
    (m, d, n), (_, c, L) = Phi.shape, beta.shape
    few = min(m, max(1, CACHE // (L * n)))
    z, weights, observed, r = _cut(L, (m, d), (m, c + 1), (m, 1), (few, n))
    np.negative(beta, out=weights[:, :c])
    weights[:, c] = 1.0
    # With y as a further column one product gives the residuals.
    fit = np.concatenate([np.take(Phi, columns, axis=1), y[:, None]], axis=1).swapaxes(1, 2)
    for start in range(0, m, few):
        some = slice(start, start + few)
        residuals = np.matmul(fit[some], weights[some], out=r[: len(y[some])])
        np.matmul(Phi[some], residuals, out=z[some])
        np.matmul(y[some, None], residuals, out=observed[some])
    return z, observed.sum(axis=0)[0]


def _cut(L: int, *shapes: tuple[int, int]) -> list[Array]:
    """Arrays (*shape, L) in one piece of memory: fresh pages cost more than the arithmetic."""
    memory = np.empty((sum(a * b for a, b in shapes), L))
    arrays, stop = [], 0
    for a, b in shapes:
        arrays.append(memory[stop : (stop := stop + a * b)].reshape(a, b, L))
    return arrays


def _grouped(squares: Array, starts: Index) -> Array:
    """Sums (k, L) over the columns of each group, for (c, L) squares."""
    return squares if starts.size == len(squares) else np.add.reduceat(squares, starts, axis=0)
