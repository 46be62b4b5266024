"""A run in a journal, or in memory, and results that are added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from math import inf, isfinite
from pathlib import Path
from typing import Any

from metakel._arrays import LARGEST, is_number, refuse_masked, shown
from metakel.curves import as_curve
from metakel.errors import Hint, InputError
from metakel.io.words import is_share
from metakel.optimize.record import Trial, feasible
from metakel.space import Space
from metakel.tuner.fold import Configuration, Run, check_header
from metakel.tuner.journal import Event, Journal, T

LONGEST_REASON = 2_000
SLACK = 0.1  # of the range of the output: so far beyond it a value may be noise
NEAR = 2.0  # times the usual values, a value may be one of them
CONFIRM = Hint("if it was measured, say so", "confirmed=True", "--confirm")


class Store:
    """Reads what others wrote before it adds anything, and adds while nobody else writes.

    Parameters
    ----------
    path : path or None
        Of the journal; None for memory.
    begin : callable, optional
        Takes the header of a journal that is there, or refuses it.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        begin: Callable[[Mapping[str, Any]], None] = lambda header: None,
    ) -> None:
        self._journal, self._begin = Journal(path, Run()), begin

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """The store of a journal that was begun, to look at it and to add results."""
        if not Path(path).exists():
            raise InputError(f"there is no journal {path}")
        store = cls(path)
        store.sync()
        if not store.begun:
            check_header({}, str(path))
        return store

    @property
    def run(self) -> Run:
        """What it amounts to, as far as it was read."""
        run: Run = self._journal.made
        return run

    @property
    def place(self) -> Path | None:
        """Where the journal is, whatever folder the process is in; None in memory."""
        return self._journal.place

    @property
    def begun(self) -> bool:
        """Whether it has any event."""
        return self._journal.line > 0

    @property
    def header(self) -> Mapping[str, Any]:
        """What the run was begun with."""
        return self.run.header

    @property
    def space(self) -> Space:
        """The parameters."""
        return self.run.space

    @property
    def scale(self) -> Scale:
        """That of the output, as past tasks have it."""
        return Scale.of_journal(self.header)

    @property
    def other_outputs(self) -> tuple[str, ...]:
        """What is measured beside the objective, of which every result needs a value."""
        return tuple(self.header.get("rules", {}).get("outputs", ()))

    # Turns

    def alone(self) -> AbstractContextManager[Any]:
        """No other thread uses it meanwhile; other processes may."""
        return self._journal.alone()

    def turn(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, alone with the journal, and up to date."""

        def up_to_date() -> T:
            self.sync()
            return work()

        return self._journal.exclusively(up_to_date)

    def sync(self) -> None:
        """Take in what came since the last look."""
        self._journal.fold(self._after)

    def _after(self, events: Iterator[Event]) -> Run:
        line, where = self._journal.line + 1, str(self._journal.path or "the journal")
        first = list(islice(events, 1)) if line == 1 else []
        if first:
            self._begin(check_header(first[0], where))
        return self.run.after(chain(first, events), where, line)

    def append(self, events: Sequence[Event]) -> None:
        """Note events; only within a `turn`."""
        for event in events:
            if "value" in event:
                self.scale.refuse_impossible(event["value"])
        self._journal.append([stamped(event) for event in events])
        self.sync()

    # Results

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None,
        number: int | None = None,
        reason: str = "",
        outputs: Mapping[str, Any] | None = None,
        constraints: Mapping[str, Any] | None = None,
        *,
        confirmed: bool = False,
    ) -> Trial:
        """Add a result; None for a failed evaluation. Gives the trial as it is noted.

        With a ``number``, that suggestion is done: it was run as this configuration. ``outputs``
        are what else was measured, by name. A value far beyond the range of the output is refused
        unless it is ``confirmed``.
        """
        row = self._listed(configuration)
        if not confirmed:
            self.scale.refuse_slip(value)
        event = self.result(row, value, reason, outputs, constraints)
        return self.turn(lambda: self.settle(event, number))

    def result(
        self,
        row: Configuration,
        value: float | None,
        reason: str = "",
        outputs: Mapping[str, Any] | None = None,
        constraints: Mapping[str, Any] | None = None,
    ) -> Event:
        """The event of a run of its own; refused without an output that has to be measured."""
        if value is not None:
            self.refuse_lacking(outputs)
        return result(row, value, reason, outputs, constraints)

    def settle(
        self,
        event: Event,
        instead_of: Mapping[str, Any] | int | None = None,
        owner: Mapping[str, Any] | None = None,
    ) -> Trial:
        """Note a result, of the pending trial that it belongs to; only within a `turn`."""
        waiting = self.run.settled_by(event["configuration"], instead_of, owner)
        self.append([{**event, "number": None if waiting is None else waiting.number}])
        (last,) = self.run.record.steps[-1]
        return self.run.record[last]

    def correct(
        self,
        which: Mapping[str, Any] | int,
        value: float | None,
        configuration: Mapping[str, Any] | None = None,
        reason: str = "",
        outputs: Mapping[str, Any] | None = None,
        *,
        confirmed: bool = False,
    ) -> Trial:
        """Another result in place of a wrong one; None for a failed evaluation."""
        row = None if configuration is None else self._listed(configuration)
        if value is not None:
            self.refuse_lacking(outputs)
        if not confirmed:
            self.scale.refuse_slip(value)
        found = {**judged(value, reason), **measured(outputs)}

        def note() -> Trial:
            wrong = self.run.result_of(which)
            run = {"number": wrong.number, "configuration": row or wrong.point}
            self.append([{"event": "corrected", **run, **found}])
            return self.run.record[wrong.number]

        return self.turn(note)

    def drop(self, which: Mapping[str, Any] | int) -> Trial:
        """A suggestion that will not be done, or a failure that says nothing."""

        def note() -> Trial:
            trial = self.run.droppable(which)
            self.append([dropped(trial)])
            return self.run.record[trial.number]

        return self.turn(note)

    def checked(self, configuration: Mapping[str, Any]) -> Configuration:
        """The configuration in its one form, refused where the run cannot take it."""
        row = self.space.normalize(configuration)
        if self.header.get("anywhere"):
            self.space.place([row])
        else:
            self.space.check(row, extrapolate=bool(self.header["outside"]))
        return row

    def refuse_lacking(self, outputs: Mapping[str, Any] | None) -> None:
        """Refuse a result without an output that has to be measured; None says that it was not."""
        lacking = [name for name in self.other_outputs if name not in (outputs or {})]
        if lacking:
            raise InputError(
                f"no value of {', '.join(lacking)}, which has to be measured",
                Hint(
                    "give it",
                    f"outputs={{{lacking[0]!r}: ...}}, which may be None where it was not measured",
                    f"--output {lacking[0]}=VALUE",
                ),
            )

    def _listed(self, configuration: Mapping[str, Any]) -> Configuration:
        """One that was asked, where the candidates of a run are not known here."""
        row = self.checked(configuration)
        known = {self.space.key(trial.point) for trial in self.run.record}
        if self.header.get("candidates") is not None and self.space.key(row) not in known:
            raise InputError(
                f"{row} was never asked, and this journal has a list of candidates that is not "
                "kept in it; tell it in Python: Tuner(prior, journal, candidates=...).tell(...)"
            )
        return row


# What is noted of results


def result(
    configuration: Configuration,
    value: Any,
    reason: str = "",
    outputs: Mapping[str, Any] | None = None,
    constraints: Mapping[str, Any] | None = None,
) -> Event:
    """The result of a run of its own; `Store.settle` says of which trial it is."""
    found = judged(value, reason)
    kind = "failed" if found["value"] is None else "told"
    del found["reason" if kind == "told" else "value"]
    event = {"event": kind, "number": None, "configuration": configuration}
    bounds = {str(name): as_value(value) for name, value in (constraints or {}).items()}
    feasible(bounds)
    return {**event, **measured(outputs), **({"constraints": bounds} if bounds else {}), **found}


def dropped(trial: Trial) -> Event:
    """A trial that will not be done, or a failure that is open again."""
    return {"event": "dropped", "number": trial.number, "again": trial.state == "failed"}


def drawn(curve: Mapping[int, Any] | None) -> Event:
    """Values by step as pairs, null where one is not finite; no entry where there are none."""
    pairs = [[step, judged(value)["value"]] for step, value in as_curve(curve).items()]
    return {"curve": pairs} if pairs else {}


def measured(outputs: Mapping[str, Any] | None) -> Event:
    """Other outputs, as far as they were measured; no entry where none was."""
    values = {str(name): judged(value)["value"] for name, value in (outputs or {}).items()}
    found = {name: value for name, value in values.items() if value is not None}
    return {"outputs": found} if found else {}


def judged(value: Any, reason: str = "") -> Event:
    """A value, or why there is none: not finite, or as good as infinite, is a failure."""
    if value is None:
        return {"value": None, "reason": reason}
    found = as_value(value)
    if not abs(found) <= LARGEST:
        return {"value": None, "reason": reason or f"the value is {found}"}
    return {"value": found, "reason": ""}


def as_value(value: Any) -> float:
    """A number of any type, an array of one number included; text is refused."""
    refuse_masked("the value", value)
    found = value
    try:
        # A float32 would be compared, and noted, as one; an array is no number by itself.
        found = value.item() if hasattr(value, "item") else value
        if not isinstance(found, str | bytes):
            return float(found)
    except OverflowError:
        return float("inf") if found > 0 else float("-inf")
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"the value is {shown(value)}; expected a number (failed=True if there is none)"
    ) from None


def stamped(event: Event) -> Event:
    """With the time of day, for people who read the journal; a long reason is shortened."""
    reason = event.get("reason")
    if isinstance(reason, str) and len(reason) > LONGEST_REASON:
        event = {**event, "reason": reason[: LONGEST_REASON - 3] + "..."}
    return {**event, "at": datetime.now(UTC).isoformat(timespec="seconds")}


# Shares or per cent: past tasks decide the scale of an output, not how a value is written


@dataclass(frozen=True)
class Scale:
    """On which scale an output is."""

    output: str
    ends: tuple[float, float] = (-inf, inf)  # between which all values lie, where that is known
    usual: tuple[float, float] | None = None  # from a middling value to the best of past tasks

    @classmethod
    def of_journal(cls, header: Mapping[str, Any]) -> Scale:
        """That of the prior that a journal was begun with."""
        low, high = header.get("output_range") or (None, None)
        ends = -inf if low is None else low, inf if high is None else high
        usual = header.get("usual")
        return cls(header["output"], ends, usual and (usual[0], usual[1]))

    @property
    def header(self) -> Event:
        """What a journal notes of it, beside the output."""
        low, high = (end if isfinite(end) else None for end in self.ends)
        bounded = {} if low is None and high is None else {"output_range": [low, high]}
        return bounded | ({} if self.usual is None else {"usual": list(self.usual)})

    @property
    def shares(self) -> bool:
        """Whether past tasks have 0.67 for 67 %."""
        return self.usual is not None and "%" not in self.output and 0 < self.usual[1] <= 1

    def read(self, number: float, cell: Any, *, confirmed: bool = False) -> float:
        """The value that a cell means, in which this number stands.

        With a per cent sign, it is taken to the scale of past tasks. Without one, it is refused
        where it is on the other scale, unless it is ``confirmed``.
        """
        signed = isinstance(cell, str) and "%" in cell
        value = self._share(number, cell) if signed and self.shares else number
        self.refuse_impossible(value)
        if not confirmed:
            if not signed:
                self._refuse_per_cent_for_shares(value)
                self._refuse_share_for_per_cent(value)
            self.refuse_slip(value)
        return value

    def as_read(self, cell: Any, value: float) -> str:
        """What to say of a cell that means another number than stands in it."""
        return f"{self.output} {cell!r} is read as {value:g}, as past tasks have it"

    def _share(self, number: float, cell: Any) -> float:
        """A number before a per cent sign, where past tasks have values up to 1.

        They are shares, unless it is some impurity, of which 0.4 % may have been read as 0.4.
        """
        share = float(f"{number / 100:.15g}")
        if is_share(self.output) or (self.usual is not None and number > NEAR * self.usual[1]):
            return share
        if self._is_usual(number):
            return number
        raise InputError(
            f"{self.output} is {cell!r}, which may be {number:g} or {share:g}, and {self._past}; "
            "expected one of the two, without a per cent sign"
        )

    def _refuse_per_cent_for_shares(self, value: float) -> None:
        if self.shares and is_share(self.output) and 1 + SLACK < value <= 100 * (1 + SLACK):
            raise InputError(
                f"{self.output} is {value:g}, and {self._past}, so shares are expected: write "
                f"{value / 100:g} or '{value:g} %'",
                CONFIRM,
            )

    def _refuse_share_for_per_cent(self, value: float) -> None:
        if self.usual is None or self.shares or not is_share(self.output):
            return
        if 0 < value < 1 and self._is_usual(100 * value) and not self._is_usual(value):
            raise InputError(
                f"{self.output} is {value:g}, and {self._past}, so per cent are expected: write "
                f"{100 * value:g}, or '{value:g} %' if it is as little as that",
                CONFIRM,
            )

    def _is_usual(self, value: float) -> bool:
        low, high = self.usual or (inf, -inf)
        return low / NEAR <= value <= NEAR * high

    @property
    def _past(self) -> str:
        low, high = self.usual or (-inf, inf)
        return f"past tasks have {low:.3g} to {high:.3g}" if low < high else f"past {low:.3g}"

    def refuse_impossible(self, value: Any) -> None:
        """An output that is learned on a log scale is never below 0."""
        low, high = self.ends
        if is_number(value) and value < low and not isfinite(high):
            raise InputError(
                f"{self.output} is {value:g}; expected a number from {low:g}, as past tasks were "
                "learned on a log scale. Of an error, tell the error and not its negative; where "
                "values below 0 are right, learn with log_output=False (--no-log-output)"
            )

    def refuse_slip(self, value: Any) -> None:
        """A yield of 101 % is noise; one of 690 % is a slip. What is not finite has failed."""
        low, high = self.ends
        if not isfinite(high - low) and self.shares and is_share(self.output):
            low, high = 0.0, 1.0
        slack = SLACK * (high - low)
        if not (is_number(value) and isfinite(value) and isfinite(slack)):
            return
        if not low - slack < value < high + slack:
            raise InputError(
                f"{self.output} is {value:g}, far beyond its range of {low:g} to {high:g}; "
                "expected a value within it",
                CONFIRM,
                Hint(
                    "if it has another range, learn so",
                    "output_range=(low, high)",
                    "--output-range",
                ),
            )
