"""What a journal says happened: a fold over its events, and the record of it for an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from metakel._arrays import Array
from metakel.confidence import AlarmEvent
from metakel.errors import InputError
from metakel.optimize import Record, Trial
from metakel.space import Space
from metakel.tuner.configurations import Configuration, key
from metakel.tuner.events import Event, refuse_damaged

State = Literal["pending", "complete", "failed", "dropped"]
STATES: dict[str, State] = {"told": "complete", "failed": "failed", "dropped": "dropped"}
FINISHED = ("complete", "failed")


@dataclass(frozen=True)
class JournalTrial:
    """One configuration, asked by the tuner or brought along.

    Parameters
    ----------
    number : int
        Its place in the journal, from 0.
    configuration : dict
        What was run, once there is a result; until then, what was suggested.
    state : "pending", "complete", "failed" or "dropped"
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
    expected : pair of float, or None
        Mean and standard deviation by the model that chose it, when it did.
    """

    number: int
    configuration: Configuration
    state: State = "pending"
    value: float | None = None
    asked: bool = True
    owner: Mapping[str, Any] | None = None
    reason: str = ""
    suggested: Configuration | None = None
    released: bool = False
    expected: tuple[float, float] | None = None


@dataclass(frozen=True)
class Trials:
    """All trials, in order of their numbers, and in order of their results."""

    all: tuple[JournalTrial, ...] = ()
    finished: tuple[int, ...] = ()  # numbers, in the order in which results came
    queued: tuple[Configuration, ...] = ()
    alarm: AlarmEvent | None = field(default=None)
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
                raise error.at(f"{where}, line {i}") from None
        return trials

    def _after(self, event: Mapping[str, Any]) -> Trials:
        kind = event["event"]
        if kind == "asked":
            queued = self.queued[1:] if event.get("queued") else self.queued
            guess = event.get("expected")
            new = JournalTrial(
                len(self.all),
                dict(event["configuration"]),
                owner=event.get("by"),
                expected=None if guess is None else (float(guess[0]), float(guess[1])),
            )
            return replace(self, all=(*self.all, new), queued=queued)
        if kind == "queued":
            return replace(self, queued=(*self.queued, dict(event["configuration"])))
        if kind == "alarm":
            return replace(self, alarm=AlarmEvent(int(event["told"]), str(event["reason"])))
        if kind == "adopted":
            return self._changed(int(event["number"]), owner=event.get("by"), released=False)
        if kind == "released":
            return self._changed(int(event["number"]), released=True)
        if kind == "corrected":
            return self._correct(event)
        if kind in STATES:
            return self._finish(event, STATES[kind])
        return self  # of a later version: not ours to judge

    def _finish(self, event: Mapping[str, Any], state: State) -> Trials:
        result = {"value": event.get("value"), "reason": str(event.get("reason", ""))}
        result["released"] = bool(event.get("again", False))
        number = event.get("number")
        if number is None:
            number = len(self.all)
            new = JournalTrial(number, dict(event["configuration"]), asked=False)
            grown = replace(self, all=(*self.all, new))
        else:
            grown, run = self, event.get("configuration")
            if run is not None and 0 <= number < len(self.all):
                result |= _run_instead(self.all[number], dict(run))
        changed = grown._changed(int(number), state=state, **result)
        return replace(changed, finished=(*self.finished, int(number)))

    def _correct(self, event: Mapping[str, Any]) -> Trials:
        """The result takes the place of the wrong one, as if it had been told at first.

        An alarm was about the wrong one: whoever follows the values finds out whether it stands.
        """
        number, value = int(event["number"]), event["value"]
        wrong = self.result_of(number)
        state: State = "failed" if value is None else "complete"
        result = {"state": state, "value": value, "reason": str(event.get("reason", ""))}
        result |= _run_instead(wrong, dict(event["configuration"]))
        changed = self._changed(number, **result)
        return replace(changed, alarm=None, corrections=self.corrections + 1)

    def _changed(self, number: int, **changes: Any) -> Trials:
        if not 0 <= number < len(self.all):
            raise InputError(f"found trial {number}; expected one of the {len(self.all)} before")
        trial = replace(self.all[number], **changes)
        return replace(self, all=(*self.all[:number], trial, *self.all[number + 1 :]))

    @property
    def complete(self) -> tuple[JournalTrial, ...]:
        """With a value, in the order in which the values came."""
        done = (self.all[i] for i in self.finished)
        return tuple(trial for trial in done if trial.state == "complete")

    @property
    def failed(self) -> tuple[JournalTrial, ...]:
        """Without a value, for good."""
        return tuple(trial for trial in self.all if trial.state == "failed")

    @property
    def pending(self) -> tuple[JournalTrial, ...]:
        """Asked, and no result yet."""
        return tuple(trial for trial in self.all if trial.state == "pending")

    @property
    def spent(self) -> int:
        """Evaluations that count towards a budget: asked and not dropped."""
        return sum(trial.asked and trial.state != "dropped" for trial in self.all)

    @property
    def asked_for(self) -> list[Configuration]:
        """Configurations that are not asked again: those run, suggested, and dropped for good."""
        kept = [t for t in self.all if not (t.state == "dropped" and t.released)]
        suggested = [trial.suggested for trial in kept if trial.suggested is not None]
        return [*(trial.configuration for trial in kept), *suggested]

    def waiting(
        self, configuration: Mapping[str, Any], space: Space | None = None
    ) -> JournalTrial | None:
        """The first pending trial with this configuration, as the space sees it."""
        wanted = key(configuration, space)
        found = (trial for trial in self.pending if key(trial.configuration, space) == wanted)
        return next(found, None)

    def done_as(self, configuration: Mapping[str, Any], space: Space) -> JournalTrial:
        """The only trial with a result for this configuration."""
        wanted = key(configuration, space)
        done = (trial for trial in self.all if trial.state in ("complete", "failed"))
        found = [trial for trial in done if key(trial.configuration, space) == wanted]
        if len(found) != 1:
            numbers = ", ".join(str(trial.number) for trial in found) or "none"
            raise InputError(f"which trial is meant? Say its number; with this result: {numbers}")
        return found[0]

    def best(self, *, minimize: bool) -> JournalTrial | None:
        """The best of those with a value."""
        sign = -1.0 if minimize else 1.0
        return max(self.complete, key=lambda trial: sign * (trial.value or 0.0), default=None)

    def drop(self, number: int) -> Event:
        """The event that gives up a pending trial, or takes back a failure."""
        state = self.all[number].state if 0 <= number < len(self.all) else ""
        if state not in ("pending", "failed"):
            raise InputError(
                f"trial {number} is not pending: {self.describe(number)}; expected a pending or a "
                "failed one"
            )
        return {"event": "dropped", "number": number, "again": state == "failed"}

    def as_record(self, encode: Callable[[int, Configuration], Array]) -> Record:
        """For an optimizer; ``encode`` gives the point (d0,) of a trial's configuration.

        Results come in the order in which the journal has them. A suggestion in whose place
        something else was run is not made again.
        """
        trials = []
        for trial in self.all:
            found = Trial(
                trial.number, trial.configuration, encode(trial.number, trial.configuration)
            )
            if trial.state in ("complete", "failed"):
                found = found.with_result(trial.value)
            elif trial.state == "dropped":
                found = replace(found, state="forgotten", closed=not trial.released)
            trials.append(found)
        for trial in self.all:
            if trial.suggested is not None:
                x = encode(-1 - trial.number, trial.suggested)
                trials.append(Trial(len(trials), trial.suggested, x, state="forgotten"))
        done = (self.all[number] for number in self.finished)
        return Record(tuple(trials), tuple((t.number,) for t in done if t.state in FINISHED))

    def pending_one(self, number: int | None = None) -> JournalTrial:
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

    def result_of(self, number: int) -> JournalTrial:
        """A trial with a result, right or wrong."""
        trial = self.all[number] if 0 <= number < len(self.all) else None
        if trial is None or trial.state not in ("complete", "failed"):
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
            "complete": f"it has the value {trial.value or 0.0:g}{mend}",
            "failed": f"it failed{why}{mend}",
        }
        return words.get(trial.state, f"it is {trial.state}")


def _run_instead(trial: JournalTrial, run: Configuration) -> dict[str, Any]:
    if key(run) == key(trial.configuration):
        return {}
    suggested = trial.suggested or (trial.configuration if trial.asked else None)
    return {"configuration": run, "suggested": suggested}
