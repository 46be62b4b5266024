r"""The path as a power series in lambda around least squares, in the guessed order of entries.

Let lam_j = sigma w_j. As long as the same groups are active, their coefficients are analytic in
sigma, down to sigma = 0. With the scaled Gram matrices G and correlations h of their columns, B.6
says for every task

.. math:: (G_s + \sigma E) \beta_s = h_s, \qquad E_j = w_j / \|\beta^{(j)}\|,

so that with beta = sum_k sigma^k b_k, ||beta^(j)|| = sum_k sigma^k n_k and E = sum_k sigma^k e_k

.. math:: b_0 = G^{-1} h, \qquad b_k = -G^{-1} \sum_{i<k} e_i b_{k-1-i},

and e and n follow from q = ||beta^(j)||^2 as w q^(-1/2) and q e / w, order by order. The nearest
singularities, where G + sigma E has no inverse, have negative real parts. Therefore the series is
summed in t = sigma / (sigma + tau), which moves them away from the path.

Groups enter one after another from lambda_max down; stepwise least squares guesses the order. Each
of these stages has its own series, and ends where the norm of one of its groups reaches zero. All
of this is heuristic: `path` verifies the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso.path.batched_newton import ActiveColumns
from metakel.grouplasso.problem import Index, group_starts, group_sums

NEAR = 3.0  # entries below this multiple of the lowest sigma are computed more accurately
SINGULAR = 1e-9  # pivots below this, relative to the diagonal, are zero


class Stages:
    """Groups in the order in which they enter; a stage is what is active after an entry.

    In this order, let L L' be the Cholesky factorisation of the columns' Gram matrix in every task.
    The inverse of a leading block is a partial sum over the rows of L^-1, so one factorisation
    serves all stages.
    """

    def __init__(self, everything: ActiveColumns, most: int) -> None:
        d, m = everything.h.shape
        self.everything = everything
        self.groups: list[int] = []
        self.ends: list[int] = []  # number of columns of each stage
        self.columns: list[int] = []
        self.top = 0.0  # sigma at which the first group enters
        self.floor = 0.0  # sigma below which further groups would enter
        self._residual = everything.h.copy()  # (d, m) correlations with the residual
        self._L = np.empty((most, d, m))  # the columns of L, extended to all d rows
        self._rows = np.zeros((most, most, m))  # L^-1
        self._fit = np.empty((most, m))  # L^-1 h

    def inverses(self) -> Array:
        """(S, c, c, m) inverse Gram matrices at every stage, padded with zeros."""
        rows = self._rows[: self.ends[-1], : self.ends[-1]]
        return self._at_ends(rows[:, :, None] * rows[:, None])

    def least_squares(self) -> Array:
        """(S, c, m) coefficients at every stage, padded with zeros."""
        c = self.ends[-1]
        return self._at_ends(self._rows[:c, :c] * self._fit[:c, None])

    def _at_ends(self, terms: Array) -> Array:
        sums: Array = np.cumsum(terms, axis=0)
        return sums if len(sums) == len(self.ends) else sums[np.array(self.ends) - 1]

    def next_group(self, shape: Array, lowest: float) -> tuple[int, float]:
        """The group that correlates most with the residual, and the sigma at which it would enter.

        Close to ``lowest``, the residual is that of the penalised fit, to first order in sigma.
        """
        everything, z, groups = self.everything, self._residual, self.groups

        def scores_of(z: Array) -> Array:
            scores = group_sums(np.einsum("cm,cm->c", z, z), everything.starts) / shape**2
            scores[groups] = 0.0
            return scores

        scores = scores_of(z)
        if groups and scores.max() <= (NEAR * lowest) ** 2:
            own = everything.select(np.array(groups))
            beta = self._solve(own.h)
            norms = np.sqrt(group_sums(np.einsum("cm,cm->c", beta, beta), own.starts))
            pull = self._solve(own.spread(shape[groups] / norms)[:, None] * beta)
            z = z + lowest * np.einsum("dcm,cm->dm", everything.G[:, self.columns], pull)
            scores = scores_of(z)
        j = int(scores.argmax())
        return j, sqrt(scores[j])

    def _solve(self, b: Array) -> Array:
        """G^-1 b for b (c, m)."""
        rows = self._rows[: len(b), : len(b)]
        found: Array = np.einsum("iam,im->am", rows, np.einsum("iam,am->im", rows, b))
        return found

    def add(self, group: int) -> bool:
        """Add a group, unless one of its columns is a linear combination of the others."""
        starts = self.everything.starts
        if not all(self._add_column(j) for j in range(int(starts[group]), int(starts[group + 1]))):
            return False
        self.groups.append(group)
        self.ends.append(len(self.columns))
        return True

    def _add_column(self, j: int) -> bool:
        k, G = len(self.columns), self.everything.G
        before = self._L[:k, j]
        new = G[:, j] - np.einsum("idm,im->dm", self._L[:k], before)
        if not (new[j] > SINGULAR * G[j, j]).all():
            return False
        scale = 1 / np.sqrt(new[j])
        np.multiply(new, scale, out=self._L[k])
        np.multiply(self._residual[j], scale, out=self._fit[k])
        self._residual -= self._L[k] * self._fit[k]
        np.einsum("im,ibm->bm", before, self._rows[:k, :k], out=self._rows[k, :k])
        self._rows[k, :k] *= -scale
        self._rows[k, k] = scale
        self.columns.append(j)
        return True


def find_stages(everything: ActiveColumns, shape: Array, lowest: float, most: int) -> Stages:
    """Add the group that correlates most with the residual, again and again.

    Stops at sigma = ``lowest``, at ``most`` columns, or at linearly dependent ones.
    """
    stages = Stages(everything, most)
    while True:
        j, stages.floor = stages.next_group(shape, lowest)
        stages.top = stages.top or stages.floor
        width = int(everything.starts[j + 1] - everything.starts[j])
        full = len(stages.columns) + width > most
        if not stages.floor > lowest or full or not stages.add(j):
            return stages


TERMS = 16
REACH = 1.8  # tau relative to the first-order guess of where the weakest group of a stage enters
GROWTH = np.array([[4.0], [2.0], [1.0]])  # approximate growth of the last coefficients in t
DOUBT = 10.0  # a norm below this multiple of the last term may be zero
VAGUE = 1e-3  # largest last term, relative to the norm at sigma = 0, that shows where a norm ends
ROUNDING = 1e-12  # relative to lambda_max
STACK = 5000  # systems at a time, which bounds the memory
# Miller's recurrence for q^(-1/2): e_k = sum_i MILLER[k, i - 1] q_i e_(k-i) / q_0
MILLER = np.arange(1, TERMS + 1) / (2.0 * np.maximum(np.arange(TERMS + 1), 1)[:, None]) - 1
# Product of two series: index k - i of e_(k-i), and where it exists.
LAG = np.subtract.outer(np.arange(TERMS + 1), np.arange(TERMS + 1))
LATER = (LAG >= 0)[:, :, None, None]
# sigma^k = tau^k sum_j BINOMIALS[j, k] t^j
BINOMIALS = np.array(
    [
        [comb(j - 1, k - 1) if j and k else j == k for k in range(TERMS + 1)]
        for j in range(TERMS + 1)
    ],
    np.float64,
)


@dataclass(frozen=True)
class Series:
    """Coefficients up to order K: norms (S, K + 1, k), and beta (K + 1, c, m) of every stage."""

    beta: list[Array]
    norms: Array


@dataclass(frozen=True)
class SeriesSums:
    """The sums at L values of sigma, each from the stage that is valid there."""

    norms: Array  # (L, k)
    beta: Array  # (c, m, L)
    error: Array  # (L,) error of the objective, estimated by the last terms
    clear: NDArray[np.bool]  # (L,) whether it is clear which norms are zero


def expand(stages: Stages, dims: Index, shape: Array) -> Series:
    """The series of all stages; ``dims`` and ``shape`` (k,) belong to their groups."""
    inverses, starts = stages.inverses(), stages.least_squares()
    together = max(1, STACK // starts.shape[2])
    parts = [
        _expand(inverses[s : s + together], starts[s : s + together], dims, shape)
        for s in range(0, len(starts), together)
    ]
    beta = [part[:, s] for part, _ in parts for s in range(part.shape[1])]
    beta = [padded[:, :end] for padded, end in zip(beta, stages.ends, strict=True)]
    return Series(beta, np.concatenate([norms for _, norms in parts]))


def _expand(inverses: Array, start: Array, dims: Index, shape: Array) -> tuple[Array, Array]:
    """beta (K + 1, S, c, m) and norms (S, K + 1, k) of some stages, padded with zeros."""
    S, c, m = start.shape
    Q, beta = -inverses, np.empty((TERMS + 1, S, c, m))
    beta[0] = start
    single, starts = c == len(dims), group_starts(dims)
    squares, pulls = np.empty((2, TERMS + 1, S, len(dims)))
    spread = pulls if single else np.empty((TERMS + 1, S, c))
    squares[0] = group_sums(np.einsum("scm,scm->sc", beta[0], beta[0]), starts, axis=1)
    inverse = np.divide(1.0, squares[0], out=np.ones_like(squares[0]), where=squares[0] > 0)
    pulls[0] = shape * np.sqrt(inverse)
    for k in range(1, TERMS + 1):
        if not single:
            spread[k - 1] = pulls[k - 1].repeat(dims, axis=1)
        pulled = np.einsum("isc,iscm->scm", spread[k - 1 :: -1], beta[:k])
        np.einsum("sabm,sbm->sam", Q, pulled, out=beta[k])
        products = np.einsum("iscm,iscm->sc", beta[: k + 1], beta[k::-1])
        squares[k] = group_sums(products, starts, axis=1)
        found = np.einsum("i,isk,isk->sk", MILLER[k, :k], squares[1 : k + 1], pulls[k - 1 :: -1])
        np.multiply(found, inverse, out=pulls[k])
    norms = np.einsum("kisj,isj->skj", np.take(pulls, LAG, axis=0, mode="clip") * LATER, squares)
    return beta, norms / shape


def sum_up(series: Series, sigma: Array, shape: Array, top: float) -> SeriesSums:
    """Sums at decreasing sigma (L,), for groups of weights ``shape``; zero from ``top`` on."""
    L, S, (_, c, m) = sigma.size, len(series.beta), series.beta[-1].shape
    idle = ~np.tri(S + 1, S, dtype=np.bool)  # per stage; the last row, read as stage -1, is zero
    idle[S] = True
    powers, in_t = _powers(series.norms, idle[:S], sigma)
    terms = np.matmul(in_t, series.norms)
    norms = np.matmul(powers, terms)
    # The largest of three terms, because a single one may be small by chance.
    tails = powers[:, :, -1:] * np.max(np.abs(terms[:, -3:]) * GROWTH, axis=1)[:, None]
    gone = ~((norms > 0) | idle[:S, None]).all(axis=2)
    gone |= sigma >= top * (1 - ROUNDING)
    # A stage is valid below the smallest sigma at which one of its norms is not positive.
    starts = np.where(gone.any(axis=1), L - gone[:, ::-1].argmax(axis=1), 0)
    beta, stage, stop = np.zeros((c, m, L)), np.full(L, -1), L
    for s in range(S - 1, -1, -1):
        if (first := int(starts[s])) < stop:
            weights, parts = powers[s, first:stop] @ in_t[s], series.beta[s]
            found = parts.reshape(len(parts), -1).T @ weights.T
            beta[: parts.shape[1], :, first:stop] = found.reshape(-1, m, stop - first)
            stage[first:stop] = s
            stop = first
    absent, here = idle[stage], (stage, np.arange(L))
    own, tail = np.where(absent, 0.0, norms[here]), np.where(absent, 0.0, tails[here])
    clear = ((own > DOUBT * tail) | absent).all(axis=1)
    # Where a stage ends: did a norm reach zero, or does the series not converge there?
    ends = tails[np.arange(S), np.maximum(starts - 1, 0)]
    honest = ((ends < VAGUE * terms[:, 0]) | idle[:S]).all(axis=1)
    all_above = np.append(np.logical_and.accumulate(honest[::-1])[::-1], True)
    return SeriesSums(own, beta, sigma * (tail @ shape), clear & all_above[stage + 1])


def _powers(norms: Array, idle: NDArray[np.bool], sigma: Array) -> tuple[Array, Array]:
    """Powers of t (S, L, K + 1), and the matrices from coefficients in sigma to those in t."""
    shrink = (-norms[:, 1] / np.where(idle, 1.0, norms[:, 0])).max(axis=1)
    tau = REACH / np.maximum(shrink, 1 / sigma[0])
    powers = np.ones((len(idle), sigma.size, TERMS + 1))
    powers[:, :, 1:] = (sigma / (sigma + tau[:, None]))[:, :, None]
    np.multiply.accumulate(powers, axis=2, out=powers)
    return powers, BINOMIALS * (tau[:, None] ** np.arange(TERMS + 1))[:, None]
