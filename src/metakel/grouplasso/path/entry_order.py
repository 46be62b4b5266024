"""Guess the order in which groups enter a path, by stepwise least squares."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.batch import group_sums
from metakel.grouplasso.path.batched_newton import ActiveColumns

NEAR = 3.0  # entries below this multiple of the lowest sigma are computed more accurately
SINGULAR = 1e-9  # pivots below this, relative to the diagonal, are zero


@dataclass(frozen=True)
class Stages:
    """Groups in the order in which they enter; a stage is what is active after an entry.

    In this order, let L L' be the Cholesky factorisation of the columns' Gram matrix in every task.
    The inverse of a leading block is a partial sum over the rows of L^-1, so one factorisation
    serves all stages.
    """

    groups: list[int]
    columns: list[int]
    ends: list[int]  # number of columns of each stage
    rows: Array  # (c, c, m) L^-1
    fit: Array  # (c, m) L^-1 h
    top: float  # sigma at which the first group enters
    floor: float  # sigma below which further groups would enter

    def inverses(self) -> Array:
        """(S, c, c, m) inverse Gram matrices at every stage, padded with zeros."""
        sums: Array = np.cumsum(self.rows[:, :, None] * self.rows[:, None], axis=0)
        return sums if len(sums) == len(self.ends) else sums[np.array(self.ends) - 1]

    def least_squares(self) -> Array:
        """(S, c, m) coefficients at every stage, padded with zeros."""
        sums: Array = np.cumsum(self.rows * self.fit[:, None], axis=0)
        return sums if len(sums) == len(self.ends) else sums[np.array(self.ends) - 1]


def find_stages(everything: ActiveColumns, shape: Array, lowest: float, most: int) -> Stages:
    """Add the group that correlates most with the residual, again and again.

    Stops at sigma = ``lowest``, at ``most`` columns, or at linearly dependent ones.
    """
    factor = _EntryFactor(everything, most)
    groups: list[int] = []
    ends: list[int] = []
    top = 0.0
    while True:
        j, score = _next(factor, groups, shape, lowest)
        top = top or score
        new = range(int(everything.starts[j]), int(everything.starts[j + 1]))
        grown = score > lowest and len(factor.columns) + len(new) <= most
        if not grown or not all(factor.add(column) for column in new):
            c = ends[-1] if ends else 0
            rows, fit = factor.rows[:c, :c], factor.fit[:c]
            return Stages(groups, factor.columns[:c], ends, rows, fit, top, score)
        groups.append(j)
        ends.append(len(factor.columns))


class _EntryFactor:
    """Cholesky factor L of the columns added so far, its inverse, and the residual correlations."""

    def __init__(self, everything: ActiveColumns, most: int) -> None:
        d, m = everything.h.shape
        self.everything = everything
        self.columns: list[int] = []
        self.residual = everything.h.copy()  # (d, m) correlations with the residual
        self.L = np.empty((most, d, m))  # the columns of L, extended to all d rows
        self.rows = np.zeros((most, most, m))
        self.fit = np.empty((most, m))

    def add(self, j: int) -> bool:
        """Add column j, unless it is a linear combination of the others."""
        k, G = len(self.columns), self.everything.G
        before = self.L[:k, j]
        new = G[:, j] - np.einsum("idm,im->dm", self.L[:k], before)
        if not (new[j] > SINGULAR * G[j, j]).all():
            return False
        scale = 1 / np.sqrt(new[j])
        np.multiply(new, scale, out=self.L[k])
        np.multiply(self.residual[j], scale, out=self.fit[k])
        self.residual -= self.L[k] * self.fit[k]
        np.einsum("im,ibm->bm", before, self.rows[:k, :k], out=self.rows[k, :k])
        self.rows[k, :k] *= -scale
        self.rows[k, k] = scale
        self.columns.append(j)
        return True

    def solve(self, b: Array) -> Array:
        """G^-1 b for b (c, m)."""
        rows = self.rows[: len(b), : len(b)]
        found: Array = np.einsum("iam,im->am", rows, np.einsum("iam,am->im", rows, b))
        return found


def _next(
    factor: _EntryFactor, groups: list[int], shape: Array, lowest: float
) -> tuple[int, float]:
    """The group that correlates most with the residual, and the sigma at which it would enter.

    Close to ``lowest``, the residual is that of the penalised fit, to first order in sigma.
    """
    everything, z, columns = factor.everything, factor.residual, factor.columns

    def scores_of(z: Array) -> Array:
        scores = group_sums(np.einsum("cm,cm->c", z, z), everything.starts) / shape**2
        scores[groups] = 0.0
        return scores

    scores = scores_of(z)
    if columns and scores.max() <= (NEAR * lowest) ** 2:
        own = everything.select(np.array(groups))
        beta = factor.solve(own.h)
        norms = np.sqrt(group_sums(np.einsum("cm,cm->c", beta, beta), own.starts))
        pull = factor.solve(own.spread(shape[groups] / norms)[:, None] * beta)
        z = z + lowest * np.einsum("dcm,cm->dm", everything.G[:, columns], pull)
        scores = scores_of(z)
    j = int(scores.argmax())
    return j, sqrt(scores[j])
