"""What a journal says happened: a fold over its events to the record of an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import nan
from typing import Any

from metakel._arrays import Array, is_integer, shown
from metakel.confidence import AlarmEvent
from metakel.errors import Hint, InputError
from metakel.optimize.outcomes import FINISHED
from metakel.optimize.record import NO_NOTE, UNPLACED, Note, Record, Trial, TrialState, feasible
from metakel.space import Space
from metakel.tuner.events import (
    Configuration,
    Event,
    check_header,
    judged,
    measured,
    refuse_damaged,
)

STATES: dict[str, TrialState] = {
    "told": "complete",
    "failed": "failed",
    "stopped": "stopped",
    "dropped": "dropped",
}


@dataclass(frozen=True, eq=False)
class Run:
    """A run as its events tell it.

    Parameters
    ----------
    header : dict
        What it was begun with; empty before that.
    record : Record
        All trials, in order of their numbers, and the order in which results came.
    queued : tuple of dict
        Configurations to ask for first.
    alarm : AlarmEvent or None
    corrections : int
        How many results were replaced.
    revision : int
        Counts the events that change what is to be asked for. Results of pending trials do not:
        whoever chooses meanwhile chooses without them.
    accepted : int
        Alarms up to this time do not stop the run any more.
    """

    header: Mapping[str, Any] = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    queued: tuple[Configuration, ...] = ()
    alarm: AlarmEvent | None = None
    corrections: int = 0
    revision: int = 0
    accepted: int = 0

    def after(
        self, events: Iterable[Mapping[str, Any]], where: str = "the journal", line: int = 1
    ) -> Run:
        """With more events taken in; the first of them is this ``line`` of the journal."""
        fold = _Fold(self, where)
        for i, event in enumerate(events, start=line):
            try:
                refuse_damaged(event)
                fold.take(event)
            except InputError as error:
                raise error.at(f"{where}, line {i}") from None
        return fold.run()

    @cached_property
    def space(self) -> Space:
        """The parameters."""
        return Space.from_dict(self.header["space"])

    @cached_property
    def spent(self) -> int:
        """Evaluations that count towards a budget: asked and not dropped."""
        return sum(trial.note.asked and trial.state != "dropped" for trial in self.record)

    @cached_property
    def asked_for(self) -> list[Configuration]:
        """Configurations that are not asked again: those run, suggested, and dropped for good."""
        kept = [t for t in self.record if t.closed or t.state != "dropped"]
        suggested = [dict(t.note.suggested) for t in kept if t.note.suggested is not None]
        return [*(t.point for t in kept), *suggested]

    @property
    def best(self) -> Trial | None:
        """The best of those with a value."""
        sign = -1.0 if self.header.get("minimize") else 1.0
        counted = (trial for trial in self.record.observed if trial.state == "complete")
        return max(counted, key=lambda t: sign * (t.value or 0.0), default=None)

    def waiting(
        self, configuration: Mapping[str, Any], owner: Mapping[str, Any] | None = None
    ) -> Trial | None:
        """The first pending trial with this configuration.

        Where a configuration is evaluated several times at once, the one of ``owner`` is meant.
        """
        wanted = self.space.key(configuration)
        found = [trial for trial in self.record.pending if self.space.key(trial.point) == wanted]
        mine = [trial for trial in found if owner is not None and trial.note.owner == owner]
        return next(iter(mine or found), None)

    def done_as(self, configuration: Mapping[str, Any]) -> Trial:
        """The only trial with a result for this configuration."""
        wanted = self.space.key(configuration)
        done = (trial for trial in self.record if trial.state in FINISHED)
        found = [trial for trial in done if self.space.key(trial.point) == wanted]
        if len(found) != 1:
            numbers = ", ".join(str(trial.number) for trial in found) or "none"
            raise InputError(f"which trial is meant? Say its number; with this result: {numbers}")
        return found[0]

    def pending_one(self, number: int | None = None) -> Trial:
        """The pending trial of a number, or the only one."""
        waiting = self.record.pending
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
        found = next((t for t in waiting if is_integer(number) and t.number == number), None)
        if found is None:
            raise InputError(
                f"trial {shown(number)} is not pending: {self.describe(number)}; pending are: "
                f"{numbers}"
            )
        return found

    def result_of(self, number: int) -> Trial:
        """A trial with a result, right or wrong."""
        if not self._has(number):
            raise InputError(f"trial {shown(number)} cannot be corrected: there is no such trial")
        trial = self.record[number]
        if trial.state not in FINISHED:
            raise _no_result(number, trial.state)
        return trial

    def _has(self, number: int) -> bool:
        return is_integer(number) and 0 <= number < len(self.record)

    def describe(self, number: int) -> str:
        """What became of a trial, in words."""
        if not self._has(number):
            return "there is no such trial"
        trial = self.record[number]
        why = f" ({trial.note.reason})" if trial.note.reason else ""
        mend = "; Tuner.correct or --correct replaces that"
        words = {
            "complete": f"it has the value {trial.value or 0.0:g}{mend}",
            "failed": f"it failed{why}{mend}",
            "stopped": f"it was stopped early{why}{mend}",
        }
        return words.get(trial.state, f"it is {trial.state}")

    # Events that follow from it

    def drop(self, number: int) -> Event:
        """The event that gives up a pending trial, or takes back a failure."""
        state = self.record[number].state if self._has(number) else ""
        if state not in ("pending", "failed"):
            raise InputError(
                f"trial {shown(number)} is not pending: {self.describe(number)}; expected a "
                "pending or a failed one"
            )
        return {"event": "dropped", "number": number, "again": state == "failed"}

    def correction(
        self,
        number: int,
        value: Any,
        reason: str,
        outputs: Mapping[str, Any] | None,
        run: Configuration | None = None,
    ) -> Event:
        """The event that replaces a result; what was ``run`` is as noted unless it is said."""
        noted = self.result_of(number).point
        return {
            "event": "corrected",
            "number": number,
            "configuration": run or noted,
            **judged(value, reason),
            **measured(outputs),
        }


def age(trial: Trial, now: datetime | None = None) -> float | None:
    """Seconds since its process was given a trial; None if unknown."""
    try:
        given = datetime.fromisoformat(trial.note.since)
    except ValueError:
        return None
    if given.tzinfo is None:
        given = given.replace(tzinfo=UTC)
    return ((now or datetime.now(UTC)) - given).total_seconds()


class _Fold:
    """Takes in events one by one; the work for each does not grow with the number of trials.

    Trials that change are kept open, as dicts of their fields, and made once, at the end.
    """

    def __init__(self, run: Run, where: str) -> None:
        self._before, self._where = run, where
        self._header, self._trials = run.header, list(run.record.trials)
        self._finished = [number for (number,) in run.record.steps]
        self._queued, self._alarm = list(run.queued), run.alarm
        self._corrections, self._revision = run.corrections, run.revision
        self._accepted = run.accepted
        self._open: dict[int, dict[str, Any]] = {}
        self._owner: Mapping[str, Any] | None = None  # whoever asked last

    def take(self, event: Mapping[str, Any]) -> None:
        """One more event; kinds of a later version are not ours to judge."""
        kind, number = event["event"], event.get("number")
        if not self._header:
            self._header = check_header(event, self._where)
        self._revision += not (kind in ("told", "failed", "stopped") and number is not None)
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
            self._opened(event["number"])["note"].update(given, released=False)
        elif kind == "released":
            self._opened(event["number"])["note"]["released"] = True
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
        expected = None if guess is None else (float(guess[0]), float(guess[1]))
        note = {"owner": owner, "since": str(event.get("at", "")), "expected": expected}
        self._add(event["configuration"], note)

    def _add(self, configuration: Mapping[str, Any], note: dict[str, Any]) -> int:
        made = Trial(len(self._trials), dict(configuration), UNPLACED)
        self._trials.append(made)
        self._open[made.number] = {**vars(made), "note": {**vars(NO_NOTE), **note}}
        return made.number

    def _finish(self, event: Mapping[str, Any], state: TrialState) -> None:
        number, run = event.get("number"), event.get("configuration")
        note: dict[str, Any] = {"reason": str(event.get("reason", ""))}
        if number is not None and state in FINISHED and self._state(number) in FINISHED:
            # Two processes ran it, one of them after it was taken for dead. Both values count.
            note["reason"] = note["reason"] or f"a second result of trial {number}"
            number = None
        if number is None:
            number = self._add(event["configuration"], {"asked": False})
        elif run is not None:
            self._run_instead(number, dict(run))
        trial = self._opened(number)
        broken = dict(event.get("constraints") or {})
        if state == "complete" and not feasible(broken):
            state = "infeasible"
        trial |= {"state": state, "value": event.get("value"), "constraints": broken}
        trial["outputs"] = dict(event.get("outputs") or {})
        trial["closed"] = not event.get("again", False)
        trial["note"].update(note, released=False)
        if curve := event.get("curve"):
            trial["note"]["curve"] = {step: nan if y is None else y for step, y in curve}
        if state in FINISHED:
            self._finished.append(number)

    def _correct(self, event: Mapping[str, Any]) -> None:
        """The result takes the place of the wrong one, as if it had been observed at first.

        An alarm was about the wrong one: whoever follows the values finds out whether it stands.
        """
        number, value = event["number"], event["value"]
        if self._state(number) not in FINISHED:
            raise _no_result(number, self._state(number))
        self._run_instead(number, dict(event["configuration"]))
        trial = self._opened(number)
        measured: TrialState = "complete" if feasible(trial["constraints"]) else "infeasible"
        trial |= {"state": "failed" if value is None else measured, "value": value}
        trial["outputs"] = dict(event.get("outputs") or {})
        trial["note"]["reason"] = str(event.get("reason", ""))
        self._alarm, self._corrections = None, self._corrections + 1

    def _run_instead(self, number: int, run: Configuration) -> None:
        trial = self._opened(number)
        asked, note = trial["point"], trial["note"]
        # Equal at first sight, as almost always; True is not 1 here.
        if run == asked and [*map(type, run.values())] == [*map(type, asked.values())]:
            return
        if self._space.key(run) == self._space.key(asked):
            return
        if note["asked"] and note["suggested"] is None:
            note.update(suggested=asked, suggested_x=trial["x"])
        trial.update(point=run, x=UNPLACED)

    def _opened(self, number: int) -> dict[str, Any]:
        if number not in self._open:
            trial = self._known(number)
            self._open[number] = {**vars(trial), "note": dict(vars(trial.note))}
        return self._open[number]

    def _known(self, number: int) -> Trial:
        if not 0 <= number < len(self._trials):
            raise InputError(
                f"found trial {number}; expected one of the {len(self._trials)} before"
            )
        return self._trials[number]

    def _state(self, number: int) -> TrialState:
        known = self._known(number)
        return self._open[number]["state"] if number in self._open else known.state

    def run(self) -> Run:
        """Everything that was taken in."""
        found = Run(
            self._header,
            self._record(),
            tuple(self._queued),
            self._alarm,
            self._corrections,
            self._revision,
            self._accepted,
        )
        if "_space" in vars(self):
            vars(found)["space"] = self._space  # read once
        return found

    def _record(self) -> Record:
        if not self._open:
            return self._before.record
        self._place()
        for number, fields in self._open.items():
            fields["note"] = note = object.__new__(Note)
            # As the class makes it, at a fifth of the time, which is that of opening a long
            # journal.
            note.__dict__.update(self._notes[number])
            self._trials[number] = made = object.__new__(Trial)
            made.__dict__.update(fields)
        done = (n for n in self._finished if self._trials[n].state in FINISHED)
        return Record(tuple(self._trials), tuple((n,) for n in done))

    def _place(self) -> None:
        """Points of new configurations as the model sees them, all at once."""
        self._notes = {number: fields["note"] for number, fields in self._open.items()}
        moved = [fields for fields in self._open.values() if fields["x"] is UNPLACED]
        asked = [note for note in self._notes.values() if note["suggested_x"] is UNPLACED]
        rows = [fields["point"] for fields in moved] + [note["suggested"] for note in asked]
        if not rows:
            return
        X = self._encoded(rows, moved)
        for fields, x in zip(moved, X, strict=False):
            fields["x"] = x
        for note, x in zip(asked, X[len(moved) :], strict=True):
            note["suggested_x"] = x

    @cached_property
    def _space(self) -> Space:
        same = self._header is self._before.header
        return self._before.space if same else Space.from_dict(self._header["space"])

    def _encoded(self, rows: list[Configuration], moved: Sequence[Mapping[str, Any]]) -> Array:
        space, header = self._space, self._header

        def points(told: list[Configuration]) -> Array:
            if header.get("anywhere"):
                return space.place(told)
            return space.encode(told, extrapolate=bool(header["outside"]))

        try:
            return points(rows) + 0.0  # -0.0 is 0.0, in tables too
        except InputError:
            for fields in moved:
                try:
                    points([fields["point"]])
                except InputError as error:
                    raise error.at(f"{self._where}, trial {fields['number']}") from None
            raise


def _no_result(number: int, state: str) -> InputError:
    return InputError(f"trial {number} has no result that could be corrected: it is {state}")
