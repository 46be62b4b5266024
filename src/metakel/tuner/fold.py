"""What a journal says happened: its events, and their fold to the record of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import isfinite, nan
from typing import Any

import numpy as np

from metakel._arrays import Array, is_integer, is_number, shown
from metakel.confidence import AlarmEvent
from metakel.errors import Hint, InputError
from metakel.optimize.outcomes import FINISHED
from metakel.optimize.record import NO_NOTE, UNPLACED, Note, Record, Trial, TrialState, feasible
from metakel.space import Space
from metakel.tuner.journal import FORMAT, VERSION

Configuration = dict[str, Any]
Expected = tuple[str, Callable[[Any], bool]]
LARGEST_PID = 2**32  # of any system
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

    def settled_by(
        self,
        configuration: Configuration,
        instead_of: Mapping[str, Any] | int | None,
        owner: Mapping[str, Any] | None = None,
    ) -> Trial | None:
        """The pending trial that a run of this configuration is the result of, if it is of one."""
        if instead_of is None:
            return self.waiting(configuration, owner)
        if not isinstance(instead_of, Mapping):
            return self.pending_one(instead_of)
        found = self.waiting(instead_of)
        if found is None:
            raise InputError(f"instead_of is {dict(instead_of)}, which is not pending")
        return found

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

    def result_of(self, which: Mapping[str, Any] | int) -> Trial:
        """A trial with a result, right or wrong: by its number, or what was told only once."""
        if isinstance(which, Mapping):
            wanted = self.space.key(which)
            done = (trial for trial in self.record if trial.state in FINISHED)
            found = [trial for trial in done if self.space.key(trial.point) == wanted]
            if len(found) != 1:
                numbers = ", ".join(str(trial.number) for trial in found) or "none"
                raise InputError(
                    f"which trial is meant? Say its number; with this result: {numbers}"
                )
            return found[0]
        if not self._has(which):
            raise InputError(f"trial {shown(which)} cannot be corrected: there is no such trial")
        trial = self.record[which]
        if trial.state not in FINISHED:
            raise _no_result(which, trial.state)
        return trial

    def _has(self, number: int) -> bool:
        return is_integer(number) and 0 <= number < len(self.record)

    def droppable(self, which: Mapping[str, Any] | int) -> Trial:
        """A pending trial, to be given up, or a failure, to be taken back."""
        if isinstance(which, Mapping):
            waiting = self.waiting(which)
            if waiting is None:
                raise InputError(f"{dict(which)} is not pending")
            return waiting
        trial = self.record[which] if self._has(which) else None
        if trial is None or trial.state not in ("pending", "failed"):
            raise InputError(
                f"trial {shown(which)} is not pending: {self.describe(which)}; expected a "
                "pending or a failed one"
            )
        return trial

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
        self._before, self._where, self._header = run, where, run.header
        self._counts = {
            name: getattr(run, name) for name in ("corrections", "revision", "accepted")
        }
        self._trials, self._queued, self._alarm = (
            list(run.record.trials),
            list(run.queued),
            run.alarm,
        )
        self._finished = [number for (number,) in run.record.steps]
        self._open: dict[int, dict[str, Any]] = {}
        self._owner: Mapping[str, Any] | None = None  # whoever asked last

    def take(self, event: Mapping[str, Any]) -> None:
        """One more event; kinds of a later version are not ours to judge."""
        kind, number = event["event"], event.get("number")
        if not self._header:
            self._header = check_header(event, self._where)
        self._counts["revision"] += kind not in ("told", "failed", "stopped") or number is None
        if kind == "asked":
            self._ask(event)
        elif kind == "queued":
            self._queued.append(dict(event["configuration"]))
        elif kind == "alarm":
            self._alarm = AlarmEvent(int(event["told"]), str(event["reason"]))
        elif kind == "alarm accepted":
            self._counts["accepted"] = int(event["told"])
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
        self._add(event, owner=owner, since=str(event.get("at", "")), expected=expected)

    def _add(self, event: Mapping[str, Any], **note: Any) -> int:
        made = Trial(len(self._trials), dict(event["configuration"]), UNPLACED)
        self._trials.append(made)
        self._open[made.number] = {**vars(made), "note": {**vars(NO_NOTE), **note}}
        return made.number

    def _finish(self, event: Mapping[str, Any], state: TrialState) -> None:
        number, reason = event.get("number"), str(event.get("reason", ""))
        if number is not None and state in FINISHED and self._state(number) in FINISHED:
            # Two processes ran it, one of them after it was taken for dead. Both values count.
            reason = reason or f"a second result of trial {number}"
            number = None
        if number is None:
            number = self._add(event, asked=False)
        elif event.get("configuration") is not None:
            self._run_instead(number, event)
        trial, constraints = self._opened(number), dict(event.get("constraints") or {})
        if state == "complete" and not feasible(constraints):
            state = "infeasible"
        trial |= {"state": state, "value": event.get("value"), "constraints": constraints}
        trial["outputs"] = dict(event.get("outputs") or {})
        trial["closed"] = not event.get("again", False)
        trial["note"].update(reason=reason, released=False)
        if curve := event.get("curve"):
            trial["note"]["curve"] = {step: nan if y is None else y for step, y in curve}
        if state in FINISHED:
            self._finished.append(number)

    def _correct(self, event: Mapping[str, Any]) -> None:
        """The result takes the place of the wrong one, as if it had been observed at first.

        An alarm was about the wrong one: whoever follows the values finds out whether it stands.
        """
        number = event["number"]
        if self._state(number) not in FINISHED:
            raise _no_result(number, self._state(number))
        self._run_instead(number, event)
        trial, value = self._opened(number), event["value"]
        told: TrialState = "complete" if feasible(trial["constraints"]) else "infeasible"
        trial |= {"state": "failed" if value is None else told, "value": value}
        trial["outputs"] = dict(event.get("outputs") or {})
        trial["note"]["reason"] = str(event.get("reason", ""))
        self._alarm = None
        self._counts["corrections"] += 1

    def _run_instead(self, number: int, event: Mapping[str, Any]) -> None:
        trial, run = self._opened(number), dict(event["configuration"])
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
        queued, record = tuple(self._queued), self._record()
        found = Run(self._header, record, queued, self._alarm, **self._counts)
        if "_space" in vars(self):
            vars(found)["space"] = self._space  # read once
        return found

    def _record(self) -> Record:
        if not self._open:
            return self._before.record
        self._place()
        for number, fields in self._open.items():
            note, made = object.__new__(Note), object.__new__(Trial)
            # As the classes make them, at a fifth of the time, which is that of opening a long
            # journal.
            note.__dict__.update(fields["note"])
            fields["note"] = note
            made.__dict__.update(fields)
            self._trials[number] = made
        done = (n for n in self._finished if self._trials[n].state in FINISHED)
        return Record(tuple(self._trials), tuple((n,) for n in done))

    def _place(self) -> None:
        """Points of new configurations as the model sees them, all at once."""
        opened = [(number, f, f["note"]) for number, f in self._open.items()]
        rows = [(n, f, "x", f["point"]) for n, f, _ in opened if f["x"] is UNPLACED]
        rows += [
            (n, note, "suggested_x", note["suggested"])
            for n, _, note in opened
            if note["suggested_x"] is UNPLACED
        ]
        try:
            X = self._encoded([point for *_, point in rows])
        except InputError:
            for number, _, _, point in rows:
                try:
                    self._encoded([point])
                except InputError as error:
                    raise error.at(f"{self._where}, trial {number}") from None
            raise
        for (_, fields, name, _), x in zip(rows, X, strict=True):
            fields[name] = x

    def _encoded(self, rows: list[Configuration]) -> Array:
        if not rows:
            return np.zeros((0, 0))
        if self._header.get("anywhere"):
            return self._space.place(rows) + 0.0  # -0.0 is 0.0, in tables too
        return self._space.encode(rows, extrapolate=bool(self._header["outside"])) + 0.0

    @cached_property
    def _space(self) -> Space:
        same = self._header is self._before.header
        return self._before.space if same else Space.from_dict(self._header["space"])


def _no_result(number: int, state: str) -> InputError:
    return InputError(f"trial {number} has no result that could be corrected: it is {state}")


# What each event holds


def check_header(first: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The first event, if it is the beginning of a journal."""
    if (first.get("event"), first.get("format")) != ("started", FORMAT):
        begins = f"begins with the event {first['event']!r}" if first else "holds no event"
        raise InputError(
            f"{where} is not a journal: it {begins}; expected 'started' of {FORMAT}, with which "
            "`metakel suggest --journal`, `metakel tune` and Tuner(prior, path) begin one"
        )
    if first.get("version") != VERSION:
        raise InputError(
            f"{where} is a journal of version {first.get('version')!r}; expected {VERSION}, which "
            "this release reads"
        )
    return first


