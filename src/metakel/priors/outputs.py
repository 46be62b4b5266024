"""What past tasks measured, the output that is optimised and others, as a prior keeps it.

A search that promises something of single configurations decides by confidence bounds, not by the
Gaussian processes of the prior. So it needs kernels with features, noise levels, and past tasks
that did not teach these kernels. `learn_outputs` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metakel._arrays import positive
from metakel.data import History, Task
from metakel.errors import InputError
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
