r"""Newton's method for many lambdas at once, for many tasks and few active columns.

The data part of g (see `evaluator`) does not depend on lambda, so L lambdas are L columns of
weights x (k, L) over the same Gram matrices G and correlations h. All arrays are stacks of L m
small systems, with the stack last in memory. For each lambda and task

.. math:: Q = G (I + X G)^{-1}, \qquad z = (I + G X)^{-1} h, \qquad
          \nabla^2 g = \sum_s z_s z_s^\top \circ Q_s,

and Q and z are computed by one rank-one update of (G, h) per column. No step divides by a weight,
so groups of weight zero can take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso.newton import NEGLIGIBLE, independent_weights
from metakel.grouplasso.problem import Index, columns_of, group_starts, group_sums

RIDGE = 1e-11  # duplicated groups make the Hessian singular
CORRECTIONS = 3  # of the guess which weights a step sets to zero
MAX_STEPS = 8
KEEP = 0.5  # converged lambdas are removed once fewer than this fraction is left
STACK = 5000  # systems at a time, which bounds the memory


@dataclass(frozen=True)
class ActiveColumns:
    """The data of c columns in k groups, with the tasks last."""

    G: Array  # (c, c, m) scaled Gram matrices
    h: Array  # (c, m) scaled correlations
    starts: Index  # (k + 1,) where the columns of each group begin
    energy: float  # mean square of y

    def memory(self, L: int) -> Array:
        """Workspace of `point` for up to L lambdas; allocating it anew would dominate the cost."""
        c, m = self.h.shape
        return np.empty((c * (c + 3) // 2 + c + 1) * L * m)

    def point(self, x: Array, memory: Array) -> NewtonPoint:
        """g and its gradient at the weights x (k, L); the result refers to ``memory``."""
        c, m = self.h.shape
        L = x.shape[1]
        rows, stop = [], 0
        for j in range(c + 1):  # the last one is scratch space
            width = c + 1 - j if j < c else c + 1
            rows.append(memory[stop : (stop := stop + width * L * m)].reshape(width, L, m))
        scratch = rows.pop()
        for j, row in enumerate(rows):
            row[:-1] = self.G[j, j:, None]
            row[-1] = self.h[j]
        z, beta, shrink = eliminate(rows, self.spread(x), scratch)
        squares: Array = np.einsum("clm,clm->cl", z, z)
        fits = np.einsum("clm,cm->l", beta, self.h)
        data = self.energy - 0.5 * fits
        scores = group_sums(squares, self.starts)
        return NewtonPoint(x, beta, z, data, scores, rows, shrink, scratch)

    def hessian(self, point: NewtonPoint) -> Array:
        """(k, k, L) Hessians of g; turns ``point.rows`` into Q in place."""
        c, z = len(self.h), point.z
        back_substitute(point.rows, self.spread(point.x), point.shrink, point.scratch)
        H = np.empty((c, c, point.x.shape[1]))
        for j, row in enumerate(point.rows):
            weighted = np.multiply(row[:-1], z[j], out=point.scratch[: c - j])
            np.einsum("blm,blm->bl", weighted, z[j:], out=H[j, j:])
            H[j + 1 :, j] = H[j, j + 1 :]
        return group_sums(group_sums(H, self.starts, axis=0), self.starts, axis=1)

    @cached_property
    def curvature(self) -> Array:
        """(k,) trace of each group's scaled Gram matrix, averaged over tasks."""
        return group_sums(np.einsum("ccm->c", self.G) / self.h.shape[1], self.starts)

    def select(self, groups: Index) -> ActiveColumns:
        """Only these groups, in this order."""
        cols = columns_of(groups, self.starts)
        G = np.take(np.take(self.G, cols, axis=0), cols, axis=1)
        return ActiveColumns(G, self.h[cols], group_starts(self.dims[groups]), self.energy)

    def independent_weights(self, lam: Array) -> Array:
        """(k, L) approximate weights of each group if it were the only one."""
        energies = group_sums(np.einsum("cm,cm->c", self.h, self.h), self.starts)
        return independent_weights(energies[:, None], lam, self.curvature[:, None])

    @property
    def dims(self) -> Index:
        """(k,) number of columns of each group."""
        return np.diff(self.starts)

    def spread(self, x: Array) -> Array:
        """Weights of groups as weights of their columns."""
        return x if len(self.starts) > len(self.h) else np.repeat(x, self.dims, axis=0)


