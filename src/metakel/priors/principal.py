r"""What past tasks have in common, where they differ, and how well that predicts held-out tasks.

Task s has standardised values z_s = F_s w_s + noise with F_s = psi(X_s) (n_s, r), and
coefficients w_s = mu + d_s with mu and all d_s a priori N(0, I). The posterior mean of mu given
all tasks together is the common shape; one step of expectation-maximisation for the second moment
of d_s says where tasks differ. More steps overfit. Its eigenvectors are the principal functions,
and the group lasso (Eq. 8) selects which of them are kept.

How many are kept, the weight of the shared kernel and the noise of a task are what predicts
held-out tasks best (`hold_out`). The prior is learned from half of the tasks and predicts the other
half, and the other way round. A log score is the log density per value over that of white noise
N(0, 1), the best guess without any structure.

A column that is no setting, such as a reading of the weather, makes every run look unlike every
other one. If the check fails, it is repeated without each parameter; of all that improve it the
best one is left out, and again, as long as this helps.

Tasks that agree with no others are set aside before (`agreeing_tasks`). What task s shows is fitted
by a function f_s. The affinity of two tasks is the correlation between f_s at the points of task u
and the values there, averaged over both directions. Tasks that are alike have a high affinity; that
of tasks with values that say nothing, or the opposite, is about 0 or negative. The core are the
tasks that have at least half of the affinity that these have among themselves. Where it leaves out
a quarter of the tasks or more, it alone teaches. In clean histories nothing comes near that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import TINY, Array, as_number, as_numbers
from metakel.errors import InputError, typed_list
from metakel.gp.posterior import (
    LEVEL_VARIANCE,
    fit_matern52,
    log_density,
    white_noise_log_density,
)
from metakel.gp.processes import ColdProcess, LearnedProcess
from metakel.grouplasso import Problem, lambda_max, path, solve, solve_square_root
from metakel.kernels.nystrom import NystromFeatures, choose_basis, spread_rows
from metakel.learn.rules import pivotal_lambda
from metakel.learn.select import score_held_out
from metakel.priors.standardize import StandardizedTasks
from metakel.space import Space

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


def featurize(tasks: StandardizedTasks) -> TaskFeatures:
    """Fit the shared kernel and its features to every other task; the rest can judge it."""
    training = list(range(0, tasks.m, 2)) if tasks.m >= 4 else list(range(tasks.m))
    fitted = spread_rows(np.array(training), FIT_TASKS)
    rows = [spread_rows(np.arange(len(tasks.z[s])), FIT_ROWS) for s in fitted]
    shared = fit_matern52(
        [tasks.X[s][i] for s, i in zip(fitted, rows, strict=True)],
        [tasks.z[s][i] for s, i in zip(fitted, rows, strict=True)],
    )
    basis = choose_basis(shared, np.concatenate([tasks.X[s] for s in training]))
    F = [np.ascontiguousarray(basis.features(X)) for X in tasks.X]
    # Divided by the relative size of their noise, where it was recorded.
    roots = [np.sqrt(ratios) for ratios in tasks.noise] or [np.ones(len(z_s)) for z_s in tasks.z]
    weighed = [F_s / root[:, None] for F_s, root in zip(F, roots, strict=True)]
    values = [z_s / root for z_s, root in zip(tasks.z, roots, strict=True)]
    return TaskFeatures(tasks, basis, F, coefficients(weighed, values, shared.noise))


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
    return keep(found, select(selection_problem(found, featurized, training), lam, lam_ratio))


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


def selection_problem(
    task_gp: LearnedProcess, featurized: TaskFeatures, tasks: Sequence[int]
) -> Problem:
    """Eq. 8 on root eta_j phi_j, each a group, for what the mean leaves; a free level per task."""
    scaled = task_gp.directions * np.sqrt(task_gp.eta)
    designs, values = [], []
    for s in tasks:
        F = featurized.F[s]
        Phi, rest = F @ scaled, featurized.tasks.z[s] - F @ task_gp.mu
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


# How noisy a task is differs from task to task: ratios to the noise that all tasks share.
NOISE_RATIOS = (1.0, 0.1, 0.01)
EQUALLY = tuple(1 / len(NOISE_RATIOS) for _ in NOISE_RATIOS)
RESIDUAL_WEIGHTS = (0.05, 0.1, 0.2, 0.4)
DEFAULT_RESIDUAL_WEIGHT = 0.1
# A history that explains held-out tasks by less than this, in nats per value, is not used.
NEEDED_LOG_SCORE = 0.1
# A task that nothing explains counts as this bad when choosing, however surprising it is.
WORST_LOG_SCORE = -3.0
ROWS, TASKS = 50, 24


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What held-out tasks say."""

    tasks: NDArray[np.intp]  # (h,) which were held out once
    log_scores: Array  # (h,) per value under the prior learned from the others
    cold_log_scores: Array  # (h,) the same for the cold start
    lam_ratio: float = DEFAULT_LAM_RATIO  # the choices that predict best
    residual_weight: float = DEFAULT_RESIDUAL_WEIGHT
    # Which share of the tasks has 1, 1/10 and 1/100 of the usual noise.
    noise_ratio: tuple[float, ...] = EQUALLY

    def __post_init__(self) -> None:
        as_numbers("tasks", self.tasks, (None,), low=0)
        for name in ("log_scores", "cold_log_scores"):
            as_numbers(name, getattr(self, name), self.tasks.shape)
        for name in ("lam_ratio", "residual_weight"):
            as_number(name, getattr(self, name), 0)
        as_numbers("noise_ratio", self.noise_ratio, (len(EQUALLY),), low=TINY)

    @classmethod
    def unchecked(cls) -> HeldOut:
        """Where there are too few tasks to hold some out."""
        return cls(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))

    @property
    def checked(self) -> bool:
        """Whether there were enough tasks to hold some out."""
        return self.tasks.size > 0

    @cached_property
    def log_score(self) -> float:
        """Median over tasks, which one odd task cannot sway; nan where nothing was held out."""
        return float(np.median(self.log_scores)) if self.checked else float("nan")

    @property
    def better_than_cold(self) -> int:
        """How many held-out tasks the prior predicts better than the cold start."""
        return int((self.log_scores > self.cold_log_scores).sum())

    @property
    def helps(self) -> bool:
        """Whether the history may be used.

        One that cannot be checked is used; the cold start beside it takes over where it misleads.
        """
        return not self.checked or self.log_score >= NEEDED_LOG_SCORE


