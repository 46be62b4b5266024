"""Whether the rows of a new table are chosen as those of past tables were.

What must be exchangeable for a certificate is a task together with its rows: where past rows are
close to the optima that an optimizer looked for, a table of other rows is another kind of task.
"""

from __future__ import annotations

import numpy as np

from metakel._arrays import Array
from metakel.kernels.nystrom import spread_rows

COMPARED = 100  # rows of the new table
PERMUTATIONS, LEVEL = 99, 0.01
WIDER = 1.15  # than all past tables, or narrower


def unlike(past: Array, new: Array) -> bool:
    """Whether rows of past tables (j, k, d0) and of a new one (n, d0) differ in distribution.

    The new table is wider or narrower than all past ones, by the mean distance of its rows; or its
    rows are elsewhere, by a permutation test at 1 % of the energy distance: how much further they
    are from past rows than rows of the same table are. Without past rows nothing is compared.
    """
    if not past.size or past.shape[1] < 2 or len(new) < 2:
        return False
    tables, k, d0 = past.shape
    widths = [float(_apart(table).mean()) for table in past]
    width = float(_apart(new).mean()) * _pairs(len(new)) / _pairs(k)
    if not min(widths) / WIDER <= width <= WIDER * max(widths):
        return True
    past, new = past.reshape(tables * k, d0), spread_rows(new, COMPARED)
    apart = _apart(np.concatenate([past, new]))
    rng = np.random.default_rng(0)
    labels = np.repeat([1.0 / len(past), -1.0 / len(new)], [len(past), len(new)])
    shuffled = np.array([labels, *(rng.permutation(labels) for _ in range(PERMUTATIONS))])
    energies = -((shuffled @ apart) * shuffled).sum(axis=1)
    rank = 1 + int((energies[1:] >= energies[0]).sum())
    return rank <= LEVEL * (PERMUTATIONS + 1)


def _pairs(n: int) -> float:
    """The mean over all pairs counts a row with itself, which is more of few rows."""
    return n / (n - 1)


def _apart(rows: Array) -> Array:
    """(n, n) distances."""
    squares = (rows**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)))
