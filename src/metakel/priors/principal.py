r"""What past tasks have in common and where they differ.

Task s has standardised values z_s = F_s w_s + noise with F_s = psi(X_s) (n_s, r), and
coefficients w_s = mu + d_s with mu and all d_s a priori N(0, I). The posterior mean of mu given
all tasks together is the common shape; one step of expectation-maximisation for the second moment
of d_s says where tasks differ. More steps overfit. Its eigenvectors are the principal functions,
and the group lasso (Eq. 8) selects which of them are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.gp.posterior import fit_matern52
from metakel.gp.processes import LearnedProcess
from metakel.grouplasso import Problem, lambda_max, path, solve, solve_square_root
from metakel.kernels.nystrom import NystromFeatures, choose_basis, spread_rows
from metakel.learn.rules import pivotal_lambda
from metakel.priors.standardize import StandardizedTasks

FIT_TASKS, FIT_ROWS = 20, 50
LEADING = 100
# Lambda as ratios of lambda_max among which held-out tasks choose; the default is for histories
# with too few tasks to choose.
LAM_RATIOS = (0.1, 0.03, 0.01, 0.003)
DEFAULT_LAM_RATIO = 0.01
# Selection needs no more digits than its weights, which are not those of the lasso.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What each task says about its coefficients: ridge estimate and what it leaves open."""

    w: Array  # (m, r)
    resolved: Sequence[Array]  # (rank, r) each: A_s'A_s = I - C_s, C_s the posterior covariance


@dataclass(frozen=True, eq=False)
class TaskFeatures:
    """Tasks in common features: F_s (n_s, r) and what each says about its coefficients."""

    tasks: StandardizedTasks
    basis: NystromFeatures
    F: Sequence[Array]
    coefficients: Coefficients

    @property
    def m(self) -> int:
        """How many tasks there are."""
        return self.tasks.m

    def of(self, chosen: Sequence[int]) -> tuple[list[Array], list[Array]]:
        """Features and standardised values of some tasks."""
        return [self.F[s] for s in chosen], [self.tasks.z[s] for s in chosen]


def featurize(tasks: StandardizedTasks) -> TaskFeatures:
    """Fit the shared kernel and its features to every other task; the rest can judge it.

    A handful of numbers are fitted, for which half of the tasks are plenty; the others stay
    untouched for the norm bound.
    """
    training = list(range(0, tasks.m, 2)) if tasks.m >= 4 else list(range(tasks.m))
    fitted = spread_rows(np.array(training), FIT_TASKS)
    rows = [spread_rows(np.arange(len(tasks.z[s])), FIT_ROWS) for s in fitted]
    shared = fit_matern52(
        [tasks.X[s][i] for s, i in zip(fitted, rows, strict=True)],
        [tasks.z[s][i] for s, i in zip(fitted, rows, strict=True)],
    )
    basis = choose_basis(shared, np.concatenate([tasks.X[s] for s in training]))
    F = [np.ascontiguousarray(basis.features(X)) for X in tasks.X]
    return TaskFeatures(tasks, basis, F, coefficients(*_weighed(F, tasks), shared.noise))


def _weighed(F: Sequence[Array], tasks: StandardizedTasks) -> tuple[list[Array], list[Array]]:
    """Features and values of all tasks, divided by the relative size of their noise."""
    if not tasks.noise:
        return list(F), list(tasks.z)
    roots = [np.sqrt(ratios) for ratios in tasks.noise]
    return (
        [F_s / root[:, None] for F_s, root in zip(F, roots, strict=True)],
        [z_s / root for z_s, root in zip(tasks.z, roots, strict=True)],
    )


def fit_task_gp(
    featurized: TaskFeatures,
    training: Sequence[int],
    *,
    lam: str | float,
    lam_ratio: float,
    residual_weight: float,
    mean: bool,
) -> LearnedProcess:
    """Mean, principal functions kept by the group lasso, and their second moments."""
    found = principal_functions(featurized, training, residual_weight, mean=mean)
    problem = selection_problem(found, *featurized.of(training))
    return keep(found, select(problem, lam, lam_ratio))


def keep(task_gp: LearnedProcess, active: NDArray[np.intp]) -> LearnedProcess:
    """With these principal functions only."""
    return replace(task_gp, directions=task_gp.directions[:, active], eta=task_gp.eta[active])


