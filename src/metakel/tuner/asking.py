"""What a Tuner asks for next, and when it stops: this follows from the journal and the seed."""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from metakel._arrays import is_integer, positive, shown
from metakel.errors import InputError, MetaKelError
from metakel.optimize import Optimizer
from metakel.optimize.certificate import spread_of
from metakel.optimize.regret import as_tolerance
from metakel.tuner.configurations import Candidates, Configuration, plain
from metakel.tuner.events import Event
from metakel.tuner.lock import is_alive, this_process
from metakel.tuner.session import Session
from metakel.tuner.trials import JournalTrial, Trials

LOG = logging.getLogger("metakel")
CLOCKS_DIFFER = 60.0  # seconds, which a warning is about
UNDISTURBED_TRIES = 3  # choices that are computed without keeping other processes waiting


class Finished(InputError):
    """The budget is spent, or the certificate is small enough: nothing is left to ask."""


class Asking:
    """The half of a `Tuner` that asks; its parameters are described there.

    Parameters
    ----------
    session : Session
        Journal and optimizer of the run.
    listed : Candidates, optional
        The only configurations to ask for.
    tolerance : float, optional
        ``stop_at`` in units of the output.
    """

    def __init__(
        self,
        session: Session,
        listed: Candidates | None,
        *,
        budget: int | None,
        stop_at: float | str | None,
        tolerance: float | None,
        adopt_after: float | None,
        manual: bool,
    ) -> None:
        self.budget, self.stop_at, self.adopt_after = budget, stop_at, adopt_after
        self._session, self._listed, self._manual = session, listed, manual
        self._tolerance, self._wondered_at_clocks = tolerance, False

    @property
    def done(self) -> bool:
        """Whether nothing more is asked for."""
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        """Why nothing more is asked for; empty while there is something to do."""
        return self._stop_reason(self._session.latest())

    def _stop_reason(self, trials: Trials) -> str:
        if self._tolerance is not None:
            certificate = self._session.optimizer.certificate
            if certificate.regret <= self._tolerance:
                return f"{certificate} (stop_at={self.stop_at})"
        spent = self.budget is not None and trials.spent >= self.budget
        if spent and not self._orphans(trials):
            return f"the budget of {self.budget} evaluations is spent"
        rows = self._listed
        if rows is not None and set(range(len(rows.rows))) <= set(map(rows.find, trials.asked_for)):
            return f"all {len(rows.rows)} candidates were asked"
        return ""

    def ask(self, context: Mapping[str, Any] | None = None) -> Configuration:
        """The configuration to try next; pending from now on.

        ``context`` holds parameters that are given this time, not chosen: the weather, say.
        """
        return self.ask_batch(1, context)[0]

    def ask_batch(self, n: int, context: Mapping[str, Any] | None = None) -> list[Configuration]:
        """The next ``n`` configurations, to be evaluated side by side.

        Fewer where fewer are left; `Finished` where none is.
        """
        return [dict(trial.configuration) for trial in self.ask_trials(n, context)]

    def ask_trials(self, n: int, context: Mapping[str, Any] | None = None) -> list[JournalTrial]:
        """The same with their numbers, and with what the model expects of them.

        The choice is computed while other processes may read and write. If they ask meanwhile, it
        is computed again, at last while they wait. Values that arrive meanwhile are used from the
        next choice on.
        """
        if n < 0:
            raise InputError(f"ask_trials: n is {n}; expected at least 0")
        session = self._session
        with session.alone():
            for _ in range(UNDISTURBED_TRIES):
                trials = session.latest()
                events = self._choose(n, trials, context)
                with session.turn():
                    if session.trials.revision == trials.revision:
                        return self._note(n, events)
            with session.turn():
                return self._note(n, self._choose(n, session.trials, context))

    def _note(self, n: int, events: list[Event]) -> list[JournalTrial]:
        if n and not events:
            raise Finished(self._stop_reason(self._session.trials))
        new = itertools.count(len(self._session.trials.all))
        self._session.append(events)  # all or none: who gets no answer leaves nothing pending
        numbers = [event["number"] if "number" in event else next(new) for event in events]
        return [self._session.trials.all[number] for number in numbers]

    def _choose(self, n: int, trials: Trials, context: Mapping[str, Any] | None) -> list[Event]:
        """What to note for the next configurations; fewer where fewer are left."""
        events: list[Event] = []
        for _ in range(n):
            event = self._next(trials, context)
            if event is None:
                break
            events.append(event)
            trials = trials.after([event])
        return events

    def _next(self, trials: Trials, context: Mapping[str, Any] | None) -> Event | None:
        """What to note for the next configuration; None where nothing is left to ask for."""
        by = None if self._manual else this_process()
        orphans = self._orphans(trials)
        if orphans:
            return {"event": "adopted", "number": orphans[0].number, "by": by}
        if self._stop_reason(trials):
            return None
        # What was queued is for no context in particular.
        queued = trials.queued[:1] if context is None else ()
        chosen = queued[0] if queued else self._suggestion(trials, context)
        return {
            "event": "asked",
            "configuration": chosen,
            "by": by,
            "queued": bool(queued),
            "expected": self._session.expected(trials, chosen),
        }

    def _suggestion(self, trials: Trials, context: Mapping[str, Any] | None) -> Configuration:
        chosen, listed = plain(self._session.suggest(trials, context)), self._listed
        return chosen if listed is None else dict(listed.rows[listed.number(chosen)])

    def _orphans(self, trials: Trials) -> list[JournalTrial]:
        """Pending evaluations whose process is gone, or let go of them."""
        if self._manual:
            return []
        return [trial for trial in trials.pending if self._is_orphan(trial)]

    def _is_orphan(self, trial: JournalTrial) -> bool:
        if trial.released:
            return True
        if trial.owner is None:  # a person's
            return False
        alive, limit = is_alive(trial.owner), self.adopt_after
        if alive is None and limit is not None:
            age = trial.age()
            if age is not None and age < -CLOCKS_DIFFER and not self._wondered_at_clocks:
                self._wondered_at_clocks = True
                LOG.warning(
                    "trial %d was asked for %.0f s in the future, by the clock of %s: as long as "
                    "the clocks differ, adopt_after is that much longer",
                    *(trial.number, -age, trial.owner.get("host", "another machine")),
                )
            return age is not None and age > limit
        return alive is False

    def __iter__(self) -> Iterator[Configuration]:
        """Ask until done: ``for x in tuner: tuner.tell(x, measure(x))``.

        A loop that is left before it told the last configuration, by an error say, gives it back:
        it is asked again.
        """
        process, handed = os.getpid(), list[int]()
        while True:
            try:
                (trial,) = self.ask_trials(1)
            except Finished:
                return
            try:
                yield dict(trial.configuration)
            except GeneratorExit:
                # A fork throws its copy of the loop away as well.
                if process == os.getpid() and not (self._manual or sys.is_finalizing()):
                    with suppress(MetaKelError):  # else it is pending while this process lives
                        self._session.release(trial.number, unless=handed)
                raise
            handed.append(trial.number)


def check_asking(budget: int | None, adopt_after: float | None) -> None:
    """Refuse a budget or a lease that cannot be."""
    if budget is not None and not (is_integer(budget) and budget >= 1):
        raise InputError(
            f"budget is {shown(budget)}; expected at least one evaluation, as a whole number"
        )
    if adopt_after is not None:
        positive("adopt_after", adopt_after)


def checked_tolerance(stop_at: float | str | None, optimizer: Optimizer) -> float | None:
    """``stop_at`` in units of the output; refused where there can be no certificate."""
    if stop_at is None:
        return None
    tolerance = as_tolerance(stop_at, spread_of(optimizer.model))
    if tolerance == 0:
        raise InputError(f"stop_at is {stop_at}; expected a number > 0")
    if optimizer.no_certificate:
        raise InputError(f"stop_at needs a certificate; there is none: {optimizer.no_certificate}")
    return tolerance
