r"""Newton's method for many lambdas at once, where tasks are many and active columns few.

The data part of `evaluate`'s g knows no lambda, so L lambdas are L columns of weights x (k, L) over
the same Gram matrices G and correlations h. Everything runs over a stack of L m small systems with
the stack last in memory. Per lambda and task

.. math:: Q = G (I + X G)^{-1}, \qquad z = (I + G X)^{-1} h, \qquad
          \nabla^2 g = \sum_s z_s z_s^\top \circ Q_s,

and Q and z come from absorbing the weights into (G, h) one column after another, which divides by
no weight, so that idle groups may take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
RIDGE = 1e-11  # duplicated groups leave the Hessian singular
CORRECTIONS = 3  # of the guess which weights a step leaves at zero


@dataclass(frozen=True)
class Columns:
    """The working set: c columns in k groups, with the tasks last.

    G : (c, c, m) scaled Gram matrices, h : (c, m) scaled correlations, starts : (k + 1,)
    """

    G: Array
    h: Array
    starts: Index
    energy: float

    def memory(self, L: int) -> Array:
        """What `point` needs for up to L lambdas: fresh pages cost more than the arithmetic."""
        c, m = self.h.shape
        return np.empty(2 * c * (c + 1) * L * m)

    def point(self, x: Array, memory: Array) -> Point:
        """What g and its gradient need at the weights x (k, L); lives in ``memory``."""
        c, m = self.h.shape
        L = x.shape[1]
        M, spare = memory[: 2 * c * (c + 1) * L * m].reshape(2, c, c + 1, L, m)
        M[:, :c] = self.G[:, :, None]
        M[:, c] = self.h[:, None]
        beta = np.empty((c, L, m))
        z = eliminate(M, self.spread(x), beta, spare)
        squares: Array = np.einsum("clm,clm->cl", z, z)
        fits = np.einsum("clm,cm->l", beta, self.h)
        return Point(x, beta, z, self.energy - 0.5 * fits, self.summed(squares), M, spare)

    def hessian(self, point: Point) -> Array:
        """(k, k, L) Hessians of g; completes the point's Q in place."""
        c = len(self.h)
        complete(point.M, self.spread(point.x), point.spare)
        weighted = np.multiply(point.M[:, :c], point.z, out=point.spare[:, :c])
        H: Array = np.einsum("ablm,alm->abl", weighted, point.z)
        below, above = self._triangle
        H[below, above] = H[above, below]
        if len(self.starts) <= c:
            H = np.add.reduceat(np.add.reduceat(H, self.starts[:-1], 0), self.starts[:-1], 1)
        return H

    @cached_property
    def _triangle(self) -> tuple[Index, Index]:
        return np.tril_indices(len(self.h), -1)

    @cached_property
    def curvature(self) -> Array:
        """(k,) mean over tasks of the trace of each group's scaled Gram matrix."""
        return self.summed(np.einsum("ccm->c", self.G) / self.h.shape[1])

    def places(self, groups: Index) -> Index:
        """The columns of these groups."""
        if len(self.starts) > len(self.h):
            return groups
        return np.flatnonzero(
            np.isin(np.repeat(np.arange(self.starts.size - 1), self.dims), groups)
        )

    def select(self, groups: Index) -> Columns:
        """Only these groups, in increasing order."""
        cols = self.places(groups)
        starts = np.concatenate([[0], np.cumsum(self.dims[groups])])
        G = np.take(np.take(self.G, cols, axis=0), cols, axis=1)
        return Columns(G, self.h[cols], starts, self.energy)

    def scores(self, beta: Array, cols: Index) -> Array:
        """(k, L) squared norms of z = h - G beta over all groups, for beta (c', L, m) on cols."""
        z = self.h[:, None] - np.einsum("acm,clm->alm", self.G[:, cols], beta)
        squares: Array = np.einsum("alm,alm->al", z, z)
        return self.summed(squares)

    @property
    def dims(self) -> Index:
        return np.diff(self.starts)

    def spread(self, x: Array) -> Array:
        """Weights of groups as weights of their columns."""
        return x if len(self.starts) > len(self.h) else np.repeat(x, np.diff(self.starts), axis=0)

    def summed(self, values: Array) -> Array:
        """Sums over the columns of each group, which come first."""
        if len(self.starts) > len(self.h):
            return values
        out: Array = np.add.reduceat(values, self.starts[:-1], axis=0)
        return out


