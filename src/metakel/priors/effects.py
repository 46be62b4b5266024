"""Parameter-wise base kernels: which parameters and pairs the group lasso needs (Eq. 8)."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.grouplasso import Problem, lambda_max, path
from metakel.kernels import KernelDictionary, matern
from metakel.kernels.nystrom import spread_rows
from metakel.priors.configurations import with_space
from metakel.priors.standardize import standardise
from metakel.space import Space

# Half of the range [-1, 1]: smooth effects, and a distance of sqrt(2) between categories.
LENGTHSCALE = 1.0
MOST_FOR_PAIRS = 8
ROWS, TASKS = 50, 24
SHARE = 0.2


def effect_kernels(space: Space) -> tuple[KernelDictionary, tuple[str, ...]]:
    """One Matern-5/2 kernel per parameter and per pair of parameters, with their labels.

    Pairs are left out beyond 8 parameters. A categorical parameter is one kernel on all of its
    columns.
    """
    varying = space.free
    subsets: list[tuple[str, ...]] = [(name,) for name in varying]
    if len(varying) <= MOST_FOR_PAIRS:
        subsets += list(combinations(varying, 2))
    columns = [
        tuple(i for name in names for i in range(space.d0)[space.columns[name]])
        for names in subsets
    ]
    labels = tuple(" x ".join(names) for names in subsets)
    return matern(2.5, LENGTHSCALE, columns=columns, d0=space.d0), labels


def learn_effects(
    history: History, space: Space | None = None, *, share: float = SHARE
) -> dict[str, float]:
    """Weights of the effects that explain past tasks, as shares of 1; those left out are 0.

    Values are standardised by task, with a free level in each.

    Parameters
    ----------
    history : History
    space : Space, optional
        For a history of plain arrays; one with a space takes no other.
    share : float
        Lambda as a share of lambda_max; smaller shares keep more, pairs above all, as a pair can
        do what its parameters do alone.
    """
    history, space = with_space(history, space)
    tasks = standardise(history)
    base, labels = effect_kernels(space)
    if tasks.m == 0:
        return dict.fromkeys(labels, 0.0)
    grams, values = [], []
    for s in spread_rows(np.arange(tasks.m), TASKS).tolist():
        rows = spread_rows(np.arange(len(tasks.z[s])), ROWS)
        grams.append(_centred(base.grams(tasks.X[s][rows])))
        z = tasks.z[s][rows]
        values.append(z - z.mean())
    problem = Problem.from_grams(grams, values)
    # A pair has more of its trace in small eigenvalues than a parameter alone, and so fits noise
    # more easily: every group pays by the root of its trace.
    roots = np.sqrt(np.mean([np.trace(K, axis1=1, axis2=2) for K in grams], axis=0))
    lams = lambda_max(problem, roots) * np.geomspace(1, share, 4)
    eta = path(problem, lams, weights=roots, tol=1e-5)[-1].eta * roots
    weights = eta / eta.sum() if eta.any() else eta
    return dict(zip(labels, weights.tolist(), strict=True))


def _centred(K: Array) -> Array:
    """P K P with P = I - 11'/n: the constant is free."""
    K = K - K.mean(axis=-1, keepdims=True)
    return np.asarray(K - K.mean(axis=-2, keepdims=True))
