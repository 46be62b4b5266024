"""A journal without its prior: enough to note what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.space import Space
from metakel.tuner.journal import Event, Journal
from metakel.tuner.settings import check_header
from metakel.tuner.trials import Configuration, Trial, Trials, plain

LARGEST = 1e50  # beyond this no interval can be computed, and the value says no more than "failed"


class OpenJournal:
    """What a journal says, and a way to add results."""

    def __init__(self, path: str | Path) -> None:
        if not Path(path).exists():
            raise InputError(f"there is no journal {path}")
        self._journal = Journal(path)
        events = self._journal.read()
        self.header: Mapping[str, Any] = check_header(events, str(path))
        self.trials = Trials().after(events, str(path))

    @property
    def space(self) -> Space:
        """The parameters."""
        return Space.from_dict(self.header["space"])

    def pending(self, number: int | None = None) -> Trial:
        """The pending trial of a number, or the only one."""
        waiting = self.trials.pending
        numbers = ", ".join(str(trial.number) for trial in waiting) or "none"
        if number is None:
            if len(waiting) != 1:
                raise InputError(f"which of the pending trials? Say its number: {numbers}")
            return waiting[0]
        found = next((trial for trial in waiting if trial.number == number), None)
        if found is None:
            raise InputError(f"trial {number} is not pending; pending are: {numbers}")
        return found

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None,
        number: int | None = None,
        reason: str = "",
    ) -> Trial:
        """Add a result; None for a failed evaluation. Gives the trial as it is noted."""
        row = plain(configuration)
        self.space.encode([row], outside=bool(self.header["outside"]))
        with self._journal.exclusive():
            self._sync()
            waiting = self.trials.waiting(row) if number is None else self.pending(number)
            event = result(waiting, row, value, reason)
            self._journal.append([stamped(event)])
            self._sync()
            return self.trials.all[self.trials.finished[-1]]

    def _sync(self) -> None:
        with self._journal.reading() as events:
            where, first = str(self._journal.path), self._journal.line + 1
            self.trials = self.trials.after(events, where, first)


def result(
    waiting: Trial | None, configuration: Configuration, value: float | None, reason: str
) -> Event:
    """The event of a result; a value that is not finite, or as good as infinite, has failed."""
    number = None if waiting is None else waiting.number
    event: Event = {"number": number, "configuration": configuration}
    if value is None or not abs(value) <= LARGEST:
        why = reason or ("" if value is None else f"the value is {value}")
        return {"event": "failed", **event, "reason": why}
    return {"event": "told", **event, "value": float(value)}


def stamped(event: Event) -> Event:
    """With the time of day, for people who read the journal."""
    return {**event, "at": datetime.now(UTC).isoformat(timespec="seconds")}
