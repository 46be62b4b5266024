"""An optimizer and a journal, kept in step: what any process has to know of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from metakel.optimize import Optimizer
from metakel.tuner.configurations import Configuration
from metakel.tuner.events import Event, stamped
from metakel.tuner.journal import Journal, used_by_this_thread
from metakel.tuner.options import RunOptions, TuningSource, check_header
from metakel.tuner.trials import Trials, TrialsAsRecord


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
