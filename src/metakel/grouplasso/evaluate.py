r"""The sums over tasks that the solver asks for, and nothing else of the data.

With x_j = eta_j / lam_j and K_s(x) = sum_j x_j Phi_sj' Phi_sj, eliminating beta from Eq. 7 leaves

.. math:: g(x) = \frac1N \sum_s y_s^\top r_s + \tfrac12 \sum_j \lambda_j^2 x_j, \qquad
          r_s = \left(I + \tfrac2N K_s(x)\right)^{-1} y_s,

a convex function of p numbers whose data part knows no lambda. Here r is the residual of
beta^(j) = x_j z^(j) with z = (2/N) Phi r, so that dg/dx_j = (lam_j^2 - ||z^(j)||^2) / 2.

Tasks meet only in those p squared norms and in the Hessian, so a round costs m small
factorisations: of the active columns' Gram matrices, or n x n where that is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Residual:
    """What the certificate needs, recomputed from the raw data."""

    scores: Array  # (p,) squared norms of z^(j)
    norms: Array  # (p,) norms of beta^(j)
    square: float  # ||r||^2 / N
    inner: float  # y'r / N


class Evaluator(Protocol):
    """Sums over tasks. ``active`` names groups by their place in ``work``, the working set.

    A new one stands at x = 0 with an empty working set.
    """

    p: int
    energy: float  # ||y||^2 / N
    rough: bool  # whether rounds are costly enough to be solved roughly while groups still enter
    work: Index
    active: Index  # where `at` was last called, as places in work
    curvature: Array  # (|work|,) mean over tasks of the trace of each group's scaled Gram matrix

    def extend(self, groups: Index) -> None:
        """Add groups to the working set, with weight zero where `at` was last called."""
        ...

    def start(self, lam: Array) -> Array:
        """A first guess of x over the working set."""
        ...

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        """y'r/N and the squared norms of z over the working set, for x > 0 on ``active``."""
        ...

    def hessian(self, groups: Index) -> Array:
        """Hessian of g over these places in work, where `at` was last called.

        They contain the active ones; groups of weight zero have curvature, too.
        """
        ...

    def residual(self) -> Residual:
        """The certificate's quantities where `at` was last called, from raw residuals."""
        ...

    def misfit(self, lam: Array) -> Array:
        """||z^(j) - lam_j beta^(j)/||beta^(j)|| || of the active groups, from raw data (B.6)."""
        ...

    def beta(self) -> Array | None:
        """(m, d) coefficients where `at` was last called; None in kernel mode."""
        ...

    def residuals(self) -> list[Array]:
        """y - f where `residual` was last called, one padded (m_b, n_b) array per batch."""
        ...


def alone(scores: Array, lam: Array, curvature: Array) -> Array:
    """The weight each group would take without the others, for tasks of equal curvature."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scores > lam * lam, (np.sqrt(scores) / lam - 1) / curvature, 0.0)
