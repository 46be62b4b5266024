"""The sums over tasks that the solver needs (`Evaluator`), by features or by Gram matrices.

With features, most quantities come from the Gram matrices of the working set's columns, which are
kept and extended. Once the columns outnumber the rows, n x n systems of the features are used
instead. With Gram matrices there is one n x n factorisation per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso import spd
from metakel.grouplasso.problem import (
    Index,
    Problem,
    check_eigenvalues,
    columns_of,
    group_energies,
    group_starts,
    group_sums,
)

ROUNDING = 16 * np.finfo(float).eps
# Where weights times curvature exceed this (small lambda), T^-1 b loses digits if T is inverted
# explicitly, so the system is solved instead.
STIFF = 1e4
SMALL = 64  # up to this many groups an iteration costs next to nothing


# Sums over the columns of each group, along an axis.
Summed = Callable[[Array, int], Array]


@dataclass(frozen=True)
class Residual:
    """The quantities of the duality gap, recomputed from the raw data."""

    scores: Array  # (p,) squared norms of z^(j)
    norms: Array  # (p,) norms of beta^(j)
    square: float  # ||r||^2 / N
    inner: float  # y'r / N
    rows: Sequence[Array] = ()  # y - f: one padded (m_b, n_b) array per batch; none if elsewhere


class Evaluator(Protocol):
    """Sums over tasks at a current point x, for groups of a growing working set.

    ``work`` holds the groups of the working set. ``active``, ``curvature`` and the arguments of
    `at` and `hessian` refer to groups by their position in it. A new evaluator is at x = 0 with an
    empty working set.
    """

    p: int
    energy: float  # ||y||^2 / N
    rough: bool  # whether iterations are so costly that early subproblems are solved loosely
    work: Index
    active: Index  # positions of the groups with x > 0 at the current point
    curvature: Array  # (|work|,) trace of each group's scaled Gram matrix, averaged over tasks

    def extend(self, groups: Index) -> None:
        """Add groups to the working set; their weight at the current point is zero."""
        ...

    def start(self, lam: Array) -> Array:
        """Initial guess of x over the working set."""
        ...

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        """Move to x > 0 on ``active``: y'r/N and the squared norms of z over the working set."""
        ...

    def hessian(self, groups: Index) -> Array:
        """Hessian of g at the current point, over ``groups``.

        They must contain the active ones, and may contain groups of weight zero.
        """
        ...

    def residual(self) -> Residual:
        """The quantities of the duality gap at the current point, from raw residuals."""
        ...

    def misfit(self, lam: Array) -> Array:
        """||z^(j) - lam_j beta^(j)/||beta^(j)|| || of the active groups, from raw data (B.6).

        Valid after `residual`.
        """
        ...

    def beta(self) -> Array | None:
        """(m, d) coefficients at the current point; None in kernel mode."""
        ...


