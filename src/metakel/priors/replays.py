"""Searches that were replayed on past tasks: how far from the best they were after every value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.errors import ShapeError

EVALUATIONS = 20  # of a replay that are kept
EXHAUSTED = 1e-12  # whoever tries all rows finds the best


@dataclass(frozen=True, eq=False)
class Replays:
    """Regret on past tasks, each searched with a prior that was learned from others.

    In units of the standard deviation of the task's recorded values, over its recorded rows.

    Parameters
    ----------
    tasks : h names
    regret : (h, T) array
        Of the prior's optimizer, after 1, 2, ..., T values.
    random : (h, T) array
        Of random search, on average.
    """

    tasks: tuple[str, ...]
    regret: Array
    random: Array

    def __post_init__(self) -> None:
        if not self.regret.shape == self.random.shape == (len(self.tasks), self.regret.shape[-1]):
            raise ShapeError(
                f"replays of {len(self.tasks)} tasks have shapes {self.regret.shape} and "
                f"{self.random.shape}; expected a row for every task in both"
            )

    @property
    def worse_than_random(self) -> tuple[str, ...]:
        """Tasks on which random search was better on average over all values."""
        worse = self.regret.mean(axis=1) > self.random.mean(axis=1)
        return tuple(name for name, is_worse in zip(self.tasks, worse, strict=True) if is_worse)

    @property
    def evaluations(self) -> int:
        """For how many evaluations every task has recorded rows to choose from, one to spare."""
        return max(int((self.random > EXHAUSTED).all(axis=0).sum()), 1)

    def within(self, share: float, evaluations: int) -> float:
        """Regret that this share of the tasks does not exceed after so many evaluations."""
        return float(np.quantile(self.regret[:, evaluations - 1], share, method="higher"))


def random_regret(y: Array, evaluations: int) -> Array:
    """(T,) expected regret of rows drawn without repetition, exactly."""
    order = np.sort(y)
    n = len(order)
    regret = np.zeros(evaluations)
    # P(best of t is at most the i-th smallest) = C(i, t) / C(n, t), by a running product.
    for t in range(1, evaluations + 1):
        below = np.arange(n + 1, dtype=np.float64)
        chance = np.ones(n + 1)
        for k in range(min(t, n)):
            chance *= np.maximum(below - k, 0) / (n - k)
        regret[t - 1] = order[-1] - np.diff(chance) @ order
    return regret
