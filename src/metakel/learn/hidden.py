r"""Kernels that were not selected: how large they can be, and ladders that add them step by step.

A kernel that was not selected is not absent, it is small. By the optimality condition of Eq. 8
(Eq. B.7) its correlation with the residuals is at most :math:`\lambda_j`,

.. math:: \tfrac2N \| \Phi_j^T (y - \Phi \hat\beta) \| \le \lambda_j .

If the other kernels do not imitate it on the points, the left-hand side is
:math:`\tfrac2N V_j \sqrt m` times the root mean square of its fitted coefficient norms over the m
tasks, where :math:`V_j` is the mean eigenvalue of :math:`\Phi_{sj}^T \Phi_{sj}` (one feature: its
mean energy over the points of a task). So these norms are at most
:math:`\epsilon_j = \lambda_j N / (2 V_j \sqrt m)` in root mean square. ``docs/promises.md`` says
what is proved about a new task, and what is measured.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso import Problem, path
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn.options import OutOfCoreProblem
from metakel.learn.rules import spectrum_of


def mean_eigenvalues(problem: Problem | OutOfCoreProblem) -> Array:
    """(p,) V_j: mean eigenvalues of the Gram matrices of a task, with its weight in the loss."""
    if isinstance(problem, Problem):
        # The rules for lambda need the weight twice, a score needs it once.
        weights = problem.task_weights[:, None]
        return np.array([(v / weights).mean() for v in problem.spectra()])
    spectrum = spectrum_of(problem)
    return np.asarray(spectrum.trace / spectrum.counts / problem.task_weights.max())


def hidden_sizes(
    problem: Problem | OutOfCoreProblem, lam: Array, active: NDArray[np.intp]
) -> tuple[Array, Array]:
    """How large each base kernel can be without having been selected; 0 for selected kernels.

    Returns
    -------
    coefficients : (p,) array
        epsilon_j, root mean square over tasks of the norm of its part of a function; inf for a
        kernel that is 0 at all points.
    values : (p,) array
        Root mean square of that part's values over all points.
    """
    V = mean_eigenvalues(problem)
    seen = np.where(V > 0, V, 1.0)
    coefficients = np.asarray(lam) * problem.total / (2 * seen * sqrt(problem.m))
    coefficients[active] = 0.0
    values = np.where(V > 0, coefficients * np.sqrt(seen * problem.m / problem.total), 0.0)
    coefficients[V == 0] = np.inf
    return coefficients, values


def soft_weights(
    coefficients: Array, active: NDArray[np.intp], *, norm_bound: float, c: float
) -> Array:
    r"""(p,) weights of a kernel in whose norm f is at most B, if hidden parts are small.

    Selected kernels have weight 1, the others :math:`w_j = \min(1, (c \epsilon_j / B)^2)`. If
    :math:`\|f\| \le B` with weights of 1, and the hidden parts :math:`b_j` of f satisfy
    :math:`\sum_j \|b_j\|^2 / w_j \le B^2`, sum over the kernels with :math:`w_j < 1`, then the norm
    with weights w is at most :math:`\sqrt 2 B`, and with weights 2w at most B.
    """
    with np.errstate(invalid="ignore"):  # 0 times inf, at selected kernels
        weights = np.minimum(1.0, (c * coefficients / norm_bound) ** 2)
    weights[active] = 1.0
    return weights if (weights == 1).all() or not weights[weights < 1].any() else 2 * weights


STEPS = 16  # lambdas along the path
SMALLEST = 1e-3  # of the lambda that was used
TOLERANCE = 1e-5  # of the duality gap; which groups enter needs no more


def ladder_of(
    problem: Problem,
    base: KernelDictionary,
    lam: Array,
    selected: NDArray[np.intp],
    rungs: int,
) -> tuple[KernelSum, ...]:
    """Kernels of weight 1 that contain each other, the last with all base kernels.

    A rung holds all groups that are active at some lambda up to its own, between ``lam`` (p,) and
    a thousandth of it. Where there are more different sets than rungs, those are taken that grow
    by about the same factor.
    """
    scales = np.geomspace(1.0, SMALLEST, STEPS)
    found = path(problem, scales, weights=np.where(lam > 0, lam, lam.max()), tol=TOLERANCE)
    entered = np.maximum.accumulate(found.eta > 0, axis=0) | np.isin(np.arange(base.p), selected)
    sizes = entered.sum(axis=1)
    first = max(len(selected), 1)
    wanted = first * (base.p / first) ** (np.arange(1, rungs + 1) / rungs)
    chosen = [np.flatnonzero(sizes <= size)[-1] for size in wanted if (sizes <= size).any()]
    between = {int(sizes[i]): entered[i] for i in chosen if len(selected) < sizes[i] < base.p}
    active = [np.flatnonzero(row) for _, row in sorted(between.items())][: rungs - 1]
    return tuple(KernelSum.uniform(base, active=rung) for rung in [*active, np.arange(base.p)])