def hold_out(featurized: TaskFeatures, *, mean: bool) -> HeldOut:
    """Score every lambda and residual weight on tasks that the prior was not learned from."""
    m = featurized.m
    if m < 2:
        return HeldOut.unchecked()

    def fit_path(training: range) -> list[LearnedProcess]:
        found = principal_functions(featurized, training, mean=mean)
        problem = selection_problem(found, featurized, training)
        return [keep(found, active) for active in select_along_path(problem, LAM_RATIOS)]

    folds = []
    for first in (0, 1):
        held = list(range(1 - first, m, 2))[:TASKS]
        folds.append((range(first, m, 2), [_HeldOutTask.of(featurized, s) for s in held]))
    residuals, usual = np.array(RESIDUAL_WEIGHTS), np.ones(len(RESIDUAL_WEIGHTS))
    found = score_held_out(
        folds, fit_path, lambda gp, task: task.log_scores(task.log_densities(gp, residuals, usual))
    )
    i, j = found.best(WORST_LOG_SCORE)
    # One more task of each noise ratio in equal parts, so that none is ruled out.
    chosen, counts = np.full(len(NOISE_RATIOS), RESIDUAL_WEIGHTS[j]), np.zeros(len(NOISE_RATIOS))
    for models, task in zip(found.models, found.tests, strict=True):
        logs = task.log_densities(models[i], chosen, np.array(NOISE_RATIOS))
        weights = np.exp(logs - logs.max())
        counts += weights / weights.sum()
    counts += EQUALLY
    indices = np.array([task.index for task in found.tests], dtype=np.intp)
    order = np.argsort(indices)
    return HeldOut(
        indices[order],
        found.scores[order, i, j],
        np.array([found.tests[k].cold_log_score() for k in order]),
        LAM_RATIOS[i],
        RESIDUAL_WEIGHTS[j],
        tuple((counts / counts.sum()).tolist()),
    )


@dataclass(frozen=True, eq=False)
class _HeldOutTask:
    """Rows of a task to predict: values z (n,), features psi (n, r), shared kernel K0 (n, n)."""

    index: int
    X: Array
    z: Array
    psi: Array
    K0: Array
    noise: Array  # ratios of the variances of the noise to the usual one

    @classmethod
    def of(cls, featurized: TaskFeatures, s: int) -> _HeldOutTask:
        """At most 50 rows of task s, spread over all of them."""
        tasks, F = featurized.tasks, featurized.F[s]
        rows = spread_rows(np.arange(len(F)), ROWS)
        X = tasks.X[s][rows]
        noise = tasks.noise[s][rows] if tasks.noise else np.ones(len(rows))
        return cls(s, X, tasks.z[s][rows], F[rows], featurized.basis.shared(X, X), noise)

    def log_densities(self, task_gp: LearnedProcess, residual: Array, noise_ratio: Array) -> Array:
        """(k,) of the values, for weights of the shared kernel (k,) and noise ratios (k,)."""
        Phi = self.psi @ np.asfortranarray(task_gp.directions)  # an order by which sums are rounded
        C = (Phi * task_gp.eta) @ Phi.T + residual[:, None, None] * self.K0 + LEVEL_VARIANCE
        noise = (task_gp.noise * noise_ratio)[:, None] * self.noise
        C[:, np.arange(len(self.z)), np.arange(len(self.z))] += noise
        return log_density(C, self.z - self.psi @ task_gp.mu)

    def log_scores(self, log_densities: Array) -> Array:
        """Per value over white noise."""
        return (log_densities - white_noise_log_density(self.z)) / len(self.z)

    def cold_log_score(self) -> float:
        """Under the cold start."""
        cold = ColdProcess.typical(self.X.shape[1])
        C = cold.shared(self.X, self.X) + LEVEL_VARIANCE
        C.flat[:: len(C) + 1] += cold.noise
        return float(self.log_scores(log_density(C, self.z)))


