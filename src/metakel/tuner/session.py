"""An optimizer and a journal, kept in step: what any process has to know of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.optimize import Optimizer
from metakel.tuner.configurations import Configuration
from metakel.tuner.events import Event, stamped
from metakel.tuner.journal import Journal
from metakel.tuner.options import RunOptions, TuningSource, check_header
from metakel.tuner.trials import Trials


class Session:
    """Reads what others wrote before it decides, and decides while nobody else writes."""

    def __init__(
        self, source: TuningSource, options: RunOptions, optimizer: Optimizer, journal: Journal
    ) -> None:
        self._source, self._options, self.optimizer = source, options, optimizer
        self._journal, self._begun = journal, False
        self.trials = Trials()
        self._known = Trials()  # what the optimizer has seen
        self._points: dict[int, tuple[Configuration, Array]] = {}
        self.latest()

    @property
    def place(self) -> Path | None:
        """Where the journal is, from any folder; None in memory."""
        return self._journal.place

    def latest(self) -> Trials:
        """What the journal says now."""
        with self.turn():
            return self.trials

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
        if self._journal.held:
            return
        with self.turn():
            pending = {trial.number for trial in self.trials.pending}
            if number in pending and pending.isdisjoint(unless):
                self.append([{"event": "released", "number": number}])

    def suggest(self, trials: Trials) -> Configuration:
        """The next configuration, if the journal said this."""
        self._condition(trials)
        return dict(self.optimizer.suggest())

    def expected(self, trials: Trials, configuration: Configuration) -> list[float]:
        """Mean and standard deviation there, by the model that decided."""
        self._condition(trials)
        mean, sd = self.optimizer.predict([configuration])
        return [float(mean[0]), float(sd[0])]

    def _ring(self) -> None:
        """Note an alarm, once, whichever process sees it first."""
        seen = self.optimizer.alarm
        if seen is not None and self.trials.alarm is None:
            self.append([{"event": "alarm", "told": seen.time, "reason": seen.reason}])

    def _sync(self) -> None:
        where = str(self._journal.path or "the journal")
        with self._journal.reading() as events:
            if events and not self._begun:
                first = check_header(events, where)
                self._options.refuse_another(self._source, first, where)
            trials = self.trials.after(events, where, self._journal.line + 1)
            self._begun = self._begun or bool(events)
        self.trials = trials
        self._condition(trials)

    def _condition(self, trials: Trials) -> None:
        if trials is not self._known:
            self.optimizer.record = trials.as_record(self._encode)
            self._known = trials

    def _encode(self, number: int, configuration: Mapping[str, Any]) -> Array:
        """The point of a trial's configuration, encoded once."""
        kept = self._points.get(number)
        if kept is not None and kept[0] == configuration:
            return kept[1]
        try:
            x: Array = self.optimizer.domain.encode(configuration, "journal")[0]
        except InputError as error:
            where = self._journal.path or "the journal"
            raise error.at(f"{where}, trial {number}") from None
        self._points[number] = dict(configuration), x
        return x