@dataclass(frozen=True)
class Point:
    """Weights x (k, L), and what was computed there."""

    x: Array
    beta: Array  # (c, L, m) = x z
    z: Array  # (c, L, m)
    data: Array  # (L,) y'r / N
    scores: Array  # (k, L) squared norms of z
    M: Array  # (c, c + 1, L, m), see `eliminate`
    spare: Array

    def at(self, chosen: Index) -> Point:
        """Only these lambdas, as copies (in C order, unlike what indexing returns)."""
        M = np.take(self.M, chosen, axis=2)
        return Point(
            np.take(self.x, chosen, axis=1),
            np.take(self.beta, chosen, axis=1),
            M[:, -1],
            self.data[chosen],
            np.take(self.scores, chosen, axis=1),
            M,
            self.spare.reshape(-1)[: M.size].reshape(M.shape),
        )

    def gaps(self, lam: Array) -> Array:
        """(L,) duality gaps of the problem restricted to the working set, for lam (k, L)."""
        square = np.maximum(self.data - 0.5 * np.einsum("kl,kl->l", self.x, self.scores), 0.0)
        norms = np.sqrt(self.scores)
        primal = square + np.einsum("kl,kl->l", lam * self.x, norms)
        gaps: Array = primal - dual_values(self.data, square, (norms / lam).max(axis=0))
        return gaps


def dual_values(inner: Array, square: Array, tightest: Array) -> Array:
    """`newton.dual_value` for many lambdas; ``tightest`` is max_j ||z^(j)|| / lam_j."""
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(
            np.abs(inner) * tightest > square, np.copysign(1 / tightest, inner), inner / square
        )
        values: Array = np.where(np.isfinite(a), 2 * a * inner - a * a * square, 0.0)
    return values


def eliminate(M: Array, x: Array, beta: Array, spare: Array) -> Array:
    """Solve (I + G X) z = h for weights x (c, L); returns z and writes beta = x z.

    M (c, c + 1, L, m) holds G, and h as the last column. A weight x_j on column j changes Q to
    Q - Q_j Q_j' x_j / (1 + x_j Q_jj) and z alike. Row j of M is left, from its diagonal on, as it
    was before its own weight was absorbed; what is left of the diagonal is spent.
    """
    c = len(M)
    for j in range(c - 1):
        row, weight = M[j, j:], x[j, :, None]
        scaled = row[1:-1] * (weight / (1 + weight * row[0]))
        rest = M[j + 1 :, j + 1 :]
        rest -= np.multiply(scaled[:, None], row[1:], out=spare[j + 1 :, j + 1 :])
    for j in range(c - 1, -1, -1):
        z, weight = M[j, c], x[j, :, None]
        if j < c - 1:
            z -= np.einsum("blm,blm->lm", M[j, j + 1 : c], beta[j + 1 :])
        z /= 1 + weight * M[j, j]
        np.multiply(weight, z, out=beta[j])
    return M[:, c]


def complete(M: Array, x: Array, spare: Array) -> None:
    """Carry on from `eliminate` to the upper triangles of Q.

    Row j itself is only shrunk, by 1 / (1 + x_j Q_jj), which does not cancel.
    """
    c = len(M)
    for j in range(c):
        weight, own = x[j, :, None], M[j, j:c]
        shrink = 1 / (1 + weight * own[0])
        if j:
            above = M[:j, j].copy()
            scaled = above * (weight * shrink)
            block = M[:j, :j]
            block -= np.multiply(scaled[:, None], above, out=spare[:j, :j])
            if j + 1 < c:
                block = M[:j, j + 1 : c]
                block -= np.multiply(scaled[:, None], own[1:], out=spare[:j, j + 1 : c])
            np.multiply(above, shrink, out=M[:j, j])
        own *= shrink


def newton_step(H: Array, x: Array, v: Array, lam: Array) -> Array:
    """The long step of `newton` for every lambda, kept at weights >= 0.

    From x (k, L), where the scores are v (k, L) and the Hessians H (k, k, L). Idle groups stay idle
    unless their score exceeds lambda. Weights that a step takes below zero are held at zero, and
    the others are solved for again.
    """
    q = v * (1 - np.sqrt(v) / lam)
    free = (x > 0) | (v > lam * lam)
    for _ in range(CORRECTIONS):
        # Groups that are held move by -x; the others see that in their gradient.
        target = x - restricted_solve(H, free, q, np.where(free, 0.0, x))
        wrong = target < 0
        if not wrong.any():
            break
        free &= ~wrong
    return np.maximum(target, 0.0)


def restricted_solve(H: Array, free: NDArray[np.bool], q: Array, held: Array) -> Array:
    """(k, L) solutions t of H t = q among the free groups, where the others are ``held`` fixed."""
    if not free.all():
        if held.any():
            q = q - np.einsum("abl,bl->al", H, held)
        q = np.where(free, q, held)
        H = H * (free[:, None] & free)
    k = len(H)
    systems = np.ascontiguousarray(H.transpose(2, 0, 1))
    diagonals = systems.reshape(-1, k * k)[:, :: k + 1]
    diagonals += np.where(free.T & (diagonals > 0), RIDGE * diagonals, 1.0)
    found: Array = np.linalg.solve(systems, q.T[:, :, None])[:, :, 0].T.astype(
        np.float64, copy=False
    )
    return found
