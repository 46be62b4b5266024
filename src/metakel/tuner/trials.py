"""What a journal says happened: a fold over its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, overload

from metakel.confidence import AlarmEvent
from metakel.errors import Hint, InputError
from metakel.space import Space
from metakel.tuner.events import Configuration, Event, judged, key, measured, refuse_damaged

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
    since : str
        When that process was given it, as the journal has it; empty if unknown.
    reason : str
        Why it failed.
    suggested : dict or None
        What the tuner suggested, where something else was run instead.
    released : bool
        Whether it was given back, so that it is asked again.
    expected : pair of float, or None
        Mean and standard deviation by the model that chose it, when it did.
    outputs : dict
        What else was measured, by name.
    """

    number: int
    configuration: Configuration
    state: State = "pending"
    value: float | None = None
    asked: bool = True
    owner: Mapping[str, Any] | None = field(default=None, repr=False)
    since: str = field(default="", repr=False)
    reason: str = ""
    suggested: Configuration | None = None
    released: bool = False
    expected: tuple[float, float] | None = None
    outputs: Mapping[str, float] = field(default_factory=dict)

    def age(self, now: datetime | None = None) -> float | None:
        """Seconds since its process was given it; None if unknown."""
        try:
            given = datetime.fromisoformat(self.since)
        except ValueError:
            return None
        if given.tzinfo is None:
            given = given.replace(tzinfo=UTC)
        return ((now or datetime.now(UTC)) - given).total_seconds()


