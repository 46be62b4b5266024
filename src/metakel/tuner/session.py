"""An optimizer and a journal, kept in step; or a journal alone, to read and to add results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any

from metakel._arrays import is_number
from metakel.errors import Hint, InputError
from metakel.optimize import Optimizer
from metakel.space import Space
from metakel.tuner.configurations import Configuration, key, normalised
from metakel.tuner.events import Event, correction, result, stamped
from metakel.tuner.journal import Journal, used_by_this_thread
from metakel.tuner.options import RunLimits, RunOptions, TuningSource, check_header
from metakel.tuner.trials import JournalTrial, Trials, TrialsAsRecord

SLACK = 0.1  # of the range of the output: so far beyond its limits a value may be noise


class JournalReader:
    """What a journal says, and a way to add results."""

    def __init__(self, path: str | Path) -> None:
        if not Path(path).exists():
            raise InputError(f"there is no journal {path}")
        self._journal = Journal(path)
        with self._journal.reading() as events:
            first = list(islice(events, 1))
            self.header: Mapping[str, Any] = check_header(first, str(path))
            self.trials = Trials().after(chain(first, events), str(path))

    @cached_property
    def space(self) -> Space:
        """The parameters."""
        return Space.from_dict(self.header["space"])

    @property
    def best(self) -> JournalTrial | None:
        """The best of those told."""
        return self.trials.best(minimize=bool(self.header["minimize"]))

    @cached_property
    def limits(self) -> RunLimits:
        """What every configuration must respect."""
        return RunLimits.from_header(self.header)

    @property
    def other_outputs(self) -> tuple[str, ...]:
        """Limited outputs beside the objective, of which every result needs a value."""
        return tuple(n for n in self.limits.ranges if n != self.header["output"])

    def pending(self, number: int | None = None) -> JournalTrial:
        """The pending trial of a number, or the only one."""
        return self.trials.pending_one(number)

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None,
        number: int | None = None,
        reason: str = "",
        outputs: Mapping[str, Any] | None = None,
    ) -> JournalTrial:
        """Add a result; None for a failed evaluation. Gives the trial as it is noted.

        With a ``number``, that suggestion is done: it was run as this configuration. ``outputs``
        are what else was measured, by name.
        """
        row = self._checked(configuration)
        self._check_value(value)
        with self._turn():
            waiting = self.trials.waiting(row, self.space)
            waiting = waiting if number is None else self.pending(number)
            number = None if waiting is None else waiting.number
            self._append(result(number, row, value, reason, outputs))
            return self.trials.all[self.trials.finished[-1]]

    def correct(
        self,
        number: int,
        value: float | None,
        configuration: Mapping[str, Any] | None = None,
        reason: str = "",
        outputs: Mapping[str, Any] | None = None,
    ) -> JournalTrial:
        """Another result in place of a wrong one; None for a failed evaluation."""
        row = None if configuration is None else self._checked(configuration)
        self._check_value(value)
        with self._turn():
            wrong = self.trials.result_of(number)
            used = row or wrong.configuration
            self._append(correction(number, used, value, reason, outputs))
            return self.trials.all[number]

    def drop(self, number: int) -> JournalTrial:
        """A suggestion that will not be done, or a failure that says nothing."""
        with self._turn():
            self._append(self.trials.drop(number))
            return self.trials.all[number]

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = normalised(self.space, configuration)
        self.space.encode([row], extrapolate=bool(self.header["outside"]))
        known = {key(trial.configuration, self.space) for trial in self.trials.all}
        if self.header.get("candidates") is not None and key(row) not in known:
            raise InputError(
                f"{row} was never asked, and this journal has a list of candidates that is not "
                "kept in it; tell it in Python: Tuner(prior, journal, candidates=...).tell(...)"
            )
        return row

    def _check_value(self, value: Any) -> None:
        """A yield of 101 % is noise; one of 690 % is a slip. What is not finite has failed."""
        if "outputs" not in self.header or not (is_number(value) and isfinite(value)):
            return
        low, high = self.header["outputs"]
        slack = SLACK * (high - low)
        if not low - slack <= value <= high + slack:
            raise InputError(
                f"{self.header['output']} is {value:g}, far beyond its limits of {low:g} to "
                f"{high:g}; expected a value within them",
                Hint("if there are no limits, learn so", "outputs=(low, high)", "--bounds"),
            )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._journal.exclusive():
            self._sync()
            yield

    def _append(self, event: Event) -> None:
        self._journal.append([stamped(event)])
        self._sync()

    def _sync(self) -> None:
        with self._journal.reading() as events:
            where, first = str(self._journal.path), self._journal.line + 1
            self.trials = self.trials.after(events, where, first)


class Session:
    """Reads what others wrote before it decides, and decides while nobody else writes."""

    def __init__(
        self, source: TuningSource, options: RunOptions, optimizer: Optimizer, journal: Journal
    ) -> None:
        self._source, self._options, self.optimizer = source, options, optimizer
        self._journal, self._begun = journal, False
        self.trials = Trials()
        self._known = Trials()  # what the optimizer has seen
        self._as_record = TrialsAsRecord(
            lambda rows: optimizer.domain.encode(rows, "journal"), self._where
        )
        self.latest()

    @property
    def place(self) -> Path | None:
        """Where the journal is, from any folder; None in memory."""
        return self._journal.place

    def latest(self) -> Trials:
        """What the journal says now."""
        with self.turn():
            return self.trials

    def alone(self) -> AbstractContextManager[None]:
        """No other thread uses this session meanwhile; other processes may use the journal."""
        return self._journal.alone()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Alone with the journal, and up to date."""
        with self._journal.exclusive():
            self._sync()
            if not self._begun:
                self.append([self._options.header(self._source)])
            self._ring()
            yield

    def append(self, events: Sequence[Event]) -> None:
        """Note events; only within a `turn`."""
        self._journal.append([stamped(event) for event in events])
        self._sync()
        self._ring()

    def release(self, number: int, *, unless: Sequence[int] = ()) -> None:
        """Give a pending evaluation back, unless others of its loop are pending as well.

        Python may throw a loop away anywhere, even while this very thread reads or writes; then
        it stays with the process.
        """
        if used_by_this_thread():
            return
        with self.turn():
            pending = {trial.number for trial in self.trials.pending}
            if number in pending and pending.isdisjoint(unless):
                self.append([{"event": "released", "number": number}])

    def suggest(self, trials: Trials, context: Mapping[str, Any] | None = None) -> Configuration:
        """The next configuration, if the journal said this."""
        self._condition(trials)
        return dict(self.optimizer.suggest(context))

    def expected(self, trials: Trials, configuration: Configuration) -> list[float]:
        """Mean, within the limits of the output, and standard deviation, by what decided."""
        self._condition(trials)
        mean, sd = self.optimizer.predict([configuration])
        low, high = self.optimizer.output_limits
        return [min(max(float(mean[0]), low), high), float(sd[0])]

    def _ring(self) -> None:
        """Note an alarm, once, whichever process sees it first."""
        seen = self.optimizer.alarm
        if seen is not None and self.trials.alarm is None:
            self.append([{"event": "alarm", "told": seen.time, "reason": seen.reason}])

    def _sync(self) -> None:
        with self._journal.reading() as events:
            line = self._journal.line + 1
            if not self._begun:
                first = list(islice(events, 1))
                if first:
                    self._options.refuse_another(
                        self._source, check_header(first, self._where), self._where
                    )
                events = chain(first, events)
            trials = self.trials.after(events, self._where, line)
        self._begun = self._begun or self._journal.line > 0
        self.trials = trials
        self._condition(trials)

    def _condition(self, trials: Trials) -> None:
        if trials is not self._known:
            self.optimizer.record = self._as_record(trials)
            self._known = trials
            alarm = self.optimizer.alarm if trials.accepted else None
            if alarm is not None and alarm.time <= trials.accepted:
                self.optimizer.accept_alarm()

    @property
    def _where(self) -> str:
        return str(self._journal.path or "the journal")
