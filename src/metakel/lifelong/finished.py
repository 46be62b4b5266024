"""What became of a task, and the report over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any, Self

from metakel.optimize import Optimizer


@dataclass(frozen=True)
class FinishedTask:
    """A task that was played.

    Parameters
    ----------
    name : str
    values : int
        How many values were observed.
    kernels : tuple of str
        Base kernels that it was played with.
    learned : bool
        Whether these were the selected ones; False for all kernels, as in the warm-up.
    best : float or None
        Value of its best point; None with contexts, where there is no one best point.
    regret : float
        How far the best point can be from the optimum; with contexts, the mean over the runs of
        what a run can have lost.
    alarm : int or None
        After how many values the data contradicted the kernels.
    selected : tuple of str or None
        Base kernels that were selected after this task; None where nothing was learned then.
    """

    name: str
    values: int
    kernels: tuple[str, ...]
    learned: bool
    best: float | None
    regret: float
    alarm: int | None
    selected: tuple[str, ...] | None = None

    @classmethod
    def of(cls, name: str, optimizer: Optimizer, *, kernels: Sequence[str], learned: bool) -> Self:
        """The summary of an optimizer's run."""
        contextual = optimizer.contexts is not None
        certified = not optimizer.no_certificate
        if contextual:
            regret = optimizer.regret_certificate / max(optimizer.t, 1)
        else:
            regret = optimizer.certificate.regret if certified else inf
        return cls(
            name=name,
            values=optimizer.t,
            kernels=tuple(kernels),
            learned=learned,
            best=None if contextual else optimizer.best.value,
            regret=float(regret),
            alarm=None if optimizer.alarm is None else optimizer.alarm.time,
        )

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {**asdict(self), "regret": self.regret if isfinite(self.regret) else None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FinishedTask:
        """Inverse of `to_dict`."""
        kept = dict(data)
        kept["kernels"] = tuple(kept["kernels"])
        kept["regret"] = inf if kept["regret"] is None else float(kept["regret"])
        kept["selected"] = None if kept["selected"] is None else tuple(kept["selected"])
        return cls(**kept)


def changes(before: Sequence[str], after: Sequence[str]) -> str:
    """Which kernels were added and removed, as in "+P3 -P7"."""
    added = [f"+{name}" for name in after if name not in before]
    removed = [f"-{name}" for name in before if name not in after]
    return " ".join([*added, *removed])


def table(tasks: Sequence[FinishedTask]) -> str:
    """Text for people: one line for each task."""
    width = max([4, *(len(task.name) for task in tasks)])
    lines = [f"{'task':{width}}  values  played with   best      within    alarm  selection"]
    selected: tuple[str, ...] = ()
    for task in tasks:
        played = f"{len(task.kernels)} learned" if task.learned else f"all {len(task.kernels)}"
        best = "-" if task.best is None else f"{task.best:.4g}"
        alarm = "-" if task.alarm is None else f"t={task.alarm}"
        change = ""
        if task.selected is not None:
            change, selected = changes(selected, task.selected), task.selected
        lines.append(
            f"{task.name:{width}}  {task.values:6d}  {played:12}  {best:8}  {task.regret:<8.3g}  "
            f"{alarm:5}  {change}".rstrip()
        )
    return "\n".join(lines)
