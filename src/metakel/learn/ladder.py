"""A ladder of kernels from the selected ones to all, in the order in which the lasso adds them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.grouplasso import Problem, path
from metakel.kernels import KernelDictionary, KernelSum

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
