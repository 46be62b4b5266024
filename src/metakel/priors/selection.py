"""Which principal functions of past tasks to keep (Eq. 8), and how much they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso import Problem, lambda_max, path, solve, solve_square_root
from metakel.learn.rules import pivotal_lambda
from metakel.priors.moments import Moments

LEADING = 100
# Lambda as shares of lambda_max among which held-out tasks choose; the last is the default where
# there are too few tasks to choose.
SHARES = (0.1, 0.03, 0.01, 0.003)
DEFAULT_SHARE = 0.01
# Selection needs no more digits than its weights, which are not those of the lasso.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Principal:
    """Principal functions psi'u_j: directions (r, J) and second moments eta (J,), decreasing."""

    directions: Array
    eta: Array

    def keep(self, active: NDArray[np.intp]) -> Principal:
        """These functions only."""
        return Principal(self.directions[:, active], self.eta[active])


def principal_functions(known: Moments) -> Principal:
    """Eigenvectors of the second moment, the leading ones."""
    from scipy.linalg import eigh

    r = len(known.S)
    first = max(r - LEADING, 0)
    eta, U = eigh(known.S, subset_by_index=(first, r - 1))
    return Principal(np.ascontiguousarray(U[:, ::-1]), np.maximum(eta[::-1], 0))


def selection_problem(
    found: Principal, known: Moments, F: Sequence[Array], z: Sequence[Array]
) -> Problem:
    """Eq. 8 on root eta_j phi_j, each a group, for what the mean leaves; a free level per task."""
    scaled = found.directions * np.sqrt(found.eta)
    designs, values = [], []
    for F_s, z_s in zip(F, z, strict=True):
        Phi, rest = F_s @ scaled, z_s - F_s @ known.mu
        designs.append(Phi - Phi.mean(axis=0))  # projects the unpenalised constant out
        values.append(rest - rest.mean())
    return Problem.from_tasks(designs, values)


def select_along_path(problem: Problem, shares: Sequence[float]) -> list[NDArray[np.intp]]:
    """Active functions at these shares of lambda_max, which decrease."""
    top = lambda_max(problem)
    if top == 0.0:
        return [np.empty(0, dtype=np.intp) for _ in shares]
    lams = top * np.asarray(shares)
    return [solution.active for solution in path(problem, lams, tol=TOLERANCE)]


def select(problem: Problem, lam: str | float, share: float) -> NDArray[np.intp]:
    """Active functions at the share that held-out tasks chose, by the pivotal rule, or at lam."""
    if lam == "cv":
        start = [s for s in SHARES if s > share]
        return select_along_path(problem, [*start, share])[-1]
    if lam == "square-root":
        return solve_square_root(problem, pivotal_lambda(problem, delta=0.1), tol=1e-6)[0].active
    if isinstance(lam, str):
        raise InputError(f"lam is {lam!r}; expected 'cv', 'square-root' or a number")
    return solve(problem, lam, tol=TOLERANCE).active
