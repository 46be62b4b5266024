r"""Exact block descent: one group after another, each to its own minimum.

With the other groups fixed, group j sees c_s = z_s^(j) + G_s,jj beta_s^(j). In the eigenbasis of
the G_s,jj (eigenvalues gamma) its minimiser is c / (1/x + gamma) x^0, with x the root of the
secular equation

.. math:: \sum_{s,i} \frac{c_{si}^2}{(1 + \gamma_{si} x)^2} = \lambda_j^2,

or zero if the left-hand side is below lam_j^2 already at x = 0. A sweep tells most idle groups from
the active ones before any factorisation, which is what Newton's method is started with; roots need
not be exact for that.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sweep(
    gram: Array,
    h: Array,
    starts: NDArray[np.intp],
    lam: Array,
    *,
    sweeps: int = 2,
    climbs: int = 2,
) -> Array:
    """Weights x (k,) after sweeps from zero over k groups, strongest first.

    Parameters
    ----------
    gram : (m, d, d) scaled Gram matrices 2/N Phi Phi'
    h : (m, d) scaled correlations 2/N Phi y
    starts : (k + 1,) where the columns of each group begin
    lam : (k,)
    sweeps : the first over all groups, later ones over those that have a weight
    climbs : steps towards each root in the first sweep; later ones take one less
    """
    G, z = np.ascontiguousarray(gram.transpose(1, 2, 0)), h.T.copy()  # tasks last
    strength = np.sqrt(np.add.reduceat(np.einsum("dm,dm->d", z, z), starts[:-1])) / lam
    x = np.zeros(lam.size)
    order = [j for j in np.argsort(-strength).tolist() if strength[j] > 1]
    blocks = {j: Block(G, slice(int(starts[j]), int(starts[j + 1]))) for j in order}
    for again in range(sweeps):
        for j in order:
            x[j] = blocks[j].minimise(z, float(lam[j]), float(x[j]), max(climbs - again, 1))
        order = [j for j in order if x[j] > 0]
    return x


class Block:
    """One group in the eigenbasis of its blocks of G, the Gram matrices (d, d, m)."""

    def __init__(self, G: Array, cols: slice) -> None:
        self.cols, self.rows = cols, G[cols]
        self.vectors: Array | None = None
        if cols.stop == cols.start + 1:
            self.gamma = G[cols.start, cols]
        else:
            gamma, self.vectors = np.linalg.eigh(G[cols, cols].transpose(2, 0, 1))
            self.gamma = np.maximum(gamma.T, 0.0)
        self.beta: Array | None = None

    def minimise(self, z: Array, lam: float, x: float, climbs: int) -> float:
        """The weight of this group with the others fixed; z (d, m) follows."""
        c = z[self.cols]
        if self.vectors is not None:
            c = np.einsum("sab,as->bs", self.vectors, c)
        if self.beta is not None:
            c = c + self.gamma * self.beta
        x = secular_root(c, self.gamma, lam, x=x, climbs=climbs)
        if x == 0.0 and self.beta is None:
            return x
        beta = c * (x / (1 + x * self.gamma))
        moved = beta if self.beta is None else beta - self.beta
        self.beta = beta
        if self.vectors is None:
            z -= self.rows[0] * moved
        else:
            moved = np.einsum("sab,bs->as", self.vectors, moved)
            z -= np.einsum("acs,as->cs", self.rows, moved)
        return x


def secular_root(c: Array, gamma: Array, lam: float, *, x: float = 0.0, climbs: int = 30) -> float:
    """The x >= 0 at which sum c^2 / (1 + gamma x)^2 = lam^2; 0 if the sum is below at x = 0.

    Newton's method on 1/sqrt(sum), which is concave and nearly linear: from anywhere it lands left
    of the root, and climbs from there without overshooting.
    """
    for _ in range(climbs):
        if x:
            shrink = 1 / (1 + gamma * x)
            z, bent = c * shrink, gamma * shrink
        else:
            z, bent = c, gamma
        total = float(np.vdot(z, z))
        excess = sqrt(total) / lam
        if abs(excess - 1) <= 5e-7 or (excess < 1 and x == 0.0):
            break
        slope = float(np.vdot(z * z, bent))  # minus half the derivative of the sum
        if slope <= 0.0:
            break
        x = max(x + total * (excess - 1) / slope, 0.0)
    return x
