"""A prior, its settings and a journal, kept in step: what any process has to know of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from metakel.prior import Prior
from metakel.tuner.certify import Watch
from metakel.tuner.journal import Event, Journal
from metakel.tuner.record import stamped
from metakel.tuner.settings import Settings, check_header, refuse_differences
from metakel.tuner.trials import Trials


class Session:
    """Reads what others wrote before it decides, and decides while nobody else writes."""

    def __init__(self, prior: Prior, settings: Settings, journal: Journal) -> None:
        self._header = settings.header(prior)
        self._journal, self._begun = journal, False
        self.watch = Watch(prior, settings)
        self.trials = Trials()
        self.latest()

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
                self.append([self._header])
            self._ring()
            yield

    def append(self, events: Sequence[Event]) -> None:
        """Note events; only within a `turn`."""
        self._journal.append([stamped(event) for event in events])
        self._sync()
        self._ring()

    def _ring(self) -> None:
        """Note an alarm, once, whichever process sees it first."""
        seen = self.watch.alarm
        if seen is not None and self.trials.alarm is None:
            self.append([{"event": "alarm", "told": seen.told, "reason": seen.reason}])

    def _sync(self) -> None:
        events = self._journal.read()
        if events and not self._begun:
            where = str(self._journal.path or "the journal")
            refuse_differences(self._header, check_header(events, where), where)
            self._begun = True
        self.trials = self.trials.after(events)
        for trial in self.trials.told[self.watch.t :]:
            self.watch.tell(trial)
