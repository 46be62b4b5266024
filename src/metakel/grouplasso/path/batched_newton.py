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

from metakel.grouplasso.evaluate import alone

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
        return np.empty((c * (c + 3) // 2 + c + 1) * L * m)

    def point(self, x: Array, memory: Array) -> Point:
        """What g and its gradient need at the weights x (k, L); lives in ``memory``."""
        c, m = self.h.shape
        L = x.shape[1]
        rows, stop = [], 0
        for j in range(c + 1):  # the last one is a spare
            width = c + 1 - j if j < c else c + 1
            rows.append(memory[stop : (stop := stop + width * L * m)].reshape(width, L, m))
        spare = rows.pop()
        for j, row in enumerate(rows):
            row[:-1] = self.G[j, j:, None]
            row[-1] = self.h[j]
        z, beta, shrink = eliminate(rows, self.spread(x), spare)
        squares: Array = np.einsum("clm,clm->cl", z, z)
        fits = np.einsum("clm,cm->l", beta, self.h)
        data = self.energy - 0.5 * fits
        return Point(x, beta, z, data, self.summed(squares), rows, shrink, spare)

    def hessian(self, point: Point) -> Array:
        """(k, k, L) Hessians of g; completes the point's Q in place."""
        c, z = len(self.h), point.z
        complete(point.rows, self.spread(point.x), point.shrink, point.spare)
        H = np.empty((c, c, point.x.shape[1]))
        for j, row in enumerate(point.rows):
            weighted = np.multiply(row[:-1], z[j], out=point.spare[: c - j])
            np.einsum("blm,blm->bl", weighted, z[j:], out=H[j, j:])
            H[j + 1 :, j] = H[j, j + 1 :]
        if len(self.starts) <= c:
            H = np.add.reduceat(np.add.reduceat(H, self.starts[:-1], 0), self.starts[:-1], 1)
        return H

    @cached_property
    def curvature(self) -> Array:
        """(k,) mean over tasks of the trace of each group's scaled Gram matrix."""
        return self.summed(np.einsum("ccm->c", self.G) / self.h.shape[1])

    def select(self, groups: Index) -> Columns:
        """Only these groups, in this order."""
        cols = self.places(groups)
        starts = np.concatenate([[0], np.cumsum(self.dims[groups])])
        G = np.take(np.take(self.G, cols, axis=0), cols, axis=1)
        return Columns(G, self.h[cols], starts, self.energy)

    def alone(self, lam: Array) -> Array:
        """(k, L) weights that each group would have without the others, roughly."""
        energies = self.summed(np.einsum("cm,cm->c", self.h, self.h))
        return alone(energies[:, None], lam, self.curvature[:, None])

    def places(self, groups: Index) -> Index:
        """The columns of these groups."""
        if len(self.starts) > len(self.h):
            return groups
        return np.concatenate([np.arange(*self.starts[j : j + 2]) for j in groups])

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
    rows: list[Array]  # upper triangles and z, see `eliminate`, as also for
    shrink: Array  # (c, L, m)
    spare: Array  # (c + 1, L, m)

    def at(self, chosen: Index) -> Point:
        """Only these lambdas, as copies (in C order, unlike what indexing returns)."""

        def few(array: Array) -> Array:
            return np.take(array, chosen, axis=1)

        spare = self.spare.reshape(-1)[: self.spare.size // self.x.shape[1] * chosen.size]
        return Point(
            few(self.x),
            few(self.beta),
            few(self.z),
            self.data[chosen],
            few(self.scores),
            [few(row) for row in self.rows],
            few(self.shrink),
            spare.reshape(len(self.spare), chosen.size, -1),
        )

    def nearby(self, x: Array, step: Array) -> Array:
        """beta (c, L, m) at the columns' weights x, a small step from here; wrong by its square.

        The derivative of z = (I + G X)^-1 h is -Q dX z, with Q as the Hessian has left it.
        """
        moved, z = step[:, :, None] * self.z, self.z.copy()
        for j, row in enumerate(self.rows):
            z[j] -= np.einsum("blm,blm->lm", row[:-1], moved[j:])
            z[j + 1 :] -= np.multiply(row[1:-1], moved[j], out=self.spare[: len(row) - 2])
        beta: Array = x[:, :, None] * z
        return beta

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


def eliminate(rows: list[Array], x: Array, spare: Array) -> tuple[Array, Array, Array]:
    """Solve (I + G X) z = h for weights x (c, L): z, beta = x z and 1 / (1 + x Q), all (c, L, m).

    Row j (c + 1 - j, L, m) holds G from the diagonal on, and h at its end. A weight x_j on column j
    changes Q to Q - Q_j Q_j' x_j / (1 + x_j Q_jj) and z alike. Row j is left as it was before its
    own weight was absorbed.
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
            rows[i] -= np.multiply(scaled[i - j - 1], row[i - j :], out=spare[: c + 1 - i])
    for j in range(c - 1, -1, -1):
        np.subtract(rows[j][-1], np.einsum("blm,blm->lm", rows[j][1:-1], beta[j + 1 :]), out=z[j])
        z[j] *= shrink[j]
        np.multiply(x[j, :, None], z[j], out=beta[j])
    return z, beta, shrink


def complete(rows: list[Array], x: Array, shrink: Array, spare: Array) -> None:
    """Carry on from `eliminate` to the upper triangles of Q.

    Row j itself is only shrunk, by 1 / (1 + x_j Q_jj), which does not cancel.
    """
    for j, own in enumerate(rows):
        above = np.empty((j, *own.shape[1:]))
        for i in range(j):
            above[i] = rows[i][j - i]
        pull = x[j, :, None] * shrink[j]
        for i, row in enumerate(rows[:j]):
            scaled = above[i] * pull
            row[: j - i] -= np.multiply(scaled, above[i:], out=spare[: j - i])
            row[j - i + 1 : -1] -= np.multiply(scaled, own[1:-1], out=spare[: len(own) - 2])
            np.multiply(above[i], shrink[j], out=row[j - i])
        own[:-1] *= shrink[j]


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
