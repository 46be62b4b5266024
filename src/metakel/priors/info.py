"""What a prior keeps beside what its history taught: where it comes from, and past measurements.

A search that promises something of single configurations decides by confidence bounds, not by the
Gaussian processes of the prior. So it needs kernels with features, noise levels, and past tasks
that did not teach these kernels. `learn_outputs` makes them. `Replays` say how the prior would have
done on past tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metakel._arrays import TINY, Array, as_number, as_numbers, positive
from metakel.data import History, Task
from metakel.errors import InputError, ShapeError
from metakel.gp.processes import LearnedProcess
from metakel.kernels import KernelSum
from metakel.priors.heldout import NOISE_RATIOS

# Initial weight of the cold start beside what was learned; evidence moves it from there.
COLD_WEIGHT = 0.05
FEWEST_BOUNDED = 4  # tasks that vary, of which half are left out to bound norms


@dataclass(frozen=True, eq=False)
class PriorInfo:
    """Where a prior comes from: names of the tasks, runs, output, and what was found in them.

    ``source`` is a digest of the runs themselves. Unlike what is learned from them, it does not
    depend on how a machine rounds.
    """

    tasks: tuple[str, ...]
    runs: int
    output: str
    minimize: bool
    constant: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()  # tasks that agree with no others
    winsorized: int = 0
    lam: str = "cv"
    mean: bool = True
    notes: tuple[str, ...] = ()
    output_range: tuple[float, float] | None = None  # smallest and largest output
    log_floor: float = 0.0  # positive where logarithms are learned; smaller values count as this
    source: str = ""
    model: str = ""  # of the library, whose parameters have other spellings
    tried_first: tuple[Mapping[str, Any], ...] = ()  # configurations measured on past tasks

    def __post_init__(self) -> None:
        if not re.fullmatch("([0-9a-f]{16})?", self.source):
            raise InputError(f"source is {self.source!r}; expected 16 hexadecimal digits")
        as_number("log_floor", self.log_floor, 0)

    @property
    def origin(self) -> str:
        """Numbers of tasks and runs, in words."""
        tasks = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks)} tasks"
        return f"{tasks}, {self.runs} run{'s' * (self.runs != 1)}"

    @property
    def varying(self) -> int:
        """How many tasks were learned from."""
        return len(self.tasks) - len(self.constant) - len(self.set_aside)

    @property
    def unbounded(self) -> str:
        """Why a prior without a bound of the norm has none."""
        if self.varying >= FEWEST_BOUNDED:
            return "priors of the library are kept without it"
        return f"it takes at least {FEWEST_BOUNDED} tasks that vary. Learned from: {self.varying}"


@dataclass(frozen=True, eq=False)
class FromLibrary:
    """A process of the library beside that of one's own history."""

    task_gp: LearnedProcess
    noise_ratio: tuple[float, ...]  # weights of the noise ratios
    weight: float  # at first, among what was learned

    def __post_init__(self) -> None:
        as_number("weight", self.weight, 0, 1)
        as_numbers("noise_ratio", self.noise_ratio, (len(NOISE_RATIOS),), low=TINY)


@dataclass(frozen=True, eq=False)
class Beside:
    """What stands beside what one's own history taught, until values decide."""

    cold_weight: float = COLD_WEIGHT  # of the cold start, at first
    library: FromLibrary | None = None

    def __post_init__(self) -> None:
        as_number("cold_weight", self.cold_weight, 0, 1)


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