@dataclass(frozen=True)
class NewtonPoint:
    """Weights x (k, L) and the quantities computed there."""

    x: Array
    beta: Array  # (c, L, m) = x z
    z: Array  # (c, L, m)
    data: Array  # (L,) y'r / N
    scores: Array  # (k, L) squared norms of z
    rows: list[Array]  # upper triangles, see `eliminate`
    shrink: Array  # (c, L, m), see `eliminate`
    scratch: Array  # (c + 1, L, m)

    def at(self, chosen: Index) -> NewtonPoint:
        """Only these lambdas, as copies in C order (which indexing would not return)."""

        def taken(array: Array) -> Array:
            return np.take(array, chosen, axis=1)

        scratch = self.scratch.reshape(-1)[: self.scratch.size // self.x.shape[1] * chosen.size]
        return NewtonPoint(
            taken(self.x),
            taken(self.beta),
            taken(self.z),
            self.data[chosen],
            taken(self.scores),
            [taken(row) for row in self.rows],
            taken(self.shrink),
            scratch.reshape(len(self.scratch), chosen.size, -1),
        )

    def nearby(self, x: Array, step: Array) -> Array:
        """beta (c, L, m) at column weights x, to first order in the ``step`` from here to x.

        The derivative of z = (I + G X)^-1 h is -Q dX z; valid after `ActiveColumns.hessian`, which
        computes Q.
        """
        moved, z = step[:, :, None] * self.z, self.z.copy()
        for j, row in enumerate(self.rows):
            z[j] -= np.einsum("blm,blm->lm", row[:-1], moved[j:])
            z[j + 1 :] -= np.multiply(row[1:-1], moved[j], out=self.scratch[: len(row) - 2])
        beta: Array = x[:, :, None] * z
        return beta

    def gaps(self, lam: Array) -> Array:
        """(L,) duality gaps of the problem restricted to these groups, for lam (k, L)."""
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


def eliminate(rows: list[Array], x: Array, scratch: Array) -> tuple[Array, Array, Array]:
    """Solve (I + G X) z = h for weights x (c, L).

    Returns z, beta = x z and ``shrink`` = 1 / (1 + x_j Q_jj), all (c, L, m).

    Row j (c + 1 - j, L, m) holds row j of G from the diagonal on, then h_j. A weight x_j on column
    j changes Q to Q - Q_j Q_j' x_j / (1 + x_j Q_jj), and z in the same way. Afterwards, row j
    contains the updates of the columns before j, but not that of j itself.
    """
    c = len(rows)
    z, beta, shrink = np.empty((3, c, *rows[0].shape[1:]))
    for j, row in enumerate(rows):
        weight = x[j, :, None]
        np.multiply(weight, row[0], out=shrink[j])
        shrink[j] += 1
        np.reciprocal(shrink[j], out=shrink[j])
        scaled = row[1:-1] * (weight * shrink[j])
        for i in range(j + 1, c):
            rows[i] -= np.multiply(scaled[i - j - 1], row[i - j :], out=scratch[: c + 1 - i])
    for j in range(c - 1, -1, -1):
        np.subtract(rows[j][-1], np.einsum("blm,blm->lm", rows[j][1:-1], beta[j + 1 :]), out=z[j])
        z[j] *= shrink[j]
        np.multiply(x[j, :, None], z[j], out=beta[j])
    return z, beta, shrink


def back_substitute(rows: list[Array], x: Array, shrink: Array, scratch: Array) -> None:
    """Apply the updates that `eliminate` left out; rows become the upper triangles of Q.

    Row j itself is only multiplied by 1 / (1 + x_j Q_jj), which loses no digits.
    """
    for j, own in enumerate(rows):
        above = np.empty((j, *own.shape[1:]))
        for i in range(j):
            above[i] = rows[i][j - i]
        pull = x[j, :, None] * shrink[j]
        for i, row in enumerate(rows[:j]):
            scaled = above[i] * pull
            row[: j - i] -= np.multiply(scaled, above[i:], out=scratch[: j - i])
            row[j - i + 1 : -1] -= np.multiply(scaled, own[1:-1], out=scratch[: len(own) - 2])
            np.multiply(above[i], shrink[j], out=row[j - i])
        own[:-1] *= shrink[j]


def newton_step(H: Array, x: Array, v: Array, lam: Array) -> Array:
    """The long step of `newton` for every lambda, projected to weights >= 0.

    From x (k, L), where the scores are v (k, L) and the Hessians H (k, k, L). Groups of weight zero
    take part if their score exceeds lambda. Weights that would become negative are set to zero, and
    the step is computed again for the others.
    """
    q = v * (1 - np.sqrt(v) / lam)
    free = (x > 0) | (v > lam * lam)
    for _ in range(CORRECTIONS):
        # Fixed groups move by -x, which changes the gradient of the others.
        target = x - restricted_solve(H, free, q, np.where(free, 0.0, x))
        wrong = target < 0
        if not wrong.any():
            break
        free &= ~wrong
    return np.maximum(target, 0.0)


def restricted_solve(H: Array, free: NDArray[np.bool], q: Array, held: Array) -> Array:
    """(k, L) solutions t of H t = q over the free groups, with t = ``held`` for the others."""
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


def minimise(columns: ActiveColumns, x: Array, lam: Array, target: float) -> tuple[Array, Index]:
    """Newton's method from x (k, L) for lam (k, L): beta (c, L, m) and the numbers of steps (L,).

    Aims for duality gaps of at most ``target`` in the problem restricted to these columns.
    """
    c, m = columns.h.shape
    count = max(1, STACK // m)
    if x.shape[1] <= count:
        return _minimise(columns, x, lam, target, columns.memory(x.shape[1]))
    beta, steps = np.empty((c, x.shape[1], m)), np.empty(x.shape[1], np.intp)
    memory = columns.memory(count)
    for first in range(0, x.shape[1], count):
        part = slice(first, first + count)
        beta[:, part], steps[part] = _minimise(columns, x[:, part], lam[:, part], target, memory)
    return beta, steps


def _minimise(
    columns: ActiveColumns, x: Array, lam: Array, target: float, memory: Array
) -> tuple[Array, Index]:
    curvature, short = columns.curvature[:, None], sqrt(10 * target / columns.energy)
    x = np.where(x * curvature < NEGLIGIBLE, 0.0, x)
    point = columns.point(x, memory)
    beta, steps, left = point.beta, np.zeros(x.shape[1], np.intp), np.arange(x.shape[1])
    for step in range(MAX_STEPS):
        # Every lambda gets at least one step.
        bad = np.flatnonzero(point.gaps(lam) > target) if step else left
        if not bad.size:
            break
        # A few superfluous steps cost less than copies of all other lambdas.
        if bad.size < KEEP * left.size:
            left, point, lam = left[bad], point.at(bad), np.take(lam, bad, axis=1)
        x = newton_step(columns.hessian(point), point.x, point.scores, lam)
        x[x * curvature < NEGLIGIBLE] = 0.0
        steps[left] += 1
        moved = x - point.x
        if (np.abs(moved) * curvature < short * (1 + x * curvature)).all():
            # After a short step its first-order effect is accurate enough.
            beta[:, left] = point.nearby(columns.spread(x), columns.spread(moved))
            break
        point = columns.point(x, memory)
        beta[:, left] = point.beta
    return beta, steps
