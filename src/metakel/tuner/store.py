"""A store of runs: events in a file or in memory, what they amount to, and a way to add results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from metakel.errors import Hint, InputError
from metakel.optimize.record import Trial
from metakel.space import Space
from metakel.tuner.events import Configuration, Event, Scale, check_header, result, stamped
from metakel.tuner.fold import Run
from metakel.tuner.journal import Journal, T


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
    def where(self) -> str:
        """What errors call it."""
        return str(self._journal.path or "the journal")

    @property
    def begun(self) -> bool:
        """Whether it has any event."""
        return self._journal.line > 0

    def alone(self) -> AbstractContextManager[Any]:
        """No other thread uses it meanwhile; other processes may."""
        return self._journal.alone()

    def turn(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, alone with the journal, and up to date."""

        def up_to_date() -> T:
            self.sync()
            return work()

        return self._journal.exclusively(up_to_date)

    def append(self, events: Sequence[Event]) -> None:
        """Note events; only within a `turn`."""
        for event in events:
            if "value" in event:
                self.scale.refuse_impossible(event["value"])
        self._journal.append([stamped(event) for event in events])
        self.sync()

    def sync(self) -> None:
        """Take in what came since the last look."""
        self._journal.fold(self._after)

    def _after(self, events: Iterator[Event]) -> Run:
        line = self._journal.line + 1
        first = list(islice(events, 1)) if line == 1 else []
        if first:
            self._begin(check_header(first[0], self.where))
        return self.run.after(chain(first, events), self.where, line)

    # Results

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
        if value is not None:
            self.refuse_lacking(outputs)
        if not confirmed:
            self.scale.refuse_slip(value)

        def note() -> Trial:
            waiting = self.run.waiting(row) if number is None else self.run.pending_one(number)
            settled = None if waiting is None else waiting.number
            self.append([result(settled, row, value, reason, outputs, constraints)])
            (last,) = self.run.record.steps[-1]
            return self.run.record[last]

        return self.turn(note)

    def correct(
        self,
        number: int,
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
        return self._noted(number, lambda: self.run.correction(number, value, reason, outputs, row))

    def drop(self, number: int) -> Trial:
        """A suggestion that will not be done, or a failure that says nothing."""
        return self._noted(number, lambda: self.run.drop(number))

    def _noted(self, number: int, event: Callable[[], Event]) -> Trial:
        def note() -> Trial:
            self.append([event()])
            return self.run.record[number]

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