def _is_finite(value: Any) -> bool:
    if type(value) is float:  # as almost always, in files of a million lines
        return isfinite(value)
    try:
        return is_number(value) and isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and (is_integer(pair[0]) and pair[0] > 0)
        and (pair[1] is None or _is_finite(pair[1]))
        for pair in value
    )


def _is_process(value: Any) -> bool:
    return _is_mapping(value) and _is_count(value.get("pid")) and value["pid"] <= LARGEST_PID


def _is_space(value: Any) -> bool:
    entries = value.get("parameters") if isinstance(value, Mapping) else None
    return isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries)


def _maybe(expected: Expected, none: str = "null") -> Expected:
    what, holds = expected
    return f"{what}, or {none}", lambda value: value is None or holds(value)


MAPPING: Expected = "named values", _is_mapping
NUMBER: Expected = "a finite number", _is_finite
COUNT: Expected = "a whole number >= 0", _is_count
TEXT: Expected = "text", lambda value: isinstance(value, str)
BOOL: Expected = "true or false", lambda value: isinstance(value, bool)
PAIR: Expected = (
    "two finite numbers",
    lambda v: isinstance(v, list) and len(v) == 2 and all(map(_is_finite, v)),
)
PROCESS: Expected = "a process with its pid", _is_process
OUTPUTS: Expected = (
    "finite numbers by name",
    lambda v: isinstance(v, Mapping) and all(map(_is_finite, v.values())),
)
CURVE: Expected = "pairs of a step > 0 and a finite number or null", _is_curve
MAYBE_COUNT, MAYBE_PROCESS, MAYBE_PAIR = map(_maybe, (COUNT, PROCESS, PAIR))
MEASURED: dict[str, Expected] = {"configuration": MAPPING, "outputs": _maybe(OUTPUTS, "nothing")}
TOLD = MEASURED | {"number": MAYBE_COUNT, "constraints": _maybe(OUTPUTS, "nothing")}