@dataclass(frozen=True)
class Trials:
    """All trials, in order of their numbers, and in order of their results.

    It can be listed, indexed by number, and turned into a frame (`to_frame`).

    Parameters
    ----------
    all : tuple of JournalTrial
    finished : tuple of int
        Numbers, in the order in which results came.
    queued : tuple of dict
        Configurations to ask for first.
    alarm : AlarmEvent or None
    corrections : int
        How many results were replaced.
    revision : int
        Counts the events that change what is to be asked for. Results of pending trials do not:
        whoever chooses meanwhile chooses without them.
    accepted : int
        Alarms up to this time do not stop a run with limits any more.
    """

    all: tuple[JournalTrial, ...] = ()
    finished: tuple[int, ...] = ()
    queued: tuple[Configuration, ...] = ()
    alarm: AlarmEvent | None = field(default=None)
    corrections: int = 0
    revision: int = 0
    accepted: int = 0

    def after(
        self, events: Iterable[Mapping[str, Any]], where: str = "the journal", line: int = 1
    ) -> Trials:
        """With more events taken in; the first of them is this ``line`` of the journal."""
        fold = _Fold(self)
        for i, event in enumerate(events, start=line):
            try:
                refuse_damaged(event)
                fold.take(event)
            except InputError as error:
                raise error.at(f"{where}, line {i}") from None
        return fold.trials

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[JournalTrial]:
        return iter(self.all)

    @overload
    def __getitem__(self, number: int) -> JournalTrial: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[JournalTrial, ...]: ...
    def __getitem__(self, number: int | slice) -> JournalTrial | tuple[JournalTrial, ...]:
        return self.all[number]

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row per trial and a column per parameter.

        The other columns are number, state and value, and what was expected: mean and sd.
        """
        from metakel.tuner.show import trial_columns

        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        return pd.DataFrame(trial_columns(self.all))

    def _repr_html_(self) -> str:
        from metakel.tuner.show import trials_table

        return trials_table(self)

    @cached_property
    def complete(self) -> tuple[JournalTrial, ...]:
        """With a value, in the order in which the values came."""
        done = (self.all[i] for i in self.finished)
        return tuple(trial for trial in done if trial.state == "complete")

    @cached_property
    def failed(self) -> tuple[JournalTrial, ...]:
        """Without a value, for good."""
        return tuple(trial for trial in self.all if trial.state == "failed")

    @cached_property
    def pending(self) -> tuple[JournalTrial, ...]:
        """Asked, and no result yet."""
        return tuple(trial for trial in self.all if trial.state == "pending")

    @property
    def counts(self) -> str:
        """How many there are of each kind, in words."""
        done, failed, waiting = len(self.complete), len(self.failed), len(self.pending)
        return f"{done} values, {failed} failed, {waiting} pending"

    @cached_property
    def spent(self) -> int:
        """Evaluations that count towards a budget: asked and not dropped."""
        return sum(trial.asked and trial.state != "dropped" for trial in self.all)

    @cached_property
    def asked_for(self) -> list[Configuration]:
        """Configurations that are not asked again: those run, suggested, and dropped for good."""
        kept = [t for t in self.all if not (t.state == "dropped" and t.released)]
        suggested = [trial.suggested for trial in kept if trial.suggested is not None]
        return [*(trial.configuration for trial in kept), *suggested]

    def waiting(
        self,
        configuration: Mapping[str, Any],
        space: Space | None = None,
        owner: Mapping[str, Any] | None = None,
    ) -> JournalTrial | None:
        """The first pending trial with this configuration, as the space sees it.

        Where a configuration is evaluated several times at once, the one of ``owner`` is meant.
        """
        wanted = key(configuration, space)
        found = [trial for trial in self.pending if key(trial.configuration, space) == wanted]
        mine = [trial for trial in found if owner is not None and trial.owner == owner]
        return next(iter(mine or found), None)

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

    def pending_one(self, number: int | None = None) -> JournalTrial:
        """The pending trial of a number, or the only one."""
        waiting = self.pending
        numbers = ", ".join(str(trial.number) for trial in waiting) or "none"
        if number is None:
            if not waiting:
                raise InputError(
                    "no trial is pending; expected one that was asked for",
                    Hint("tell a run of your own", "tell({...}, value)", "--set name=value ..."),
                )
            if len(waiting) > 1:
                raise InputError(f"which of the pending trials? Say its number: {numbers}")
            return waiting[0]
        found = next((trial for trial in waiting if trial.number == number), None)
        if found is None:
            raise InputError(
                f"trial {number} is not pending: {self.describe(number)}; pending are: {numbers}"
            )
        return found

    def correction(
        self,
        number: int,
        value: Any,
        reason: str,
        outputs: Mapping[str, Any] | None,
        run: Configuration | None = None,
    ) -> Event:
        """The event that replaces a result; what was ``run`` is as noted unless it is said."""
        noted = self.result_of(number).configuration
        return {
            "event": "corrected",
            "number": number,
            "configuration": run or noted,
            **judged(value, reason),
            **measured(outputs),
        }

    def result_of(self, number: int) -> JournalTrial:
        """A trial with a result, right or wrong."""
        if not 0 <= number < len(self.all):
            raise InputError(f"trial {number} cannot be corrected: there is no such trial")
        return _with_result(self.all[number])

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


class _Fold:
    """Takes in events one by one; the work for each does not grow with the number of trials."""

    def __init__(self, trials: Trials) -> None:
        self._all, self._finished = list(trials.all), list(trials.finished)
        self._queued, self._alarm = list(trials.queued), trials.alarm
        self._corrections, self._revision = trials.corrections, trials.revision
        self._accepted = trials.accepted
        self._owner: Mapping[str, Any] | None = None  # whoever asked last

    @property
    def trials(self) -> Trials:
        """Everything that was taken in."""
        return Trials(
            tuple(self._all),
            tuple(self._finished),
            tuple(self._queued),
            self._alarm,
            self._corrections,
            self._revision,
            self._accepted,
        )

    def take(self, event: Mapping[str, Any]) -> None:
        """One more event; kinds of a later version are not ours to judge."""
        kind, number = event["event"], event.get("number")
        self._revision += not (kind in ("told", "failed") and number is not None)
        if kind == "asked":
            self._ask(event)
        elif kind == "queued":
            self._queued.append(dict(event["configuration"]))
        elif kind == "alarm":
            self._alarm = AlarmEvent(int(event["told"]), str(event["reason"]))
        elif kind == "alarm accepted":
            self._accepted = int(event["told"])
        elif kind == "adopted":
            given = {"owner": event.get("by"), "since": str(event.get("at", ""))}
            self._change(event["number"], **given, released=False)
        elif kind == "released":
            self._change(event["number"], released=True)
        elif kind == "corrected":
            self._correct(event)
        elif kind in STATES:
            self._finish(event, STATES[kind])

    def _ask(self, event: Mapping[str, Any]) -> None:
        if event.get("queued"):
            del self._queued[:1]
        guess, owner = event.get("expected"), event.get("by")
        if owner == self._owner:
            owner = self._owner  # one copy of it, where one process asks for all
        self._owner = owner
        self._all.append(
            JournalTrial(
                len(self._all),
                dict(event["configuration"]),
                owner=owner,
                since=str(event.get("at", "")),
                expected=None if guess is None else (float(guess[0]), float(guess[1])),
            )
        )

    def _finish(self, event: Mapping[str, Any], state: State) -> None:
        result = {"value": event.get("value"), "reason": str(event.get("reason", ""))}
        result["released"] = bool(event.get("again", False))
        result["outputs"] = dict(event.get("outputs") or {})
        number, run = event.get("number"), event.get("configuration")
        if number is None:
            number = len(self._all)
            self._all.append(JournalTrial(number, dict(event["configuration"]), asked=False))
        elif run is not None:
            result |= _run_instead(self._trial(number), dict(run))
        self._change(number, state=state, **result)
        self._finished.append(number)

    def _correct(self, event: Mapping[str, Any]) -> None:
        """The result takes the place of the wrong one, as if it had been observed at first.

        An alarm was about the wrong one: whoever follows the values finds out whether it stands.
        """
        number, value = event["number"], event["value"]
        wrong = _with_result(self._trial(number))
        state: State = "failed" if value is None else "complete"
        result = {"state": state, "value": value, "reason": str(event.get("reason", ""))}
        result["outputs"] = dict(event.get("outputs") or {})
        self._change(number, **result, **_run_instead(wrong, dict(event["configuration"])))
        self._alarm, self._corrections = None, self._corrections + 1

    def _change(self, number: int, **changes: Any) -> None:
        old = self._trial(number)
        # As `replace` does it, at a fifth of the time, which is that of opening a long journal.
        self._all[number] = new = object.__new__(JournalTrial)
        new.__dict__.update(old.__dict__, **changes)

    def _trial(self, number: int) -> JournalTrial:
        if not 0 <= number < len(self._all):
            raise InputError(f"found trial {number}; expected one of the {len(self._all)} before")
        return self._all[number]


def _with_result(trial: JournalTrial) -> JournalTrial:
    if trial.state not in FINISHED:
        raise InputError(
            f"trial {trial.number} has no result that could be corrected: it is {trial.state}"
        )
    return trial


def _run_instead(trial: JournalTrial, run: Configuration) -> dict[str, Any]:
    asked = trial.configuration
    # Equal at first sight, as almost always; True is not 1 here.
    if run == asked and [*map(type, run.values())] == [*map(type, asked.values())]:
        return {}
    if key(run) == key(asked):
        return {}
    suggested = trial.suggested or (trial.configuration if trial.asked else None)
    return {"configuration": run, "suggested": suggested}