def independent_weights(scores: Array, lam: Array, curvature: Array) -> Array:
    """The weight of each group if it were the only one, for tasks of equal curvature."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scores > lam * lam, (np.sqrt(scores) / lam - 1) / curvature, 0.0)


class _ColumnSide:
    """Gram matrices of the columns of the working set, which are kept and extended."""

    def __init__(self, problem: Problem, h: Array) -> None:
        self.m, self.scale, self.energy = problem.m, 2 / problem.total, problem.energy
        self.gram, self.h = np.empty((problem.m, 0, 0)), h
        self.cols: Index = np.empty(0, np.intp)

    def extend(self, parts: list[Array], Phi: list[Array], h: Array) -> Array:
        """Take new columns (., d, n) of all (., dW, n); gives their scaled squared norms (d,)."""
        old, width = self.gram.shape[1], h.shape[1]
        out = np.empty((self.m, width, width))
        out[:, :old, :old] = self.gram
        stop = 0
        for part, whole in zip(parts, Phi, strict=True):
            rows = slice(stop, stop := stop + len(whole))
            np.matmul(part, whole.transpose(0, 2, 1), out=out[rows, old:, :])
        out[:, old:, :] *= self.scale
        out[:, :old, old:] = out[:, old:, :old].transpose(0, 2, 1)
        self.gram, self.h = out, h
        self.cross = np.take(self.gram, self.cols, axis=1)
        squares: Array = np.einsum("sdd->d", self.gram[:, old:, old:])
        return squares

    def start(self, starts: Index, lam: Array, curvature: Array) -> Array:
        """Weights to begin with."""
        return spd.block_descent(self.gram, self.h, starts, lam)

    def select(self, cols: Index) -> None:
        """These columns have a weight."""
        self.cols = cols
        # np.take, unlike indexing, always returns C order, as strides over diagonals need it.
        self.cross = np.take(self.gram, cols, axis=1)  # (m, dA, dW)
        self.systems = spd.systems_of(np.take(self.cross, cols, axis=2))
        self.h_active = self.h[:, cols]

    def at(self, x: Array, *, stiff: bool) -> tuple[float, Array, Array]:
        """Objective, coefficients (m, dA) and correlations (m, dW) at these weights (dA,)."""
        self.root = np.sqrt(x)
        b = self.h_active * self.root
        w = self.systems.solve(self.root, b, stiff=stiff)
        beta = self.root * w
        z = self.h - np.matmul(beta[:, None, :], self.cross)[:, 0, :]
        # h - G beta loses digits where the residual is small; z = beta / x on active columns does
        # not.
        self.zeta = w / x
        z[:, self.cols] = self.zeta * self.root
        return self.energy - 0.5 * float(np.vdot(b, w)), beta, z

    def new_columns(self, parts: list[Array], old: int, beta: Array) -> Array:
        """(m, d) correlations of new columns at the current point."""
        new = self.h[:, old:]
        if not self.cols.size:
            return new
        return np.asarray(new - np.matmul(beta[:, None, :], self.cross[:, :, old:])[:, 0, :])

    def hessian(self, z: Array, cols: Index, summed: Summed) -> Array:
        """Second derivatives for groups of these columns, the active ones among them."""
        if cols.size > self.cols.size:
            H = self._with_idle(z, cols, summed)
        else:
            H = -self.systems.form(self.zeta)
            # I - T^-1 has an error of the size of rounding. As much is added to the diagonal, which
            # keeps H positive definite.
            squares = np.einsum("sd,sd->d", self.zeta, self.zeta)
            H.reshape(-1)[:: len(H) + 1] += (1 + ROUNDING) * squares
            H = summed(summed(H, 0), 1)
        return 0.5 * (H + H.T)

    def _with_idle(self, z: Array, cols: Index, summed: Summed) -> Array:
        """Sums of z z' times Q = G (I + X G)^-1, which is defined for weights of zero, too.

        Rows of active columns are X^-1/2 T^-1 X^1/2 G, which is accurate. Between idle columns we
        need the difference G - G X^1/2 T^-1 X^1/2 G, whose diagonal may be negative by rounding.
        """
        Q = np.take(np.take(self.gram, cols, axis=1), cols, axis=2)
        z = z[:, cols]
        lost = ROUNDING * np.einsum("sd,sdd->d", z * z, Q)
        if self.cols.size:
            C = np.take(self.cross, cols, axis=2) * self.root[:, None]
            Y = self.systems.apply(C)
            Q -= np.matmul(C.transpose(0, 2, 1), Y)
            Y /= self.root[:, None]
            own = np.searchsorted(cols, self.cols)
            Q[:, own, :] = Y
            Q[:, :, own] = Y.transpose(0, 2, 1)
        H: Array = np.einsum("sab,sb->ab", Q * z[:, :, None], z)
        H = summed(summed(H, 0), 1)
        np.fill_diagonal(H, np.maximum(H.diagonal(), summed(lost, 0)))
        return H


class _RowSide:
    """Systems of the rows, n x n for every task, which are factorised at every point."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.scale = problem, 2 / problem.total
        self.factors: list[spd.Cholesky] = []  # none where no column has a weight
        self.residuals: list[Array] = []

    def extend(self, parts: list[Array], Phi: list[Array], h: Array) -> Array:
        """Take new columns (., d, n) of all (., dW, n); gives their scaled squared norms (d,)."""
        self.Phi, self.h = Phi, h
        squares = sum(np.einsum("sdn,sdn->d", part, part) for part in parts)
        return np.asarray(self.scale * squares)

    def start(self, starts: Index, lam: Array, curvature: Array) -> Array:
        """Weights to begin with."""
        squares = np.einsum("sd,sd->d", self.h, self.h)
        return independent_weights(group_sums(squares, starts), lam, curvature)

    def select(self, cols: Index) -> None:
        """These columns have a weight."""
        self.cols, self.factors, self.residuals = cols, [], []
        self.active = [np.take(Phi, cols, axis=1) for Phi in self.Phi]

    def at(self, x: Array, *, stiff: bool) -> tuple[float, Array, Array]:
        """Objective, coefficients (m, dA) and correlations (m, dW) at these weights (dA,)."""
        self.factors, self.residuals, value, parts = [], [], 0.0, []
        root = np.sqrt(x)
        for Phi, active, batch in zip(self.Phi, self.active, self.problem.batches, strict=True):
            F = active * root[:, None]
            A = np.matmul(F.transpose(0, 2, 1), F)
            A *= self.scale
            A.reshape(len(A), -1)[:, :: batch.n + 1] += 1.0
            factor = spd.Cholesky(A)
            r = factor.solve(batch.y)
            self.factors.append(factor)
            self.residuals.append(r)
            parts.append(self.scale * _apply(Phi, r))
            value += float(np.vdot(batch.y, r)) / self.problem.total
        z = np.concatenate(parts)
        return value, x * z[:, self.cols], z

    def new_columns(self, parts: list[Array], old: int, beta: Array) -> Array:
        """(m, d) correlations of new columns at the current point."""
        if not self.residuals:
            return self.h[:, old:]
        pairs = zip(parts, self.residuals, strict=True)
        return np.asarray(self.scale * np.concatenate([_apply(part, r) for part, r in pairs]))

    def hessian(self, z: Array, cols: Index, summed: Summed) -> Array:
        """Second derivatives for groups of these columns."""
        H, stop = None, 0
        for b, Phi in enumerate(self.Phi):
            rows = slice(stop, stop := stop + len(Phi))
            U = np.take(Phi, cols, axis=1) * z[rows][:, cols, None]
            U = np.ascontiguousarray(summed(U, 1))
            if self.factors:
                self.factors[b].whiten(U)
            flat = U.transpose(1, 0, 2).reshape(U.shape[1], -1)
            part = self.scale * (flat @ flat.T)
            H = part if H is None else H + part
        assert H is not None
        return H


