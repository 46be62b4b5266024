"""Past tasks that agree with no others are set aside.

What task s shows is fitted by a function f_s. The affinity of two tasks is the correlation between
f_s at the points of task u and the values there, averaged over both directions. Tasks that are
alike have a high affinity; that of tasks with values that say nothing, or the opposite, is about 0
or negative. The core are the tasks that have at least half of the affinity that these have among
themselves. Where it leaves out a quarter of the tasks or more, it alone teaches. In clean histories
nothing comes near that, and nothing changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.kernels.nystrom import spread_rows
from metakel.priors.heldout import ROWS
from metakel.priors.principal import TaskFeatures

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
