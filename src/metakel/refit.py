"""Refitting on the selected kernels: weights and noise without the shrinkage of the lasso."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from metakel.errors import InputError
from metakel.grouplasso import Problem, Solution
from metakel.tasks import Array


def refitted_weights(problem: Problem, active: NDArray[np.intp], noise_std: float) -> Array:
    r"""(p,) second-moment weights from a least-squares fit of every task on the selected groups.

    .. math:: \check\eta_j = \sqrt{\max(0, \|\check b^{(j)}\|^2 - \sigma^2 \operatorname{tr} C_j)},

    C_j the covariance of the fit over sigma^2: what noise alone would add is taken off. A task with
    fewer points than selected columns is fitted with the least norm.
    """
    if problem.kernel_mode:
        raise InputError("refitting needs feature kernels; Gram matrices have no coefficients")
    columns = [problem.columns(int(j)) for j in active]
    picked = np.concatenate([np.arange(c.start, c.stop) for c in columns] or [np.empty(0, int)])
    ends = np.cumsum([c.stop - c.start for c in columns])
    squares, variances = np.zeros(picked.size), np.zeros(picked.size)
    for batch in problem.batches:
        assert batch.Phi is not None
        Phi = np.take(batch.Phi, picked, axis=1)  # (m, k, n)
        # The pseudo-inverse of each task; weights of the loss cancel in it, up to its noise.
        inverse = np.linalg.pinv(Phi.transpose(0, 2, 1), rcond=1e-10)  # (m, k, n)
        b = np.matmul(inverse, batch.y[:, :, None])[..., 0]
        squares += np.einsum("sk,sk->k", b, b)
        weight = problem.task_weights[batch.tasks]
        variances += np.einsum("s,skn,skn->k", weight, inverse, inverse)
    out = np.zeros(problem.p)
    for j, stop, cols in zip(active, ends, columns, strict=True):
        own = slice(stop - (cols.stop - cols.start), stop)
        out[j] = sqrt(max(0.0, squares[own].sum() - noise_std**2 * variances[own].sum()))
    return out


def noise_left(problem: Problem, solution: Solution) -> float:
    """Noise level from least squares on the selected groups, their columns counted as spent.

    In kernel mode, or where the selected columns leave no observation over, the root mean square
    of the lasso's own residuals.
    """
    if not problem.kernel_mode:
        columns = [problem.columns(int(j)) for j in solution.active]
        picked = np.concatenate([np.arange(c.start, c.stop) for c in columns] or [np.empty(0, int)])
        squares, free = 0.0, 0
        for batch in problem.batches:
            assert batch.Phi is not None
            Phi = np.take(batch.Phi, picked, axis=1)
            fit = np.matmul(
                Phi.transpose(0, 2, 1), np.linalg.pinv(Phi.transpose(0, 2, 1), rcond=1e-10)
            )
            r = batch.y - np.matmul(fit, batch.y[:, :, None])[..., 0]
            left = problem.sizes[batch.tasks] - picked.size
            used = left > 0
            squares += float(np.sum(r[used] ** 2 / problem.task_weights[batch.tasks][used, None]))
            free += int(left[used].sum())
        if free:
            return sqrt(squares / free)
    weighted = np.dot(problem.task_weights, [float(r @ r) for r in solution.residuals])
    return sqrt(float(weighted) / problem.total)