def coefficients(F: Sequence[Array], z: Sequence[Array], noise: float) -> Coefficients:
    """Ridge estimates w_s = F_s'(F_s F_s' + noise I)^{-1} z_s and the directions they resolve."""
    w = np.empty((len(F), F[0].shape[1]))
    resolved = []
    for s, (F_s, z_s) in enumerate(zip(F, z, strict=True)):
        n, r = F_s.shape
        if n <= r:
            G = F_s @ F_s.T
            G.flat[:: n + 1] += noise
            half = np.linalg.solve(np.linalg.cholesky(G), np.column_stack([F_s, z_s]))
            A = half[:, :-1]
            w[s] = A.T @ half[:, -1]
        else:  # I - C = I - noise (F'F + noise I)^{-1}, through the eigenvectors of F'F
            values, U = np.linalg.eigh(F_s.T @ F_s)
            values = np.maximum(values, 0)
            A = np.sqrt(values / (values + noise))[:, None] * U.T
            w[s] = U @ ((U.T @ (F_s.T @ z_s)) / (values + noise))
        resolved.append(A)
    return Coefficients(w, resolved)


def moments(found: Coefficients, tasks: Sequence[int], *, mean: bool = True) -> tuple[Array, Array]:
    """Common shape (r,) of these tasks, 0 without mean, and the mean of E[d_s d_s'] (r, r).

    The average of the w_s would draw mu to 0 wherever single tasks have few points, however many
    tasks there are; solving for it pools what they resolve, A_s'A_s each.
    """
    w = found.w[list(tasks)]
    A = np.concatenate([found.resolved[s] for s in tasks])
    resolved = A.T @ A
    mu, off = np.zeros(w.shape[1]), w
    if mean:
        precision = resolved.copy()
        precision.flat[:: len(mu) + 1] += 1.0
        mu = np.linalg.solve(precision, w.sum(axis=0))
        off = w - np.array([found.resolved[s].T @ (found.resolved[s] @ mu) for s in tasks])
    S = (off.T @ off - resolved) / len(w)
    S.flat[:: len(S) + 1] += 1.0
    return mu, S


def principal_functions(
    featurized: TaskFeatures,
    tasks: Sequence[int],
    residual_weight: float = 1.0,
    *,
    mean: bool = True,
) -> LearnedProcess:
    """Mean of these tasks and eigenvectors of their second moment, the leading ones."""
    from scipy.linalg import eigh

    mu, S = moments(featurized.coefficients, tasks, mean=mean)
    first = max(len(S) - LEADING, 0)
    eta, U = eigh(S, subset_by_index=(first, len(S) - 1))
    return LearnedProcess(
        featurized.basis, mu, U[:, ::-1], np.maximum(eta[::-1], 0), residual_weight
    )


def selection_problem(task_gp: LearnedProcess, F: Sequence[Array], z: Sequence[Array]) -> Problem:
    """Eq. 8 on root eta_j phi_j, each a group, for what the mean leaves; a free level per task."""
    scaled = task_gp.directions * np.sqrt(task_gp.eta)
    designs, values = [], []
    for F_s, z_s in zip(F, z, strict=True):
        Phi, rest = F_s @ scaled, z_s - F_s @ task_gp.mu
        designs.append(Phi - Phi.mean(axis=0))  # projects the unpenalised constant out
        values.append(rest - rest.mean())
    return Problem.from_tasks(designs, values)


def select_along_path(problem: Problem, lam_ratios: Sequence[float]) -> list[NDArray[np.intp]]:
    """Active functions at these ratios of lambda_max, which decrease."""
    top = lambda_max(problem)
    if top == 0.0:
        return [np.empty(0, dtype=np.intp) for _ in lam_ratios]
    lams = top * np.asarray(lam_ratios)
    return [solution.active for solution in path(problem, lams, tol=TOLERANCE)]


def select(problem: Problem, lam: str | float, lam_ratio: float) -> NDArray[np.intp]:
    """Active functions at the ratio that held-out tasks chose, by the pivotal rule, or at lam."""
    if lam == "cv":
        start = [ratio for ratio in LAM_RATIOS if ratio > lam_ratio]
        return select_along_path(problem, [*start, lam_ratio])[-1]
    if lam == "square-root":
        return solve_square_root(problem, pivotal_lambda(problem, delta=0.1), tol=1e-6)[0].active
    if isinstance(lam, str):
        raise InputError(f"lam is {lam!r}; expected 'cv', 'square-root' or a number")
    return solve(problem, lam, tol=TOLERANCE).active
