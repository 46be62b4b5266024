"""Eq. 8 written out task by task, as slowly and plainly as possible, to hold the solver against."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from metakel.grouplasso import Problem


@dataclass(frozen=True)
class Data:
    """Ragged tasks: Phi[s] (n_s, d), y[s] (n_s,), p slices of the columns."""

    Phi: list
    y: list
    groups: list

    @property
    def N(self):
        return sum(v.size for v in self.y)

    @property
    def d(self):
        return self.Phi[0].shape[1]

    def problem(self, loss="points"):
        return Problem.from_tasks(self.Phi, self.y, self.groups, loss=loss)

    def gram_problem(self, loss="points"):
        grams = [np.stack([F[:, g] @ F[:, g].T for g in self.groups]) for F in self.Phi]
        return Problem.from_grams(grams, self.y, loss=loss)

    def stacked(self):
        """The dense block-diagonal design (Figure 7) with one column per task and feature."""
        m, d = len(self.Phi), self.d
        design, row = np.zeros((self.N, m * d)), 0
        for s, F in enumerate(self.Phi):
            design[row : row + len(F), s * d : (s + 1) * d] = F
            row += len(F)
        return design, np.concatenate(self.y)

    def residual(self, beta):
        return [v - F @ b for F, v, b in zip(self.Phi, self.y, beta, strict=True)]

    def z(self, r):
        return 2 / self.N * np.array([F.T @ v for F, v in zip(self.Phi, r, strict=True)])

    def norms(self, table):
        """(p,) norms of the groups of an (m, d) table."""
        return np.array([np.linalg.norm(table[:, g]) for g in self.groups])

    def primal(self, beta, lam):
        loss = sum(v @ v for v in self.residual(beta)) / self.N
        return loss + np.sum(lam * self.norms(beta))

    def dual_point(self, beta, lam):
        """theta proportional to the residual and feasible, scaled as well as it can be."""
        r = self.residual(beta)
        longest = 1 / np.max(self.norms(self.z(r)) / lam)
        yr = sum(v @ w for v, w in zip(self.y, r, strict=True))
        share = np.clip(yr / sum(v @ v for v in r), -longest, longest)
        return [2 * share / self.N * v for v in r]

    def dual(self, theta):
        inner = sum(v @ t for v, t in zip(self.y, theta, strict=True))
        return inner - self.N / 4 * sum(t @ t for t in theta)

    def kkt(self, beta, lam):
        """Largest violation of B.6 and B.7, relative to lambda."""
        z, lam = self.z(self.residual(beta)), np.broadcast_to(lam, (len(self.groups),))
        worst = 0.0
        for g, strength, eta in zip(self.groups, lam, self.norms(beta), strict=True):
            if eta > 0:
                away = np.linalg.norm(z[:, g] - strength * beta[:, g] / eta) / strength
            else:
                away = np.linalg.norm(z[:, g]) / strength - 1
            worst = max(worst, away)
        return worst


def cut(dims):
    """Slices of the given widths, one after another."""
    edges = np.concatenate([[0], np.cumsum(dims)])
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


def draw(seed, sizes, dims, *, active=2, noise=0.3):
    """A random problem in which the first groups (in a random order) carry signal."""
    rng = np.random.default_rng(seed)
    groups, d = cut(dims), int(sum(dims))
    signal = np.zeros((len(sizes), d))
    for j in rng.permutation(len(dims))[:active]:
        signal[:, groups[j]] = rng.standard_normal((len(sizes), dims[j]))
    Phi = [rng.standard_normal((n, d)) for n in sizes]
    y = [F @ b + noise * rng.standard_normal(len(F)) for F, b in zip(Phi, signal, strict=True)]
    return Data(Phi, y, groups)
