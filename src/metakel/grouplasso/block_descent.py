r"""Block coordinate descent: the starting point of Newton's method.

With the other groups fixed, group j depends on the data through c_s = z_s^(j) + G_s,jj beta_s^(j).
In the eigenbasis of the G_s,jj (eigenvalues gamma) its minimiser is x c / (1 + gamma x), where x is
the root of the secular equation

.. math:: \sum_{s,i} \frac{c_{si}^2}{(1 + \gamma_{si} x)^2} = \lambda_j^2,

or zero if the left-hand side is at most lam_j^2 at x = 0. One or two sweeps separate most inactive
groups from the active ones before anything is factorised; approximate roots are enough for that.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.batch import Index, group_sums


def sweep(
    gram: Array,
    h: Array,
    starts: Index,
    lam: Array,
    *,
    sweeps: int = 2,
    root_steps: int = 2,
) -> Array:
    """Weights x (k,) after a few sweeps over k groups from zero, the strongest group first.

    Parameters
    ----------
    gram : (m, d, d) scaled Gram matrices 2/N Phi Phi'
    h : (m, d) scaled correlations 2/N Phi y
    starts : (k + 1,) where the columns of each group begin
    lam : (k,)
    sweeps : the first visits all groups, later ones those of positive weight
    root_steps : Newton steps towards each root in the first sweep; one less in every later one
    """
    G, z = np.ascontiguousarray(gram.transpose(1, 2, 0)), h.T.copy()  # tasks last
    strength = np.sqrt(group_sums(np.einsum("dm,dm->d", z, z), starts)) / lam
    x = np.zeros(lam.size)
    order = [j for j in np.argsort(-strength).tolist() if strength[j] > 1]
    blocks = {j: Block(G, slice(int(starts[j]), int(starts[j + 1]))) for j in order}
    for done in range(sweeps):
        for j in order:
            x[j] = blocks[j].minimise(z, float(lam[j]), float(x[j]), max(root_steps - done, 1))
        order = [j for j in order if x[j] > 0]
    return x


class Block:
    """One group, in the eigenbasis of its blocks of the Gram matrices G (d, d, m)."""

    def __init__(self, G: Array, cols: slice) -> None:
        self.cols, self.rows = cols, G[cols]
        self.vectors: Array | None = None
        if cols.stop == cols.start + 1:
            self.gamma = G[cols.start, cols]
        else:
            gamma, self.vectors = np.linalg.eigh(G[cols, cols].transpose(2, 0, 1))
            self.gamma = np.maximum(gamma.T, 0.0)
        self.beta: Array | None = None

    def minimise(self, z: Array, lam: float, x: float, steps: int) -> float:
        """The weight of this group with the others fixed; updates z (d, m)."""
        c = z[self.cols]
        if self.vectors is not None:
            c = np.einsum("sab,as->bs", self.vectors, c)
        if self.beta is not None:
            c = c + self.gamma * self.beta
        x = secular_root(c, self.gamma, lam, x=x, steps=steps)
        if x == 0.0 and self.beta is None:
            return x
        beta = c * (x / (1 + x * self.gamma))
        change = beta if self.beta is None else beta - self.beta
        self.beta = beta
        if self.vectors is None:
            z -= self.rows[0] * change
        else:
            change = np.einsum("sab,bs->as", self.vectors, change)
            z -= np.einsum("acs,as->cs", self.rows, change)
        return x


def secular_root(c: Array, gamma: Array, lam: float, *, x: float = 0.0, steps: int = 30) -> float:
    """The x >= 0 with sum c^2 / (1 + gamma x)^2 = lam^2, or 0 if the sum is smaller at x = 0.

    Newton's method on 1/sqrt(sum), which is concave and nearly linear. The first step ends left of
    the root, wherever it starts; later ones increase x without overshooting.
    """
    for _ in range(steps):
        if x:
            shrink = 1 / (1 + gamma * x)
            z, curvature = c * shrink, gamma * shrink
        else:
            z, curvature = c, gamma
        total = float(np.vdot(z, z))
        excess = sqrt(total) / lam
        if abs(excess - 1) <= 5e-7 or (excess < 1 and x == 0.0):
            break
        slope = float(np.vdot(z * z, curvature))  # minus half the derivative of the sum
        if slope <= 0.0:
            break
        x = max(x + total * (excess - 1) / slope, 0.0)
    return x
