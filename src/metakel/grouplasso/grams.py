"""The sums of `evaluator` for tasks given by Gram matrices: one n x n factorisation per task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso import spd
from metakel.grouplasso.batch import Index, check_eigenvalues
from metakel.grouplasso.evaluator import Residual, independent_weights
from metakel.grouplasso.problem import Problem, group_energies

# Tasks are processed in chunks. The Gram matrices of one group in a chunk hold about this many
# numbers, so that they are still in the cache when they are multiplied with the residual.
CACHE_NUMBERS = 40_000
OVERLAP = 0.3  # kernels overlap, so each needs less weight than it would without the others


class GramEvaluator:
    """Evaluator for tasks given by one Gram matrix per group, of any rank."""

    rough = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.p = problem.p
        self.energy = problem.energy
        self.scale = 2 / problem.total
        self.work: Index = np.empty(0, np.intp)
        self.curvature = np.empty(0)
        self._scores_at_zero = np.empty(0)
        self.at(self.work, np.empty(0))

    def extend(self, groups: Index) -> None:
        self.work = np.concatenate([self.work, groups])
        traces, scores = np.zeros(groups.size), np.zeros(groups.size)
        for K, y in self._chunks():
            for i, j in enumerate(groups):
                traces[i] += np.einsum("snn->", K[j])
                scores[i] += np.vdot(np.matmul(K[j], y[:, :, None])[..., 0], y)
        self.curvature = np.concatenate([self.curvature, self.scale / self.problem.m * traces])
        self._scores_at_zero = np.concatenate([self._scores_at_zero, self.scale**2 * scores])

    def start(self, lam: Array) -> Array:
        return OVERLAP * independent_weights(self._scores_at_zero, lam, self.curvature)

    def _chunks(self) -> Iterator[tuple[Array, Array]]:
        """Views of (p, k, n, n) Gram matrices and (k, n) observations, k tasks at a time."""
        for batch in self.problem.batches:
            assert batch.K is not None
            length = max(1, CACHE_NUMBERS // batch.n**2)
            for s in range(0, len(batch.y), length):
                yield batch.K[:, s : s + length], batch.y[s : s + length]

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        from scipy.linalg.blas import daxpy

        self.active, self._x = active, x
        idle = np.setdiff1d(np.arange(self.work.size), active)
        scores, value = np.zeros(self.work.size), 0.0
        self._parts = []
        for K, y in self._chunks():
            A = np.zeros(K.shape[1:])
            for j, weight in zip(self.work[active], x, strict=True):
                daxpy(K[j].reshape(-1), A.reshape(-1), a=self.scale * weight)  # A += ... in place
            A.reshape(len(A), -1)[:, :: y.shape[1] + 1] += 1.0
            try:
                factor = spd.Factor(A)
            except spd.Indefinite:
                _check_matrices(self.problem, self.work[active])
                raise
            r = factor.solve(y)
            U = np.empty((len(y), active.size, y.shape[1]))
            for i, j in enumerate(self.work[active]):
                U[:, i] = self.scale * np.matmul(K[j], r[:, :, None])[..., 0]
            scores[active] += self.scale * np.einsum("sin,sn->i", U, r)
            for i in idle:
                Kr = np.matmul(K[self.work[i]], r[:, :, None])[..., 0]
                scores[i] += self.scale**2 * np.vdot(Kr, r)
            value += float(np.vdot(y, r)) / self.problem.total
            self._parts.append((factor, r, U))
        self._scores = np.maximum(scores, 0.0)
        return value, self._scores

    def hessian(self, groups: Index) -> Array:
        H = np.zeros((groups.size, groups.size))
        place = {int(j): i for i, j in enumerate(self.active)}
        for (K, _), (factor, r, U) in zip(self._chunks(), self._parts, strict=True):
            V = np.empty((len(r), groups.size, r.shape[1]))
            for i, j in enumerate(groups):
                if int(j) in place:
                    V[:, i] = U[:, place[int(j)]]
                else:
                    V[:, i] = self.scale * np.matmul(K[self.work[j]], r[:, :, None])[..., 0]
            factor.whiten(V)
            flat = V.transpose(1, 0, 2).reshape(V.shape[1], -1)
            H += self.scale * (flat @ flat.T)
        return H

    def beta(self) -> None:
        return None

    def residuals(self) -> list[Array]:
        return self._residuals

    def _raw_residuals(self) -> list[Array]:
        out, parts = [], iter(self._parts)
        for batch in self.problem.batches:
            fit = np.empty_like(batch.y)
            stop = 0
            while stop < len(fit):
                _, _, U = next(parts)
                fit[stop : stop + len(U)] = np.einsum("i,sin->sn", self._x, U)
                stop += len(U)
            out.append(batch.y - fit)
        return out

    def residual(self) -> Residual:
        N, here = self.problem.total, self.work[self.active]
        scores, norms, square, inner = np.zeros(self.p), np.zeros(self.p), 0.0, 0.0
        self._residuals = self._raw_residuals()
        for batch, r in zip(self.problem.batches, self._residuals, strict=True):
            scores += self.scale**2 * group_energies(self.problem, batch, r)
            square += float(np.vdot(r, r)) / N
            inner += float(np.vdot(batch.y, r)) / N
        norms[here] = self._x * np.sqrt(self._scores[self.active])
        return Residual(scores, norms, square, inner)

    def misfit(self, lam: Array) -> Array:
        here = self.work[self.active]
        unit = lam[here] / np.sqrt(self._scores[self.active])
        rows = np.concatenate([r.ravel() for r in self.residuals()])
        total, stop = np.zeros(here.size), 0
        for (K, _), (_, solved, _) in zip(self._chunks(), self._parts, strict=True):
            r = rows[stop : stop + solved.size].reshape(solved.shape)
            stop += solved.size
            for i, j in enumerate(here):
                away = self.scale * (r - unit[i] * solved)
                total[i] += np.vdot(np.matmul(K[j], away[:, :, None])[..., 0], away)
        return np.sqrt(np.maximum(total, 0.0))


def _check_matrices(problem: Problem, groups: Index) -> None:
    """Raise with the group and the task of the first indefinite matrix."""
    for batch in problem.batches:
        assert batch.K is not None
        for j in groups:
            values = np.linalg.eigvalsh(batch.K[j]).astype(np.float64, copy=False)
            check_eigenvalues(values, int(j), batch.tasks)
