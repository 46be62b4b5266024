r"""The sums over tasks that the solver needs: its only access to the data.

With x_j = eta_j / lam_j and K_s(x) = sum_j x_j Phi_sj' Phi_sj, eliminating beta from Eq. 7 leaves

.. math:: g(x) = \frac1N \sum_s y_s^\top r_s + \tfrac12 \sum_j \lambda_j^2 x_j, \qquad
          r_s = \left(I + \tfrac2N K_s(x)\right)^{-1} y_s,

a convex function of p numbers whose data part does not depend on lambda. Here r is the residual of
beta^(j) = x_j z^(j) with z = (2/N) Phi r, so that dg/dx_j = (lam_j^2 - ||z^(j)||^2) / 2.

The tasks are coupled only through the p group norms, so we optimise those p numbers directly with
projected Newton (`newton`). One iteration costs m small factorisations: of the Gram matrices of the
active columns, or of n x n matrices where these are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from metakel._arrays import Array
from metakel.grouplasso.batch import Index


@dataclass(frozen=True)
class Residual:
    """The quantities of the duality gap, recomputed from the raw data."""

    scores: Array  # (p,) squared norms of z^(j)
    norms: Array  # (p,) norms of beta^(j)
    square: float  # ||r||^2 / N
    inner: float  # y'r / N


class Evaluator(Protocol):
    """Sums over tasks at a current point x, for groups of a growing working set.

    ``work`` holds the groups of the working set. ``active``, ``curvature`` and the arguments of
    `at` and `hessian` refer to groups by their position in it. A new evaluator is at x = 0 with an
    empty working set.
    """

    p: int
    energy: float  # ||y||^2 / N
    rough: bool  # whether iterations are so costly that early subproblems are solved loosely
    work: Index
    active: Index  # positions of the groups with x > 0 at the current point
    curvature: Array  # (|work|,) trace of each group's scaled Gram matrix, averaged over tasks

    def extend(self, groups: Index) -> None:
        """Add groups to the working set; their weight at the current point is zero."""
        ...

    def start(self, lam: Array) -> Array:
        """Initial guess of x over the working set."""
        ...

    def at(self, active: Index, x: Array) -> tuple[float, Array]:
        """Move to x > 0 on ``active``: y'r/N and the squared norms of z over the working set."""
        ...

    def hessian(self, groups: Index) -> Array:
        """Hessian of g at the current point, over ``groups``.

        They must contain the active ones, and may contain groups of weight zero.
        """
        ...

    def residual(self) -> Residual:
        """The quantities of the duality gap at the current point, from raw residuals."""
        ...

    def misfit(self, lam: Array) -> Array:
        """||z^(j) - lam_j beta^(j)/||beta^(j)|| || of the active groups, from raw data (B.6).

        Valid after `residual`.
        """
        ...

    def beta(self) -> Array | None:
        """(m, d) coefficients at the current point; None in kernel mode."""
        ...

    def residuals(self) -> list[Array]:
        """y - f where `residual` was last called: one padded (m_b, n_b) array per batch."""
        ...


def independent_weights(scores: Array, lam: Array, curvature: Array) -> Array:
    """The weight of each group if it were the only one, for tasks of equal curvature."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scores > lam * lam, (np.sqrt(scores) / lam - 1) / curvature, 0.0)
