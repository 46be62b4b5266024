"""What a journal says happened: a fold over its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from metakel.errors import InputError
from metakel.space import Space
from metakel.tuner.events import refuse_damaged
from metakel.tuner.normalise import Configuration, key

Status = Literal["pending", "told", "failed", "dropped"]


@dataclass(frozen=True)
class Trial:
    """One configuration, asked by the tuner or brought along.

    Parameters
    ----------
    number : int
        Its place in the journal, from 0.
    configuration : dict
        What was run, once there is a result; until then, what was suggested.
    status : "pending", "told", "failed" or "dropped"
    value : float or None
        What was measured.
    asked : bool
        Whether the tuner chose it.
    owner : dict or None
        The process that evaluates it.
    reason : str
        Why it failed.
    suggested : dict or None
        What the tuner suggested, where something else was run instead.
    released : bool
        Whether it was given back, so that it is asked again.
    """

    number: int
    configuration: Configuration
    status: Status = "pending"
    value: float | None = None
    asked: bool = True
    owner: Mapping[str, Any] | None = None
    reason: str = ""
    suggested: Configuration | None = None
    released: bool = False


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
    corrections: int = 0

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
            return self._changed(int(event["number"]), owner=event.get("by"), released=False)
        if kind == "released":
            return self._changed(int(event["number"]), released=True)
        if kind == "corrected":
            return self._correct(event)
        if kind in ("told", "failed", "dropped"):
            return self._finish(event, kind)
        return self  # of a later version: not ours to judge

    def _finish(self, event: Mapping[str, Any], status: Status) -> Trials:
        result = {"value": event.get("value"), "reason": str(event.get("reason", ""))}
        result["released"] = bool(event.get("again", False))
        number = event.get("number")
        if number is None:
            number = len(self.all)
            new = Trial(number, dict(event["configuration"]), asked=False)
            grown = replace(self, all=(*self.all, new))
        else:
            grown, run = self, event.get("configuration")
            if run is not None and 0 <= number < len(self.all):
                result |= _run_instead(self.all[number], dict(run))
        changed = grown._changed(int(number), status=status, **result)
        return replace(changed, finished=(*self.finished, int(number)))

    def _correct(self, event: Mapping[str, Any]) -> Trials:
        """The result takes the place of the wrong one, as if it had been told at first.

        An alarm was about the wrong one: whoever follows the values finds out whether it stands.
        """
        number, value = int(event["number"]), event["value"]
        wrong = self.result_of(number)
        status: Status = "failed" if value is None else "told"
        result = {"status": status, "value": value, "reason": str(event.get("reason", ""))}
        result |= _run_instead(wrong, dict(event["configuration"]))
        changed = self._changed(number, **result)
        return replace(changed, alarm=None, corrections=self.corrections + 1)

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

    @property
    def asked_for(self) -> list[Configuration]:
        """Configurations that are not asked again: those run, suggested, and dropped for good."""
        kept = [t for t in self.all if not (t.status == "dropped" and t.released)]
        suggested = [trial.suggested for trial in kept if trial.suggested is not None]
        return [*(trial.configuration for trial in kept), *suggested]

    def waiting(self, configuration: Mapping[str, Any], space: Space | None = None) -> Trial | None:
        """The first pending trial with this configuration, as the space sees it."""
        wanted = key(configuration, space)
        found = (trial for trial in self.pending if key(trial.configuration, space) == wanted)
        return next(found, None)

    def done_as(self, configuration: Mapping[str, Any], space: Space) -> Trial:
        """The only trial with a result for this configuration."""
        wanted = key(configuration, space)
        done = (trial for trial in self.all if trial.status in ("told", "failed"))
        found = [trial for trial in done if key(trial.configuration, space) == wanted]
        if len(found) != 1:
            numbers = ", ".join(str(trial.number) for trial in found) or "none"
            raise InputError(f"which trial is meant? Say its number; with this result: {numbers}")
        return found[0]

    def best(self, *, minimize: bool) -> Trial | None:
        """The best of those told."""
        sign = -1.0 if minimize else 1.0
        return max(self.told, key=lambda trial: sign * (trial.value or 0.0), default=None)

    def pending_one(self, number: int | None = None) -> Trial:
        """The pending trial of a number, or the only one."""
        waiting = self.pending
        numbers = ", ".join(str(trial.number) for trial in waiting) or "none"
        if number is None:
            if len(waiting) != 1:
                raise InputError(f"which of the pending trials? Say its number: {numbers}")
            return waiting[0]
        found = next((trial for trial in waiting if trial.number == number), None)
        if found is None:
            raise InputError(
                f"trial {number} is not pending: {self.describe(number)}; pending are: {numbers}"
            )
        return found

    def result_of(self, number: int) -> Trial:
        """A trial with a result, right or wrong."""
        trial = self.all[number] if 0 <= number < len(self.all) else None
        if trial is None or trial.status not in ("told", "failed"):
            raise InputError(
                f"trial {number} has no result that could be corrected: {self.describe(number)}"
            )
        return trial

    def describe(self, number: int) -> str:
        """What became of a trial, in words."""
        if not 0 <= number < len(self.all):
            return "there is no such trial"
        trial = self.all[number]
        why = f" ({trial.reason})" if trial.reason else ""
        mend = "; Tuner.correct or --correct replaces that"
        words = {
            "told": f"it was told {trial.value or 0.0:g}{mend}",
            "failed": f"it failed{why}{mend}",
        }
        return words.get(trial.status, f"it is {trial.status}")


def _run_instead(trial: Trial, run: Configuration) -> dict[str, Any]:
    if key(run) == key(trial.configuration):
        return {}
    suggested = trial.suggested or (trial.configuration if trial.asked else None)
    return {"configuration": run, "suggested": suggested}
