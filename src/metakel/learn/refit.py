"""Least-squares refit on the selected kernels: weights and noise without the lasso's shrinkage."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso import Problem, RemoteProblem, Solution
from metakel.grouplasso.batch import columns_of

ENOUGH_FREEDOM = 20  # residual degrees of freedom, for an estimate of the noise


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Sums over the least-squares fits of every task on k columns.

    Parameters
    ----------
    squares : (k,) array
        Squared coefficients.
    variances : (k,) array
        Variances of the coefficients, relative to the noise variance.
    rss : float
        Residual sum of squares of the tasks that these columns do not fit exactly.
    free : float
        Residual degrees of freedom of those tasks: observations minus rank.
    """

    squares: Array
    variances: Array
    rss: float
    free: float

    def __add__(self, other: LeastSquares) -> LeastSquares:
        return LeastSquares(
            self.squares + other.squares,
            self.variances + other.variances,
            self.rss + other.rss,
            self.free + other.free,
        )

    def repeated(self, times: float) -> LeastSquares:
        """The sums if every task represents several tasks on the same inputs."""
        return LeastSquares(self.squares, times * self.variances, self.rss, times * self.free)


class Fittable(RemoteProblem, Protocol):
    """A remote problem that can fit its tasks by least squares."""

    @property
    def kernel_mode(self) -> bool: ...
    def columns(self, j: int) -> slice: ...
    def least_squares(self, active: NDArray[np.intp]) -> LeastSquares: ...


def least_squares(problem: Problem, active: NDArray[np.intp]) -> LeastSquares:
    """Fit every task on the columns of the active groups; minimum norm if there are too many."""
    picked = columns_of(active, problem.starts)
    squares, variances = np.zeros(picked.size), np.zeros(picked.size)
    rss, free = 0.0, 0
    for batch in problem.batches:
        assert batch.Phi is not None
        Phi = np.take(batch.Phi, picked, axis=1).transpose(0, 2, 1)  # (m, n, k)
        # The weights of the loss cancel in b, but not in its variance.
        inverse = np.linalg.pinv(Phi, rcond=1e-10)  # (m, k, n)
        b = np.matmul(inverse, batch.y[:, :, None])  # (m, k, 1)
        squares += np.einsum("ski,ski->k", b, b)
        weight = problem.task_weights[batch.tasks]
        variances += np.einsum("s,skn,skn->k", weight, inverse, inverse)
        r = batch.y - np.matmul(Phi, b)[..., 0]
        rank = np.rint(np.einsum("snk,skn->s", Phi, inverse)).astype(int)
        spare = problem.sizes[batch.tasks] - rank
        used = spare > 0
        rss += float(np.sum(r[used] ** 2 / weight[used, None]))
        free += int(spare[used].sum())
    return LeastSquares(squares, variances, rss, free)


def refitted_weights(
    problem: Problem | Fittable, active: NDArray[np.intp], noise_std: float
) -> Array:
    r"""(p,) weights from a least-squares fit of every task on the selected groups.

    .. math:: \check\eta_j = \sqrt{\max(0, \|\check b^{(j)}\|^2 - \sigma^2 \operatorname{tr} C_j)},

    where C_j is the covariance of the coefficients divided by sigma^2, so that the expected
    contribution of the noise is subtracted. Tasks with fewer points than selected columns get the
    fit of minimum norm.
    """
    if problem.kernel_mode:
        raise InputError("refit needs feature kernels; Gram matrices have no coefficients")
    fit = _fit(problem, active)
    out, stop = np.zeros(problem.p), 0
    for j in active:
        cols = problem.columns(int(j))
        own = slice(stop, stop := stop + cols.stop - cols.start)
        out[j] = sqrt(max(0.0, fit.squares[own].sum() - noise_std**2 * fit.variances[own].sum()))
    return out


def noise_from_all_features(problem: Problem | Fittable) -> float | None:
    """Noise level from least squares on all base kernels, whichever of them are selected later.

    A kernel that is missed is not counted as noise. None for kernels without features, and where
    fewer than 20 degrees of freedom are left over all tasks (a relative error of 16 %).
    """
    if problem.kernel_mode:
        return None
    fit = _fit(problem, np.arange(problem.p))
    return sqrt(fit.rss / fit.free) if fit.free >= ENOUGH_FREEDOM else None


def estimate_noise_std(problem: Problem | Fittable, solution: Solution) -> float:
    """Noise level from the residuals of least squares on the selected groups, free of shrinkage.

    In kernel mode, or without residual degrees of freedom, it is the root mean square of the
    lasso's own residuals (with the weights of the loss).
    """
    if not problem.kernel_mode:
        fit = _fit(problem, solution.active)
        if fit.free:
            return sqrt(fit.rss / fit.free)
    penalty = float(np.dot(solution.lam, solution.eta))
    return sqrt(max(solution.objective - penalty, 0.0))


def _fit(problem: Problem | Fittable, active: NDArray[np.intp]) -> LeastSquares:
    if isinstance(problem, Problem):
        return least_squares(problem, active)
    return problem.least_squares(active)
