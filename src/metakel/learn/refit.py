"""Refitting on the selected kernels: weights and noise without the shrinkage of the lasso."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.grouplasso import Problem, RemoteProblem, Solution


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Sums over the least-squares fits of every task on k columns.

    Parameters
    ----------
    squares : (k,) array
        Of the coefficients.
    variances : (k,) array
        Of the coefficients, over the noise variance.
    rss : float
        Residual sum of squares of the tasks with observations to spare.
    free : float
        How many observations those have to spare.
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
        """For tasks on the same inputs, of which each stands for several."""
        return LeastSquares(self.squares, times * self.variances, self.rss, times * self.free)


class Fittable(RemoteProblem, Protocol):
    """A problem whose tasks are elsewhere and fitted there."""

    @property
    def kernel_mode(self) -> bool: ...
    def columns(self, j: int) -> slice: ...
    def least_squares(self, active: NDArray[np.intp]) -> LeastSquares: ...


def least_squares(problem: Problem, active: NDArray[np.intp]) -> LeastSquares:
    """Fit every task on the columns of the active groups (the least norm where they are many)."""
    columns = [problem.columns(int(j)) for j in active]
    picked = np.concatenate([np.arange(c.start, c.stop) for c in columns] or [np.empty(0, int)])
    squares, variances = np.zeros(picked.size), np.zeros(picked.size)
    rss, free = 0.0, 0
    for batch in problem.batches:
        assert batch.Phi is not None
        Phi = np.take(batch.Phi, picked, axis=1).transpose(0, 2, 1)  # (m, n, k)
        # The pseudo-inverse of each task; weights of the loss cancel in it, up to its noise.
        inverse = np.linalg.pinv(Phi, rcond=1e-10)  # (m, k, n)
        b = np.matmul(inverse, batch.y[:, :, None])  # (m, k, 1)
        squares += np.einsum("ski,ski->k", b, b)
        weight = problem.task_weights[batch.tasks]
        variances += np.einsum("s,skn,skn->k", weight, inverse, inverse)
        r = batch.y - np.matmul(Phi, b)[..., 0]
        spare = problem.sizes[batch.tasks] - picked.size
        used = spare > 0
        rss += float(np.sum(r[used] ** 2 / weight[used, None]))
        free += int(spare[used].sum())
    return LeastSquares(squares, variances, rss, free)


def refitted_weights(
    problem: Problem | Fittable, active: NDArray[np.intp], noise_std: float
) -> Array:
    r"""(p,) second-moment weights from a least-squares fit of every task on the selected groups.

    .. math:: \check\eta_j = \sqrt{\max(0, \|\check b^{(j)}\|^2 - \sigma^2 \operatorname{tr} C_j)},

    C_j the covariance of the fit over sigma^2: what noise alone would add is taken off. A task with
    fewer points than selected columns is fitted with the least norm.
    """
    if problem.kernel_mode:
        raise InputError("refitting needs feature kernels; Gram matrices have no coefficients")
    fit = _fit(problem, active)
    out, stop = np.zeros(problem.p), 0
    for j in active:
        cols = problem.columns(int(j))
        own = slice(stop, stop := stop + cols.stop - cols.start)
        out[j] = sqrt(max(0.0, fit.squares[own].sum() - noise_std**2 * fit.variances[own].sum()))
    return out


def noise_left(problem: Problem | Fittable, solution: Solution) -> float:
    """Noise level from least squares on the selected groups, their columns counted as spent.

    In kernel mode, or where the selected columns leave no observation over, the root mean square
    of the lasso's own residuals (in the weights of the loss).
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
