"""What a journal says happened: a fold over its events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from metakel.errors import InputError
from metakel.tuner.events import refuse_damaged

Configuration = dict[str, Any]
Status = Literal["pending", "told", "failed", "dropped"]


@dataclass(frozen=True)
class Trial:
    """One configuration, asked by the tuner or brought along.

    Parameters
    ----------
    number : int
        Its place in the journal, from 0.
    configuration : dict
    status : "pending", "told", "failed" or "dropped"
    value : float or None
        What was measured.
    asked : bool
        Whether the tuner chose it.
    owner : dict or None
        The process that evaluates it.
    reason : str
        Why it failed.
    """

    number: int
    configuration: Configuration
    status: Status = "pending"
    value: float | None = None
    asked: bool = True
    owner: Mapping[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True)
class AlarmRaised:
    """The values told contradict the history; from then on it is left out.

    Parameters
    ----------
    told : int
        How many values had been told.
    reason : str
    """

    told: int
    reason: str


@dataclass(frozen=True)
class Trials:
    """All trials, in order of their numbers, and in order of their results."""

    all: tuple[Trial, ...] = ()
    finished: tuple[int, ...] = ()  # numbers, in the order in which results came
    queued: tuple[Configuration, ...] = ()
    alarm: AlarmRaised | None = field(default=None)

    def after(
        self, events: Iterable[Mapping[str, Any]], where: str = "the journal", line: int = 1
    ) -> Trials:
        """With more events taken in; the first of them is this ``line`` of the journal."""
        trials = self
        for i, event in enumerate(events, start=line):
            try:
                refuse_damaged(event)
                trials = trials._after(event)
            except InputError as error:
                raise InputError(f"{where}, line {i}: {error}") from None
        return trials

    def _after(self, event: Mapping[str, Any]) -> Trials:
        kind = event["event"]
        if kind == "asked":
            queued = self.queued[1:] if event.get("queued") else self.queued
            new = Trial(len(self.all), dict(event["configuration"]), owner=event.get("by"))
            return replace(self, all=(*self.all, new), queued=queued)
        if kind == "queued":
            return replace(self, queued=(*self.queued, dict(event["configuration"])))
        if kind == "alarm":
            return replace(self, alarm=AlarmRaised(int(event["told"]), str(event["reason"])))
        if kind == "adopted":
            return self._changed(int(event["number"]), owner=event.get("by"))
        if kind in ("told", "failed", "dropped"):
            return self._finish(event, kind)
        return self  # of a later version: not ours to judge

    def _finish(self, event: Mapping[str, Any], status: Status) -> Trials:
        result = {"value": event.get("value"), "reason": str(event.get("reason", ""))}
        number = event.get("number")
        if number is None:
            number = len(self.all)
            new = Trial(number, dict(event["configuration"]), asked=False)
            grown = replace(self, all=(*self.all, new))
        else:
            grown = self
        changed = grown._changed(int(number), status=status, **result)
        return replace(changed, finished=(*self.finished, int(number)))

    def _changed(self, number: int, **changes: Any) -> Trials:
        if not 0 <= number < len(self.all):
            raise InputError(f"found trial {number}; expected one of the {len(self.all)} before")
        trial = replace(self.all[number], **changes)
        return replace(self, all=(*self.all[:number], trial, *self.all[number + 1 :]))

    @property
    def told(self) -> tuple[Trial, ...]:
        """With a value, in the order in which the values came."""
        done = (self.all[i] for i in self.finished)
        return tuple(trial for trial in done if trial.status == "told")

    @property
    def failed(self) -> tuple[Trial, ...]:
        """Without a value, for good."""
        return tuple(trial for trial in self.all if trial.status == "failed")

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Asked, and no result yet."""
        return tuple(trial for trial in self.all if trial.status == "pending")

    @property
    def spent(self) -> int:
        """Evaluations that count towards a budget: asked and not dropped."""
        return sum(trial.asked and trial.status != "dropped" for trial in self.all)

    def waiting(self, configuration: Mapping[str, Any]) -> Trial | None:
        """The first pending trial with this configuration."""
        wanted = dict(configuration)
        return next((trial for trial in self.pending if trial.configuration == wanted), None)


def key(configuration: Mapping[str, Any]) -> str:
    """The same for equal configurations."""
    return json.dumps(plain(configuration), sort_keys=True)


def plain(configuration: Mapping[str, Any]) -> Configuration:
    """Values as JSON keeps them: numbers of numpy become Python's."""
    if not isinstance(configuration, Mapping):
        raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
    return {str(k): v.item() if hasattr(v, "item") else v for k, v in configuration.items()}
