"""What a prior keeps of past tasks: what they measured, and how it would have done on them.

A search that promises something of single configurations decides by confidence bounds, not by the
Gaussian processes of the prior. So it needs kernels with features, noise levels, and past tasks
that did not teach these kernels. `learn_outputs` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array, positive
from metakel.data import History, Task
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum


@dataclass(frozen=True, eq=False)
class PastOutput:
    """Records of one output of past tasks.

    Parameters
    ----------
    tasks : tuple of Task
        In the sign in which it was measured, with points as the model sees them.
    kernel : KernelSum
        Learned from the first half of the tasks.
    noise_std : float
        Noise of a measurement.
    """

    tasks: tuple[Task, ...]
    kernel: KernelSum
    noise_std: float

    def __post_init__(self) -> None:
        positive("noise_std", self.noise_std)

    @property
    def history(self) -> History:
        """The tasks as a history."""
        return History(self.tasks)


@dataclass(frozen=True, eq=False)
class PastOutputs:
    """All outputs of the same past tasks; `learn_outputs` makes it.

    Parameters
    ----------
    outputs : dict of PastOutput
        By name; the objective is the first.
    """

    outputs: Mapping[str, PastOutput]

    def __post_init__(self) -> None:
        if not self.outputs or len({len(o.tasks) for o in self.outputs.values()}) != 1:
            raise InputError("past outputs are not of the same tasks")

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured, the objective first."""
        return tuple(self.outputs)

    @property
    def tasks(self) -> int:
        """How many past tasks there are."""
        return len(next(iter(self.outputs.values())).tasks)

    def __str__(self) -> str:
        listed = ", ".join(f"{name} (noise {o.noise_std:.2g})" for name, o in self.outputs.items())
        left = self.tasks - round(self.tasks / 2)
        return (
            f"records of {listed}; {left} of {self.tasks} tasks did not teach their kernels and "
            "can vouch for the first configurations of the next task"
        )


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