FIELDS: dict[str, dict[str, Expected]] = {
    "started": {
        "space": ("a space with its parameters", _is_space),
        "output": TEXT,
        "minimize": BOOL,
        "seed": COUNT,
        "delta": NUMBER,
        "fixed": MAPPING,
        "outside": BOOL,
    },
    "asked": {"configuration": MAPPING, "by": MAYBE_PROCESS, "expected": MAYBE_PAIR},
    "queued": {"configuration": MAPPING},
    "adopted": {"number": COUNT, "by": MAYBE_PROCESS},
    "told": {**TOLD, "value": NUMBER, "curve": _maybe(CURVE, "nothing")},
    "stopped": {"configuration": MAPPING, "number": COUNT, "curve": _maybe(CURVE, "nothing")},
    "failed": TOLD,
    "dropped": {"number": COUNT},
    "released": {"number": COUNT},
    "corrected": {**MEASURED, "number": COUNT, "value": _maybe(NUMBER)},
    "alarm": {"told": COUNT, "reason": TEXT},
    "alarm accepted": {"told": COUNT},
}


def refuse_damaged(event: Mapping[str, Any]) -> None:
    """Check what the fold over events relies on; kinds of a later version are not judged."""
    find = event.get
    for name, (expected, holds) in FIELDS.get(event["event"], {}).items():
        if not holds(find(name)) or (name == "value" and name not in event):
            found = shown(event[name])[:60] if name in event else "nothing"
            raise InputError(f"{event['event']!r} has {found} as {name}; expected {expected}")
