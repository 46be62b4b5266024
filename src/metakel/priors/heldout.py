"""Held-out tasks decide: how sparse, how much floor, and whether the history helps at all.

Half of the tasks teach, the other half is predicted, and the other way round. Log likelihoods are
per value and relative to white noise N(0, 1), the best guess without any structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.task_gp import DefaultGP
from metakel.kernels.matern52 import LEVEL_VARIANCE
from metakel.kernels.nystrom import NystromFeatures, spread_rows
from metakel.priors.moments import Coefficients, Moments, moments
from metakel.priors.selection import (
    DEFAULT_SHARE,
    SHARES,
    Principal,
    principal_functions,
    select_along_path,
    selection_problem,
)
from metakel.priors.standardize import StandardTasks

# How noisy a task is differs from task to task: shares of the noise that all tasks share.
NOISE_RATIOS = (1.0, 0.1, 0.01)
EQUALLY = tuple(1 / len(NOISE_RATIOS) for _ in NOISE_RATIOS)
FLOORS = (0.05, 0.1, 0.2, 0.4)
DEFAULT_FLOOR = 0.1
# A history that explains held-out tasks by less than this, in nats per value, is not used.
NEEDED_GAIN = 0.1
# A task that nothing explains counts as this bad when choosing, however surprising it is.
WORST_GAIN = -3.0
ROWS, TASKS = 50, 24


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What held-out tasks say.

    Parameters
    ----------
    tasks : (h,) indices of the tasks that were held out once
    gains : (h,) array
        Log likelihood per value under the prior learned from others, over white noise.
    cold : (h,) array
        The same for the cold start.
    share, floor : float
        The choices that predict best.
    noise_ratio : 3 floats
        How many tasks have 1, 1/10 and 1/100 of the usual noise, as shares.
    """

    tasks: NDArray[np.intp]
    gains: Array
    cold: Array
    share: float = DEFAULT_SHARE
    floor: float = DEFAULT_FLOOR
    noise_ratio: tuple[float, ...] = EQUALLY

    @property
    def checked(self) -> bool:
        """Whether there were enough tasks to hold some out."""
        return self.tasks.size > 0

    @property
    def gain(self) -> float:
        """Median over tasks, which one odd task cannot sway; nan where nothing was held out."""
        return float(np.median(self.gains)) if self.checked else float("nan")

    @property
    def helps(self) -> bool:
        """Whether the history may be used; one that cannot be checked is left to the guard."""
        return not self.checked or self.gain >= NEEDED_GAIN


def hold_out(
    tasks: StandardTasks,
    basis: NystromFeatures,
    F: Sequence[Array],
    found: Coefficients,
    *,
    mean: bool,
) -> HeldOut:
    """Score every (share, floor) on tasks that did not teach it."""
    if tasks.m < 2:
        return HeldOut(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
    scores, held, lessons = [], [], []
    for first in (0, 1):
        teachers = range(first, tasks.m, 2)
        known = moments(found, teachers, mean=mean)
        functions = principal_functions(known)
        problem = selection_problem(
            functions, known, [F[s] for s in teachers], [tasks.z[s] for s in teachers]
        )
        paths = select_along_path(problem, SHARES)
        for s in list(range(1 - first, tasks.m, 2))[:TASKS]:
            held.append(s)
            lessons.append(_Lesson(basis, known, functions, paths))
            scores.append(lessons[-1].scores(tasks[s], F[s]))
    order = np.argsort(held)
    table = np.array(scores)[order]  # (h, shares, floors)
    robust = np.maximum(table, WORST_GAIN).mean(axis=0)
    i, j = np.unravel_index(int(np.argmax(robust)), robust.shape)
    cold = np.array([_cold_score(*tasks[held[k]]) for k in order])
    chosen = np.array(held, dtype=np.intp)[order]
    heard = [
        lesson.noise_ratio(tasks[s], F[s], int(i), FLOORS[j])
        for s, lesson in zip(held, lessons, strict=True)
    ]
    # One more task of each noisiness in equal parts, so that none is ruled out.
    counts = np.sum(heard, axis=0) + np.array(EQUALLY)
    noise_ratio = tuple((counts / counts.sum()).tolist())
    return HeldOut(chosen, table[:, i, j], cold, SHARES[i], FLOORS[j], noise_ratio)


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What some tasks teach about another."""

    basis: NystromFeatures
    known: Moments
    functions: Principal
    paths: Sequence[NDArray[np.intp]]

    def scores(self, task: tuple[Array, Array], F: Array) -> Array:
        """(shares, floors) log likelihoods per value over white noise."""
        rows = spread_rows(np.arange(len(F)), ROWS)
        X, z, psi = task[0][rows], task[1][rows], F[rows]
        learned = np.array([self._gram(psi, active) for active in self.paths])
        floors = np.array(FLOORS)[:, None, None] * self.basis.shared(X, X)
        C = learned[:, None] + floors + LEVEL_VARIANCE
        C[..., np.arange(len(z)), np.arange(len(z))] += self.basis.shared.noise
        return _log_density(C, z - psi @ self.known.mu) - white_noise(z)

    def noise_ratio(self, task: tuple[Array, Array], F: Array, path: int, floor: float) -> Array:
        """(3,) posterior probabilities of the shares of noise, equal before."""
        rows = spread_rows(np.arange(len(F)), ROWS)
        X, z, psi = task[0][rows], task[1][rows], F[rows]
        K = self._gram(psi, self.paths[path]) + floor * self.basis.shared(X, X) + LEVEL_VARIANCE
        C = np.tile(K, (len(NOISE_RATIOS), 1, 1))
        noise = self.basis.shared.noise * np.array(NOISE_RATIOS)
        C[:, np.arange(len(z)), np.arange(len(z))] += noise[:, None]
        logs = len(z) * _log_density(C, z - psi @ self.known.mu)
        shares = np.exp(logs - logs.max())
        return np.asarray(shares / shares.sum())

    def _gram(self, psi: Array, active: NDArray[np.intp]) -> Array:
        Phi = psi @ self.functions.directions[:, active]
        return np.asarray((Phi * self.functions.eta[active]) @ Phi.T)


def _cold_score(X: Array, z: Array) -> float:
    rows = spread_rows(np.arange(len(z)), ROWS)
    cold = DefaultGP.typical(X.shape[1])
    C = cold.shared(X[rows], X[rows]) + LEVEL_VARIANCE
    C.flat[:: len(C) + 1] += cold.noise
    return float(_log_density(C, z[rows]) - white_noise(z[rows]))


def _log_density(C: Array, z: Array) -> Array:
    """Log density per value of N(0, C) at z, for stacks of C."""
    root = np.linalg.cholesky(C)
    white = np.linalg.solve(root, np.broadcast_to(z, C.shape[:-1])[..., None])[..., 0]
    logs = np.log(np.diagonal(root, axis1=-2, axis2=-1)).mean(axis=-1)
    return np.asarray(-np.square(white).mean(axis=-1) / 2 - logs - log(2 * pi) / 2)


def white_noise(z: Array) -> float:
    """Log density per value of N(0, 1)."""
    return float(-np.square(z).mean() / 2 - log(2 * pi) / 2)
