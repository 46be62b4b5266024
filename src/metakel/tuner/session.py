"""A prior, its settings and a journal, kept in step: what any process has to know of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from metakel.errors import InputError
from metakel.priors import Prior
from metakel.tuner.journal import Event, Journal
from metakel.tuner.monitor import Monitor
from metakel.tuner.options import Settings, check_header
from metakel.tuner.results import stamped
from metakel.tuner.trials import Trials


class Session:
    """Reads what others wrote before it decides, and decides while nobody else writes."""

    def __init__(self, prior: Prior, settings: Settings, watch: Monitor, journal: Journal) -> None:
        self._prior, self._settings = prior, settings
        self._journal, self._begun = journal, False
        self.watch, self._corrections = watch, 0
        self.trials = Trials()
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
                self.append([self._settings.header(self._prior)])
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

    def _ring(self) -> None:
        """Note an alarm, once, whichever process sees it first."""
        seen = self.watch.alarm
        if seen is not None and self.trials.alarm is None:
            self.append([{"event": "alarm", "told": seen.told, "reason": seen.reason}])

    def _sync(self) -> None:
        where = str(self._journal.path or "the journal")
        with self._journal.reading() as events:
            if events and not self._begun:
                first = check_header(events, where)
                self._settings.refuse_another(self._prior, first, where)
            self.trials = self.trials.after(events, where, self._journal.line + 1)
            self._begun = self._begun or bool(events)
        self._follow(where)

    def _follow(self, where: str) -> None:
        """Take in the values told since, or all of them where one was corrected."""
        if self.trials.corrections != self._corrections:
            self.watch = Monitor(self._prior, self._settings)
            self._corrections = self.trials.corrections
        for trial in self.trials.told[self.watch.t :]:
            try:
                self.watch.tell(trial)
            except InputError as error:
                raise InputError(f"{where}, trial {trial.number}: {error}") from None
