r"""Exact block descent: one group after another, each to its own minimum.

With the other groups fixed, group j sees c_s = z_s^(j) + G_s,jj beta_s^(j). In the eigenbasis of
the G_s,jj (eigenvalues gamma) its minimiser is c / (1/x + gamma) x^0, with x the root of the
secular equation

.. math:: \sum_{s,i} \frac{c_{si}^2}{(1 + \gamma_{si} x)^2} = \lambda_j^2,

or zero if the left-hand side is below lam_j^2 already at x = 0. A sweep tells most idle groups from
the active ones before any factorisation, which is what Newton's method is started with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sweep(gram: Array, h: Array, starts: NDArray[np.intp], lam: Array) -> Array:
    """Weights x (k,) after one sweep from zero over k groups, strongest first.

    Parameters
    ----------
    gram : (m, d, d) scaled Gram matrices 2/N Phi Phi'
    h : (m, d) scaled correlations 2/N Phi y
    starts : (k + 1,) where the columns of each group begin
    lam : (k,)
    """
    z = h.copy()
    x = np.zeros(lam.size)
    strength = np.add.reduceat(np.einsum("sd,sd->d", h, h), starts[:-1]) / lam**2
    for j in np.argsort(-strength):
        if strength[j] <= 1:
            break
        cols = slice(int(starts[j]), int(starts[j + 1]))
        block, c = gram[:, cols, cols], z[:, cols]
        if c.shape[1] == 1:
            gamma, rotated = block[:, 0], c
        else:
            gamma, vectors = np.linalg.eigh(block)
            rotated = np.einsum("sab,sa->sb", vectors, c)
        x[j] = secular_root(rotated * rotated, np.maximum(gamma, 0.0), lam[j])
        if x[j] > 0:
            rotated = rotated * (x[j] / (1 + x[j] * gamma))
            beta = rotated if c.shape[1] == 1 else np.einsum("sab,sb->sa", vectors, rotated)
            z -= np.matmul(beta[:, None, :], gram[:, cols, :])[:, 0, :]
    return x


def secular_root(squares: Array, gamma: Array, lam: float) -> float:
    """The x >= 0 at which sum squares / (1 + gamma x)^2 = lam^2; 0 if the sum is below at x = 0.

    Newton's method on 1/sqrt(sum), which is concave and nearly linear, so it climbs to the root
    from the left without overshooting.
    """
    x = 0.0
    for _ in range(30):
        shrink = 1 / (1 + gamma * x)
        terms = squares * shrink * shrink
        total = float(terms.sum())
        excess = total / (lam * lam)
        if excess <= 1 + 1e-6:
            break
        slope = float(np.vdot(terms, gamma * shrink))  # minus half the derivative of the sum
        if slope <= 0.0:
            break
        x += total * (np.sqrt(excess) - 1) / slope
    return x
