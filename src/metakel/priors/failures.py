"""Past runs that gave no value: whether they say where not to look."""

from __future__ import annotations

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.kernels.nystrom import spread_rows
from metakel.priors.standardize import lie_together

# Fewer failures say nothing, and more runs than this say no more.
FEWEST, MOST = 5, 2000


def failed_runs(history: History) -> tuple[tuple[Array, Array] | None, str]:
    """Points (n, d0) of runs and which of them failed (n,), and a note; None without failures.

    None as well where failures are found at the same inputs as other runs: a machine that went down
    says nothing about the configuration. Tasks that lack a parameter are left out.
    """
    tasks = [task for task in history.complete if task.failed is not None and len(task.failed)]
    count = sum(len(np.asarray(task.failed)) for task in tasks)
    if count < FEWEST:
        return None, ""
    pairs = []
    for task in tasks:
        X = np.concatenate([task.X, np.asarray(task.failed)])
        pairs.append((X, np.arange(len(X)) >= task.n))
    if not lie_together(pairs):
        return None, f"{count} failed runs are spread over all inputs: nothing is learned from them"
    others = [task for task in history.complete if task not in tasks]
    X = np.concatenate([*(X for X, _ in pairs), *(task.X for task in others)])
    failed = np.concatenate([*(f for _, f in pairs), *(np.zeros(t.n, dtype=bool) for t in others)])
    rows = spread_rows(np.arange(len(X)), MOST)
    note = (
        f"{count} failed runs of {len(tasks)} tasks lie together: the chance that a run fails "
        "counts in every choice"
    )
    return (X[rows], failed[rows].astype(np.float64)), note
