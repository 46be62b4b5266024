"""A journal as trials that are kept up to date: to read and to add results, or to decide with."""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain, count, islice
from math import isfinite
from pathlib import Path
from typing import Any

from metakel._arrays import Array, is_integer, is_number, positive, shown
from metakel.errors import Hint, InputError, MetaKelError
from metakel.optimize import Record, Trial
from metakel.optimize.certificate import spread_of
from metakel.optimize.regret import as_tolerance
from metakel.space import Space
from metakel.tuner.events import Configuration, Event, key, plain, result, stamped
from metakel.tuner.journal import Journal, used_by_this_thread
from metakel.tuner.lock import is_alive, this_process
from metakel.tuner.options import RunLimits, RunOptions, TuningSource, check_header
from metakel.tuner.trials import FINISHED, JournalTrial, Trials

LOG = logging.getLogger("metakel")
SLACK = 0.1  # of the range of the output: so far beyond its limits a value may be noise
CLOCKS_DIFFER = 60.0  # seconds, which a warning is about
UNDISTURBED_TRIES = 3  # choices that are computed without keeping other processes waiting


class Session(ABC):
    """Reads what others wrote before it adds anything, and adds while nobody else writes."""

    def __init__(self, path: str | Path | None) -> None:
        self._journal, self._trials = Journal(path), Trials()

    @property
    def _where(self) -> str:
        return str(self._journal.path or "the journal")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Alone with the journal, and up to date."""
        with self._journal.exclusive():
            self._sync()
            yield

    def _append(self, events: Sequence[Event]) -> None:
        """Note events; only within a `_turn`."""
        self._journal.append([stamped(event) for event in events])
        self._sync()

    def _sync(self) -> None:
        with self._journal.reading() as events:
            line = self._journal.line + 1
            first = list(islice(events, 1)) if line == 1 else []
            if first:
                self._begin(check_header(first[0], self._where))
            trials = self._trials.after(chain(first, events), self._where, line)
        self._trials = trials

    @abstractmethod
    def _begin(self, header: Mapping[str, Any]) -> None:
        """Take the first event of a journal, or refuse it."""


class JournalReader(Session):
    """What a journal says, and a way to add results."""

    def __init__(self, path: str | Path) -> None:
        if not Path(path).exists():
            raise InputError(f"there is no journal {path}")
        super().__init__(path)
        self._sync()
        if not self._journal.line:
            check_header({}, str(path))

    def _begin(self, header: Mapping[str, Any]) -> None:
        self.header = header

    @property
    def trials(self) -> Trials:
        """Everything the journal said when it was last looked at."""
        return self._trials

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
            self._append([result(number, row, value, reason, outputs)])
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
            self._append([self.trials.correction(number, value, reason, outputs, row)])
            return self.trials.all[number]

    def drop(self, number: int) -> JournalTrial:
        """A suggestion that will not be done, or a failure that says nothing."""
        with self._turn():
            self._append([self.trials.drop(number)])
            return self.trials.all[number]

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = self.space.normalise(configuration)
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


class Finished(InputError):
    """The budget is spent, or the certificate is small enough: nothing is left to ask."""


class Asking(Session):
    """The half of a `Tuner` that asks: an optimizer in step with a journal.

    What it asks for, and when it stops, follow from the journal and the seed. Its parameters are
    described there.
    """

    def __init__(
        self,
        source: TuningSource,
        options: RunOptions,
        journal: str | Path | None,
        *,
        budget: int | None,
        stop_at: float | str | None,
        adopt_after: float | None,
        manual: bool,
    ) -> None:
        if budget is not None and not (is_integer(budget) and budget >= 1):
            raise InputError(
                f"budget is {shown(budget)}; expected at least one evaluation, as a whole number"
            )
        if adopt_after is not None:
            positive("adopt_after", adopt_after)
        self._source, self.options = source, options
        self.budget, self.stop_at, self.adopt_after = budget, stop_at, adopt_after
        self._manual, self._wondered_at_clocks = manual, False
        self._optimizer = options.optimizer(source)
        self.tolerance = self._checked_tolerance()  # before a journal is begun
        super().__init__(journal)
        self._known = self._trials  # what the optimizer has seen
        domain = self._optimizer.domain
        self._as_record = TrialsAsRecord(lambda rows: domain.encode(rows, "journal"), self._where)
        self._latest()

    def _checked_tolerance(self) -> float | None:
        """``stop_at`` in units of the output; refused where there can be no certificate."""
        if self.stop_at is None:
            return None
        tolerance = as_tolerance(self.stop_at, spread_of(self._optimizer.model))
        if tolerance == 0:
            raise InputError(f"stop_at is {self.stop_at}; expected a number > 0")
        if lacking := self._optimizer.no_certificate:
            raise InputError(f"stop_at needs a certificate; there is none: {lacking}")
        return tolerance

    # The optimizer in step with the journal

    def _latest(self) -> Trials:
        """What the journal says now."""
        with self._turn():
            return self._trials

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with super()._turn():
            if not self._journal.line:
                self._append([self.options.header(self._source)])
            self._ring()
            yield

    def _append(self, events: Sequence[Event]) -> None:
        super()._append(events)
        self._ring()

    def _begin(self, header: Mapping[str, Any]) -> None:
        self.options.refuse_another(self._source, header, self._where)

    def _sync(self) -> None:
        super()._sync()
        self._condition(self._trials)

    def _condition(self, trials: Trials) -> None:
        if trials is not self._known:
            self._optimizer.record = self._as_record(trials)
            self._known = trials
            alarm = self._optimizer.alarm if trials.accepted else None
            if alarm is not None and alarm.time <= trials.accepted:
                self._optimizer.accept_alarm()

    def _ring(self) -> None:
        """Note an alarm, once, whichever process sees it first."""
        seen = self._optimizer.alarm
        if seen is not None and self._trials.alarm is None:
            self._append([{"event": "alarm", "told": seen.time, "reason": seen.reason}])

    # Ask

    @property
    def done(self) -> bool:
        """Whether nothing more is asked for."""
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        """Why nothing more is asked for; empty while there is something to do."""
        return self._stop_reason(self._latest())

    def _stop_reason(self, trials: Trials) -> str:
        if self.tolerance is not None:
            certificate = self._optimizer.certificate
            if certificate.regret <= self.tolerance:
                return f"{certificate} (stop_at={self.stop_at})"
        spent = self.budget is not None and trials.spent >= self.budget
        if spent and not self._orphans(trials):
            return f"the budget of {self.budget} evaluations is spent"
        listed = self.options.candidates
        if listed is not None and listed.all_among(trials.asked_for):
            return f"all {len(listed.rows)} candidates were asked"
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
        with self._journal.alone():
            for _ in range(UNDISTURBED_TRIES):
                trials = self._latest()
                events = self._choose(n, trials, context)
                with self._turn():
                    if self._trials.revision == trials.revision:
                        return self._note(n, events)
            with self._turn():
                return self._note(n, self._choose(n, self._trials, context))

    def _note(self, n: int, events: list[Event]) -> list[JournalTrial]:
        if n and not events:
            raise Finished(self._stop_reason(self._trials))
        new = count(len(self._trials.all))
        self._append(events)  # all or none: who gets no answer leaves nothing pending
        numbers = [event["number"] if "number" in event else next(new) for event in events]
        return [self._trials.all[number] for number in numbers]

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
            "expected": self._expected(trials, chosen),
        }

    def _suggestion(self, trials: Trials, context: Mapping[str, Any] | None) -> Configuration:
        """The next configuration, if the journal said this; a candidate as it was listed."""
        self._condition(trials)
        chosen, listed = plain(self._optimizer.suggest(context)), self.options.candidates
        return chosen if listed is None else listed.as_listed(chosen)

    def _expected(self, trials: Trials, configuration: Configuration) -> list[float]:
        """Mean, within the limits of the output, and standard deviation, by what decided."""
        self._condition(trials)
        mean, sd = self._optimizer.predict([configuration])
        low, high = self._optimizer.output_limits
        return [min(max(float(mean[0]), low), high), float(sd[0])]

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
                        self._release(trial.number, unless=handed)
                raise
            handed.append(trial.number)

    def _release(self, number: int, *, unless: Sequence[int]) -> None:
        """Give a pending evaluation back, unless others of its loop are pending as well.

        Python may throw a loop away anywhere, even while this very thread reads or writes; then
        it stays with the process.
        """
        if used_by_this_thread():
            return
        with self._turn():
            pending = {trial.number for trial in self._trials.pending}
            if number in pending and pending.isdisjoint(unless):
                self._append([{"event": "released", "number": number}])


class TrialsAsRecord:
    """Gives trials as the record of an optimizer; what did not change is not made again.

    Parameters
    ----------
    encode : callable
        Gives the points (n, d0) of configurations.
    where : str
        What errors call the journal.
    """

    def __init__(
        self, encode: Callable[[Sequence[Configuration]], Array], where: str = "the journal"
    ) -> None:
        self._encode, self._where = encode, where
        self._made: list[tuple[JournalTrial, Trial]] = []

    def __call__(self, trials: Trials) -> Record:
        """Results come in the order in which the journal has them.

        A suggestion in whose place something else was run is not made again.
        """
        self._update(trials.all)
        made = [trial for _, trial in self._made]
        replaced = [trial for trial in trials.all if trial.suggested is not None]
        suggested = [trial.suggested or {} for trial in replaced]
        for point, x in zip(suggested, self._encoded(replaced, suggested), strict=True):
            made.append(Trial(len(made), point, x, state="forgotten"))
        done = (trials.all[number] for number in trials.finished)
        return Record(tuple(made), tuple((t.number,) for t in done if t.state in FINISHED))

    def _update(self, trials: Sequence[JournalTrial]) -> None:
        made = self._made
        del made[len(trials) :]
        changed = [t for t in trials if t.number >= len(made) or made[t.number][0] is not t]
        moved = [
            t
            for t in changed
            if t.number >= len(made) or made[t.number][0].configuration != t.configuration
        ]
        X = self._encoded(moved, [t.configuration for t in moved])
        places = {t.number: x for t, x in zip(moved, X, strict=True)}
        for t in changed:
            x = places[t.number] if t.number in places else made[t.number][1].x
            made[t.number : t.number + 1] = [(t, _as_optimizer_trial(t, x))]

    def _encoded(
        self, trials: Sequence[JournalTrial], configurations: Sequence[Configuration]
    ) -> list[Array]:
        """Points of configurations that belong to trials; an error names the trial."""
        if not trials:
            return []
        try:
            return list(self._encode(configurations))
        except InputError:
            for trial, configuration in zip(trials, configurations, strict=True):
                try:
                    self._encode([configuration])
                except InputError as error:
                    raise error.at(f"{self._where}, trial {trial.number}") from None
            raise


def _as_optimizer_trial(trial: JournalTrial, x: Array) -> Trial:
    made = Trial(trial.number, trial.configuration, x)
    if trial.state in FINISHED:
        return made.with_result(trial.value, outputs=trial.outputs)
    if trial.state == "dropped":
        return replace(made, state="forgotten", closed=not trial.released)
    return made
