"""A journal without its prior: enough to look at it and to add results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.space import Space
from metakel.tuner.configurations import Configuration, key, normalised
from metakel.tuner.events import Event, correction, result, stamped
from metakel.tuner.journal import Journal
from metakel.tuner.limits import RunLimits
from metakel.tuner.options import check_header
from metakel.tuner.trials import JournalTrial, Trials


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
