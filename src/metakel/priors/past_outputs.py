"""Records of everything that past tasks measured, from which a safe search can begin.

A safe search decides by confidence bounds, not by the mixture of Gaussian processes of a prior: it
needs kernels with features, noise levels, and past tasks that did not teach these kernels and can
vouch for the first points (``docs/guide/safe-search.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metakel._arrays import as_numbers, positive
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.kernels import KernelSum
from metakel.optimize.limits import Range
from metakel.optimize.start_set import SafeStart
from metakel.priors.certified_start import PastOutput, safe_start
from metakel.search import Domain

# Shares of delta: for the calibration of the start set and the norms, and for noisy records.
CALIBRATING, RECORDS = 0.5, 0.1


@dataclass(frozen=True, eq=False)
class RecordedOutput:
    """One output of past tasks, in the sign in which it was measured.

    Parameters
    ----------
    history : History
        Tasks with points as the model sees them.
    kernel : KernelSum
        With features; learned from the first half of the tasks alone.
    noise_std : float
        Noise of a measurement.
    """

    history: History
    kernel: KernelSum
    noise_std: float

    def limited(self, allowed: Range) -> PastOutput:
        """The output with limits."""
        low, high = allowed.to_list()
        return PastOutput(self.history, self.kernel, self.noise_std, at_least=low, at_most=high)

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {
            "kernel": self.kernel.to_json(),
            "noise_std": self.noise_std,
            "tasks": [
                {"name": task.name, "X": task.X.tolist(), "y": task.y.tolist()}
                for task in self.history
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], d0: int) -> RecordedOutput:
        """Inverse of `to_dict`."""
        tasks = []
        for entry in data["tasks"]:
            X = as_numbers("X", entry["X"], (None, d0))
            tasks.append(Task(X, as_numbers("y", entry["y"], (len(X),)), str(entry["name"])))
        kernel = KernelSum.from_json(data["kernel"])
        return cls(History(tuple(tasks)), kernel, positive("noise_std", data["noise_std"]))


@dataclass(frozen=True, eq=False)
class PastOutputs:
    """All outputs of the same past tasks; `learn_outputs` makes it.

    Parameters
    ----------
    outputs : dict of RecordedOutput
        By name; the objective is the first.
    """

    outputs: Mapping[str, RecordedOutput]

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured, the objective first."""
        return tuple(self.outputs)

    @property
    def tasks(self) -> int:
        """How many past tasks there are."""
        return len(next(iter(self.outputs.values())).history)

    def start(self, limits: Mapping[str, Range], domain: Domain, *, delta: float) -> SafeStart:
        """Where past tasks allow the next one to begin, and what they say of its outputs.

        Parameters
        ----------
        limits : dict of Range
            By the names of outputs; that of the objective may be among them.
        domain : Domain
        delta : float
            Of the whole search; the start set and the norms get three fifths of it.
        """
        objective, *others = self.names
        unknown = [name for name in limits if name not in self.outputs]
        if unknown:
            raise InputError(
                f"there is a limit on {unknown[0]!r}, of which no past measurements are known; "
                f"known are {', '.join(self.names)}"
            )
        goal = self.outputs[objective].limited(limits.get(objective, Range()))
        return safe_start(
            goal.history,
            goal.base,
            domain=domain,
            noise_std=goal.noise_std,
            at_least=goal.at_least,
            at_most=goal.at_most,
            limits={n: self.outputs[n].limited(limits[n]) for n in others if n in limits},
            delta=CALIBRATING * delta,
            delta_records=RECORDS * delta,
        )

    def __str__(self) -> str:
        listed = ", ".join(f"{name} (noise {o.noise_std:.2g})" for name, o in self.outputs.items())
        vouching = self.tasks - round(self.tasks / 2)
        return (
            f"limits can be set on {listed}; {vouching} of {self.tasks} tasks are left to vouch "
            "for the first configurations"
        )

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {name: output.to_dict() for name, output in self.outputs.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], d0: int) -> PastOutputs:
        """Inverse of `to_dict`."""
        found = {str(name): RecordedOutput.from_dict(o, d0) for name, o in data.items()}
        if not found or len({len(o.history) for o in found.values()}) != 1:
            raise InputError("past outputs are not of the same tasks")
        return cls(found)