# Each is a check of its own: of more parameters, or more left out, chance would find one to blame.
MOST_PARAMETERS, MOST_LEFT_OUT = 16, 2
# In nats per value. A smaller gain is no reason to doubt a parameter.
SPOILING_GAIN = 0.1


def spoiling_note(tasks: StandardizedTasks, space: Space, held: HeldOut, *, mean: bool) -> str:
    """Which parameters to leave out for the check to pass; empty where it takes more than that."""
    names = [name for name in space.free if space[name].width]
    if held.helps or not 1 < len(names) <= MOST_PARAMETERS:
        return ""
    left_out, score = list[str](), held.log_score
    for _ in range(min(MOST_LEFT_OUT, len(names) - 1)):
        tried = {
            name: hold_out(featurize(_constant(tasks, space, [*left_out, name])), mean=mean)
            for name in names
            if name not in left_out
        }
        best = max(tried, key=lambda name: tried[name].log_score)
        if not tried[best].log_score >= score + SPOILING_GAIN:
            return ""
        left_out, score = [*left_out, best], tried[best].log_score
        if score >= NEEDED_LOG_SCORE:
            several = "if they are no settings, leave them out"
            remedy = several if len(left_out) > 1 else "if it is no setting, leave it out"
            return (
                f"without {' and '.join(left_out)} the held-out check passes, with {score:+.2f} "
                f"nats; {remedy}: exclude={left_out}, or --exclude {typed_list(tuple(left_out))}"
            )
    return ""


def _constant(tasks: StandardizedTasks, space: Space, names: Sequence[str]) -> StandardizedTasks:
    """All runs as if these parameters had one value."""
    X = [rows.copy() for rows in tasks.X]
    for rows in X:
        for name in names:
            rows[:, space.columns[name]] = 0.0
    return replace(tasks, X=X)


# From fewer tasks nothing can be learned and checked on the others.
SMALLEST_CORE = 3
# Affinity to the core over that within, below which a task is not like the others.
ALIKE = 0.5
# Tasks of a core predict one another at least this well.
LEAST_AFFINITY = 0.2
# Tasks are set aside where they are at least this share of all.
SET_ASIDE = 0.25
SWEEPS = 20
# Tasks that are compared: the time grows with their square.
MOST_TASKS = 256


def agreeing_tasks(featurized: TaskFeatures) -> NDArray[np.intp]:
    """Indices of the tasks to learn from: all, or the core where many agree with no others."""
    everyone = np.arange(featurized.m)
    if not SMALLEST_CORE <= featurized.m <= MOST_TASKS:
        return everyone
    found = core(affinity(featurized))
    few = found is not None and len(found) <= (1 - SET_ASIDE) * featurized.m
    return found if found is not None and few else everyone


def affinity(featurized: TaskFeatures) -> Array:
    """(m, m) how well tasks predict one another, as correlations; 0 on the diagonal."""
    m, w = featurized.m, featurized.coefficients.w
    R = np.empty((m, m))
    for u in range(m):
        rows = spread_rows(np.arange(len(featurized.tasks.z[u])), ROWS)
        F, z = featurized.F[u][rows], featurized.tasks.z[u][rows]
        z = z - z.mean()
        fitted = F @ w.T  # (n_u, m)
        fitted -= fitted.mean(axis=0)
        sizes = np.linalg.norm(fitted, axis=0) * np.linalg.norm(z)
        R[:, u] = (z @ fitted) / np.where(sizes > 0, sizes, 1.0)
    R += R.T
    R /= 2
    R.flat[:: m + 1] = 0.0
    return R


def core(R: Array) -> NDArray[np.intp] | None:
    """Tasks with at least half of the affinity that these have among themselves; None for none."""
    m = len(R)
    found = np.argsort(-R.mean(axis=1), kind="stable")[: max(SMALLEST_CORE, m // 3)]
    for _ in range(SWEEPS):
        among = float(R[np.ix_(found, found)].sum()) / max(len(found) * (len(found) - 1), 1)
        if among < LEAST_AFFINITY:
            return None
        inside = np.isin(np.arange(m), found)
        to_core = R[:, inside].sum(axis=1) / np.maximum(inside.sum() - inside, 1)
        kept = np.flatnonzero(to_core >= ALIKE * among)
        if len(kept) < SMALLEST_CORE:
            return None
        if np.array_equal(kept, np.sort(found)):
            break
        found = kept
    return np.sort(found)