class FeatureEvaluator:
    """Evaluator for tasks given by features.

    It knows the groups of the working set and the current point. What a point costs is computed on
    one of two sides: by the Gram matrices of the columns, or by n x n systems of the rows.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.p = problem.p
        self.energy = problem.energy
        self.rough = problem.p > SMALL
        self.scale = 2 / problem.total
        self.work: Index = np.empty(0, np.intp)
        self.curvature = np.empty(0)
        self._dims = np.diff(problem.starts)
        self._unit = bool((self._dims == 1).all())  # sums over one column cost time
        self._Phi = [np.empty((b.y.shape[0], 0, b.n)) for b in problem.batches]
        self._order = np.concatenate([b.tasks for b in problem.batches])
        self._h = np.empty((problem.m, 0))
        self._z = self._h
        self._starts: Index = np.zeros(1, np.intp)
        self._at_zero: Array | None = None
        self._side: _ColumnSide | _RowSide = _ColumnSide(problem, self._h)
        self._select(self.work)
        self.at(self.work, np.empty(0))

    # -- the working set ---------------------------------------------------------------------

    def extend(self, groups: Index) -> None:
        old = int(self._starts[-1])
        self.work = np.concatenate([self.work, groups])
        self._starts = group_starts(self._dims[self.work])
        columns = columns_of(groups, self.problem.starts)
        # All columns in their original order are not copied.
        whole = np.array_equal(columns, np.arange(self.problem.starts[-1]))
        new_parts = []
        for b, batch in enumerate(self.problem.batches):
            assert batch.Phi is not None
            part = batch.Phi if whole else np.take(batch.Phi, columns, axis=1)
            new_parts.append(part)
            self._Phi[b] = part if old == 0 else np.concatenate([self._Phi[b], part], axis=1)
        self._h = np.concatenate([self._h, self._correlations(columns, new_parts)], axis=1)
        # Once the columns outnumber the rows, n x n systems replace the Gram matrices for good.
        many = self._starts[-1] > 1.5 * self.problem.sizes.mean() + 16
        turned = many and isinstance(self._side, _ColumnSide)
        if turned:
            self._side = _RowSide(self.problem)
        traces = self._side.extend(new_parts, self._Phi, self._h) / self.problem.m
        traces = group_sums(traces, self._starts[-1 - groups.size :] - old)
        self.curvature = np.concatenate([self.curvature, traces])
        if turned:
            self._select(self.active)
            self.at(self.active, self._weights)
        else:  # the new columns have weight zero
            new = self._side.new_columns(new_parts, old, self._beta)
            self._z = np.concatenate([self._z, new], axis=1)

    def _correlations(self, columns: Index, parts: list[Array]) -> Array:
        """(m, .) scaled correlations of new columns with y."""
        if self._at_zero is not None:  # the certificate at x = 0 has computed them all
            return np.take(self._at_zero, columns, axis=1)
        batches = self.problem.batches
        applied = [_apply(part, batch.y) for part, batch in zip(parts, batches, strict=True)]
        return self.scale * np.concatenate(applied)

    def start(self, lam: Array) -> Array:
        return self._side.start(self._starts, lam, self.curvature)

    # -- the current point -------------------------------------------------------------------

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        if active.size != self.active.size or (active != self.active).any():
            self._select(active)
        self._weights = x
        if not active.size:
            self._beta, self._z, value = np.empty((self.problem.m, 0)), self._h, self.energy
        else:
            weights = x if self._unit else np.repeat(x, self._active_dims)
            stiff = float(np.dot(self.curvature[active], x)) > STIFF
            value, self._beta, self._z = self._side.at(weights, stiff=stiff)
        return value, group_sums(np.einsum("sd,sd->d", self._z, self._z), self._starts)

    def _select(self, active: Index) -> None:
        self.active = active
        self._active_dims = self._dims[self.work[active]]
        self._cols = columns_of(active, self._starts)
        self._side.select(self._cols)

    def hessian(self, groups: Index) -> Array:
        cols = columns_of(groups, self._starts)
        return self._side.hessian(self._z, cols, lambda v, axis: self._summed(v, groups, axis=axis))

    def _summed(self, values: Array, groups: Index, *, axis: int) -> Array:
        """Sums over the columns of each of these groups along one axis."""
        if self._unit:
            return values
        return group_sums(values, group_starts(self._dims[self.work[groups]]), axis)

    # -- the solution ------------------------------------------------------------------------

    def beta(self) -> Array:
        full = np.zeros((self.problem.m, int(self.problem.starts[-1])))
        if self.active.size:
            columns = columns_of(self.work[self.active], self.problem.starts)
            full[self._order[:, None], columns] = self._beta
        return full

    def residual(self) -> Residual:
        N, here = self.problem.total, self.work[self.active]
        scores, norms, square, inner = np.zeros(self.p), np.zeros(self.p), 0.0, 0.0
        columns, raw, residuals, stop = columns_of(here, self.problem.starts), [], [], 0
        for Phi, batch in zip(self._Phi, self.problem.batches, strict=True):
            assert batch.Phi is not None
            rows, r = slice(stop, stop := stop + len(Phi)), batch.y
            if here.size:
                own = Phi if self._cols.size == Phi.shape[1] else np.take(Phi, self._cols, axis=1)
                r = r - np.matmul(self._beta[rows, None, :], own)[:, 0, :]
            z = self.scale * _apply(batch.Phi, r)
            scores += group_sums(np.einsum("sd,sd->d", z, z), self.problem.starts)
            square += float(np.vdot(r, r)) / N
            inner += float(np.vdot(batch.y, r)) / N
            raw.append(z)
            residuals.append(r)
        everything = raw[0] if len(raw) == 1 else np.concatenate(raw)
        if not here.size:
            self._at_zero = everything
        self._raw = np.take(everything, columns, axis=1)
        if here.size:
            norms[here] = np.sqrt(self._grouped(self._beta))
        return Residual(scores, norms, square, inner, residuals)

    def misfit(self, lam: Array) -> Array:
        if not self.active.size:
            return np.empty(0)
        return np.sqrt(self.away(lam[self.work[self.active]] / np.sqrt(self._grouped(self._beta))))

    def away(self, unit: Array) -> Array:
        """Squared norms of z^(j) - u_j beta^(j) of the active groups; valid after `residual`."""
        return self._grouped(self._raw - self._beta * np.repeat(unit, self._active_dims))

    def _grouped(self, values: Array) -> Array:
        """Sums of squares over tasks and over the columns of each active group."""
        return self._summed(np.einsum("sd,sd->d", values, values), self.active, axis=0)


def _apply(Phi: Array, r: Array) -> Array:
    """(m, d) products of (m, d, n) features with (m, n) vectors."""
    products: Array = np.matmul(Phi, r[:, :, None])
    return products[..., 0]


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
                factor = spd.Cholesky(A)
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

    def residual(self) -> Residual:
        N, here = self.problem.total, self.work[self.active]
        scores, norms, square, inner = np.zeros(self.p), np.zeros(self.p), 0.0, 0.0
        fits = [np.einsum("i,sin->sn", self._x, U) for _, _, U in self._parts]
        self._rows, first = [], 0
        for batch in self.problem.batches:
            r, stop = batch.y.copy(), 0
            while stop < len(r):
                r[stop : (stop := stop + len(fits[first]))] -= fits[first]
                first += 1
            scores += self.scale**2 * group_energies(self.problem, batch, r)
            square += float(np.vdot(r, r)) / N
            inner += float(np.vdot(batch.y, r)) / N
            self._rows.append(r)
        norms[here] = self._x * np.sqrt(self._scores[self.active])
        return Residual(scores, norms, square, inner, self._rows)

    def misfit(self, lam: Array) -> Array:
        here = self.work[self.active]
        unit = lam[here] / np.sqrt(self._scores[self.active])
        rows = np.concatenate([r.ravel() for r in self._rows])
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
