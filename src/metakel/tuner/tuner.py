"""Tuner: named parameters in, values out, everything in a journal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from metakel._arrays import Array, is_integer, positive, shown
from metakel.charts import card, items
from metakel.charts import number as short
from metakel.confidence import AlarmEvent
from metakel.errors import InputError, MetaKelError
from metakel.learn import LearnedKernel
from metakel.optimize import Best, Certificate, Optimizer, Reasons
from metakel.optimize.certificate import as_tolerance
from metakel.optimize.record import Record, Trial
from metakel.priors import Prior
from metakel.space import Space
from metakel.tuner.fold import Configuration, Run, age
from metakel.tuner.journal import Event, T, used_by_this_thread
from metakel.tuner.lock import is_alive, this_process
from metakel.tuner.source import Candidates, RunOptions, RunTask, Source, as_source, plain
from metakel.tuner.store import Store, as_value, drawn, dropped

LOG = logging.getLogger("metakel")
CLOCKS_DIFFER = 60.0  # seconds, which a warning is about
UNDISTURBED_TRIES = 3  # choices that are computed without keeping other processes waiting


class Finished(InputError):
    """The budget is spent, or the certificate is small enough: nothing is left to ask."""


class Tuner:
    """Ask for the next configuration, tell its value.

    Whatever is asked and told goes to the journal before the call returns, and what is asked
    depends on the journal alone: a new Tuner on the same journal goes on where the last one
    stopped. An evaluation whose process died is asked again. Several processes may share a journal.
    One that was begun with another prior, task or command is refused.

    Parameters
    ----------
    prior : Prior, LearnedKernel or Source
        It knows the parameters, the output, and whether to maximise or to minimise. A kernel must
        have been learned from a history with named parameters. `KernelSource` gives it a norm
        bound, and `metakel.safe.SafePrior` a prior rules that every run has to respect.
    journal : path, optional
        Created where there is none; without it, memory is all there is.
    budget : int, optional
        At most how many evaluations to ask for, failed ones included, unless they are taken back
        (`drop_failed`).
    stop_at : float or str, optional
        Done as soon as the certificate is at most this, in units of the output; text such as "1%"
        is a share of the usual spread of a task.
    seed : int
        With the events of the journal, it decides every configuration. A journal keeps it.
    fixed : dict, optional
        Parameters held at a value in what is asked from now on.
    extrapolate : bool
        Whether values beyond the recorded ranges are allowed.
    task : str or RunTask, optional
        What is tuned. A journal keeps it.
    delta : float, optional
        Probability with which the certificate may fail; by default that of the source.
    candidates : sequence of dict, or a frame, optional
        The only configurations that can be evaluated.
    adopt_after : float, optional
        Seconds after which an evaluation of a process that cannot be looked up, as in another
        container or on another machine, is asked again; longer than any evaluation takes. By
        default it waits for its result for ever. "never" says that evaluations outlive this
        process, as when a person does them; they are then never asked again by themselves.
    space : Space, optional
        Ranges and choices of this run, where they are narrower than those of the past
        (`Space.restricted`).
    """

    def __init__(
        self,
        prior: Prior | LearnedKernel | Source,
        journal: str | Path | None = None,
        *,
        budget: int | None = None,
        stop_at: float | str | None = None,
        seed: int = 0,
        delta: float | None = None,
        fixed: Mapping[str, Any] | None = None,
        extrapolate: bool = False,
        candidates: Any = None,
        adopt_after: float | Literal["never"] | None = None,
        task: str | RunTask = "",
        space: Space | None = None,
    ) -> None:
        source = as_source(prior)
        listed = None if candidates is None else Candidates.of(candidates, source.space)
        options = RunOptions(
            seed,
            source.delta if delta is None else delta,
            plain({} if fixed is None else fixed),
            *(extrapolate, listed, RunTask.of(task), space),
        )
        if budget is not None and not (is_integer(budget) and budget >= 1):
            raise InputError(
                f"budget is {shown(budget)}; expected at least one evaluation, as a whole number"
            )
        if not (adopt_after is None or (isinstance(adopt_after, str) and adopt_after == "never")):
            positive("adopt_after", adopt_after)
        self.prior, self.options, self.source = prior, options, source
        self.budget, self.stop_at, self.adopt_after = budget, stop_at, adopt_after
        self._wondered = set[str]()  # what was warned of
        self._optimizer = source.optimizer(options)
        self._check_tolerance()  # before a journal is begun
        self._store = Store(journal, lambda h: options.refuse_another(source, h, str(journal)))
        self._known = self._store.run  # what the optimizer has seen
        self._latest()

    def _check_tolerance(self) -> None:
        """Refuse ``stop_at`` where there can be no certificate."""
        if self.stop_at is None:
            return
        tolerance = as_tolerance(self.stop_at, self._optimizer.model.spread)
        if tolerance == 0:
            raise InputError(f"stop_at is {self.stop_at}; expected a number > 0")
        certificate = self._optimizer.certificate()
        if certificate.final:
            reason = certificate.reason
            raise InputError(f"stop_at needs a certificate; there is none: {reason}")
        outlook = certificate.outlook(self.stop_at)
        if outlook:
            LOG.warning("stop_at=%s will not stop this run: %s", self.stop_at, outlook)

    # The optimizer in step with the journal

    def _latest(self) -> Run:
        """What the journal says now."""
        return self._turn(lambda: self._store.run)

    def _turn(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, in step with the journal before and after it."""

        def in_step() -> T:
            if not self._store.begun:
                self._store.append([self.options.header(self.source)])
            self._follow()
            found = work()
            self._follow()
            return found

        return self._store.turn(in_step)

    def _follow(self) -> None:
        """Condition on what is new; note an alarm, once, whichever process sees it first."""
        self._condition(self._store.run)
        seen = self._optimizer.alarm
        if seen is not None and self._store.run.alarm is None:
            self._store.append([{"event": "alarm", "told": seen.time, "reason": seen.reason}])
            self._condition(self._store.run)

    def _condition(self, run: Run) -> None:
        if run is not self._known:
            self._optimizer.record = run.record
            self._known = run
            alarm = self._optimizer.alarm if run.accepted else None
            if alarm is not None and alarm.time <= run.accepted:
                self._optimizer.accept_alarm()

    # What it knows

    @property
    def run(self) -> Run:
        """What the journal says now."""
        return self._latest()

    @property
    def trials(self) -> Record:
        """All trials of the journal, by whichever process."""
        return self._latest().record

    @property
    def pending(self) -> tuple[Configuration, ...]:
        """Asked, and without a result."""
        return tuple(trial.point for trial in self.trials.pending)

    @property
    def space(self) -> Space:
        """Parameters and their recorded ranges."""
        return self.source.space

    @property
    def by_hand(self) -> bool:
        """Whether evaluations outlive this process, as when a person does them."""
        return self.adopt_after == "never"

    @property
    def output(self) -> str:
        """What is measured."""
        return self.source.output

    @property
    def optimizer(self) -> Optimizer:
        """What decides, given everything that the journal says."""
        self._latest()
        return self._optimizer

    @property
    def best(self) -> Best:
        """The best observed configuration."""
        return self.optimizer.best()

    @property
    def alarm(self) -> AlarmEvent | None:
        """Set once the values contradict the history; the certificate ends with it."""
        return self._latest().alarm

    @property
    def trust(self) -> float:
        """Posterior weight of the history against a cold start."""
        return self.optimizer.trust

    @property
    def certificate(self) -> Certificate:
        """How much better than the best configuration anything can be; see `Certificate`."""
        return self.optimizer.certificate()

    def predict(self, configurations: Any) -> tuple[Array, Array]:
        """(n,) means and standard deviations, by the model that decides next."""
        return self.optimizer.predict(configurations)

    def explain(
        self, configuration: Mapping[str, Any], fixed: Mapping[str, Any] | None = None
    ) -> Reasons:
        """Why to try a configuration, for example one that was asked for; see `Reasons`."""
        return self.optimizer.explain(configuration, fixed)

    def confidence(self, configurations: Any) -> tuple[Array, Array]:
        """(n,) lower and upper confidence bounds, for all configurations and times at once."""
        return self.optimizer.confidence(configurations)

    def __repr__(self) -> str:
        run = self._latest()
        done, waiting = run.record.observed, run.record.pending
        best = f", best {self.best.value:.4g}" if done else ""
        alarm = ", ALARM" if run.alarm else ""
        counts = f"{len(done)} values, {len(waiting)} pending"
        return f"Tuner({self.source.output}: {counts}{best}{alarm})"

    def _repr_html_(self) -> str:
        record, alarm, lines = self.trials, self.alarm, list[str]()
        if record.observed:
            best = self.best
            lines.append(f"best {short(best.value)} at {self.space.show(best.x)}")
        lines += [str(self.certificate), f"trust in the history: {self.trust:.0%}"]
        if alarm is not None:
            lines.append(f"ALARM after {alarm.time} values: {alarm.reason}")
        title = f"Tuning {self.output}: {record.counts}"
        return card(title, items(lines), record._repr_html_())

    # Ask

    @property
    def done(self) -> bool:
        """Whether nothing more is asked for."""
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        """Why nothing more is asked for; empty while there is something to do."""
        return self._stop_reason(self._latest())

    def _stop_reason(self, run: Run) -> str:
        if self.stop_at is not None:
            reached = self._optimizer.certificate().reached(self.stop_at)
            if reached:
                return reached
        spent = self.budget is not None and run.spent >= self.budget
        if spent and not self._orphans(run):
            return f"the budget of {self.budget} evaluations is spent"
        listed = self.options.candidates
        if listed is not None and listed.all_among(run.asked_for):
            return f"all {len(listed.rows)} candidates were asked"
        return ""

    def ask(self, fixed: Mapping[str, Any] | None = None) -> Configuration:
        """The configuration to try next; pending from now on.

        ``fixed`` holds parameters that are given this time, not chosen: the weather, say.
        """
        return self.ask_batch(1, fixed)[0]

    def ask_batch(self, n: int, fixed: Mapping[str, Any] | None = None) -> list[Configuration]:
        """The next ``n`` configurations, to be evaluated side by side.

        Fewer where fewer are left; `Finished` where none is.
        """
        return [dict(trial.point) for trial in self.ask_trials(n, fixed)]

    def ask_trials(self, n: int, fixed: Mapping[str, Any] | None = None) -> list[Trial]:
        """The same with their numbers, and with what the model expects of them.

        The choice is computed while other processes may read and write. If they ask meanwhile, it
        is computed again, at last while they wait. Values that arrive meanwhile are used from the
        next choice on.
        """
        if n < 0:
            raise InputError(f"ask_trials: n is {n}; expected at least 0")
        with self._store.alone():
            for _ in range(UNDISTURBED_TRIES):
                run = self._latest()
                asked = self._turn(partial(self._note, n, self._choose(n, run, fixed), run))
                if asked is not None:
                    return asked
            last = self._turn(lambda: self._note(n, self._choose(n, self._store.run, fixed)))
            return last or []

    def _note(
        self, n: int, events: list[Event], chosen_for: Run | None = None
    ) -> list[Trial] | None:
        """The trials; None if others asked since they were chosen."""
        if chosen_for is not None and self._store.run.revision != chosen_for.revision:
            return None
        if n and not events:
            raise Finished(self._stop_reason(self._store.run))
        new = count(len(self._store.run.record))
        self._store.append(events)  # all or none: who gets no answer leaves nothing pending
        numbers = [event["number"] if "number" in event else next(new) for event in events]
        return [self._store.run.record[number] for number in numbers]

    def _choose(self, n: int, run: Run, fixed: Mapping[str, Any] | None) -> list[Event]:
        """What to note for the next configurations; fewer where fewer are left."""
        events: list[Event] = []
        while len(events) < n and (event := self._next(run, fixed)) is not None:
            events.append(event)
            run = run.after([event])
        return events

    def _next(self, run: Run, fixed: Mapping[str, Any] | None) -> Event | None:
        """What to note for the next configuration; None where nothing is left to ask for."""
        by = None if self.by_hand else this_process()
        orphans = self._orphans(run)
        if orphans:
            return {"event": "adopted", "number": orphans[0].number, "by": by}
        if self._stop_reason(run):
            return None
        # What was queued holds nothing in particular.
        queued, listed = run.queued[:1] if fixed is None else (), self.options.candidates
        self._condition(run)
        if queued:
            chosen = queued[0]
        else:
            suggested = plain(self._optimizer.peek(fixed))
            chosen = suggested if listed is None else listed.as_listed(suggested)
        mean, sd = self._optimizer.predict([chosen])
        low, high = self._optimizer.output_range
        return {
            "event": "asked",
            "configuration": chosen,
            "by": by,
            "queued": bool(queued),
            "expected": [min(max(float(mean[0]), low), high), float(sd[0])],
        }

    def _orphans(self, run: Run) -> list[Trial]:
        """Pending evaluations whose process is gone, or let go of them."""
        if self.by_hand:
            return []
        return [trial for trial in run.record.pending if self._is_orphan(trial)]

    def _is_orphan(self, trial: Trial) -> bool:
        note = trial.note
        if note.released:
            return True
        if note.owner is None:  # a person's
            return False
        alive, patience = is_alive(note.owner), self.adopt_after
        if alive is None and isinstance(patience, int | float):
            seconds = age(trial)
            if seconds is not None and seconds < -CLOCKS_DIFFER and "clocks" not in self._wondered:
                self._wondered.add("clocks")
                LOG.warning(
                    "trial %d was asked for %.0f s in the future, by the clock of %s: as long as "
                    "the clocks differ, adopt_after is that much longer",
                    *(trial.number, -seconds, note.owner.get("host", "another machine")),
                )
            return seconds is not None and seconds > patience
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
                yield dict(trial.point)
            except GeneratorExit:
                # A fork throws its copy of the loop away as well.
                if process == os.getpid() and not (self.by_hand or sys.is_finalizing()):
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

        def note() -> None:
            pending = {trial.number for trial in self._store.run.record.pending}
            if number in pending and pending.isdisjoint(unless):
                self._store.append([{"event": "released", "number": number}])

        self._turn(note)

    # Tell

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None = None,
        outputs: Mapping[str, Any] | None = None,
        *,
        failed: bool = False,
        reason: str = "",
        instead_of: Mapping[str, Any] | int | None = None,
        constraints: Mapping[str, float] | None = None,
        curve: Mapping[int, float] | None = None,
    ) -> None:
        """The value of a configuration, asked or not; safe on disk when this returns.

        ``outputs`` are what else was measured, by name; one for every output that the source has
        rules for (None where it was not measured).

        ``constraints`` are numbers by name; a run in which one is above 0 is never the best, and
        later suggestions avoid the place.

        ``curve`` has values by step, from 1, of which this is the last (`metakel.curves`).

        What was really done can be told: numbers beyond their range and new choices are evidence
        for a prior, and are not suggested. A value that is not finite, or beyond 1e50, counts as
        failed. Where a suggestion was run
        with other settings, rounded ones say, tell those ``instead_of`` the suggestion (or its
        number): it is then done, and counts once.
        """
        measured, row = _given("tell", value, failed), self._checked(configuration)
        for text in self.space.unlike(row) if self.source.anywhere else ():
            LOG.warning("%s: recorded as it was done", text)
        event = {**self._store.result(row, measured, reason, outputs, constraints), **drawn(curve)}
        trial = self._turn(lambda: self._store.settle(event, instead_of, this_process()))
        if instead_of is None and not trial.note.asked:
            self._wonder(row)

    def stop(
        self, configuration: Mapping[str, Any], curve: Mapping[int, float], reason: str = ""
    ) -> None:
        """A pending run was ended early, as its curve said that it would not become the best.

        It counts towards the budget, has no value, and is not asked again; later suggestions avoid
        the place. `metakel.curves.CurveModel.decide` says when to do so.
        """
        checked, steps = self._checked(configuration), drawn(curve)

        def note() -> None:
            waiting = self._store.run.waiting(checked, this_process())
            if waiting is None:
                raise InputError(f"stop: {checked} is not pending; expected what was asked for")
            event = {"event": "stopped", "number": waiting.number, "configuration": checked}
            self._store.append([{**event, "reason": reason, **steps}])

        self._turn(note)

    def correct(
        self,
        which: Mapping[str, Any] | int,
        value: float | None = None,
        outputs: Mapping[str, Any] | None = None,
        *,
        failed: bool = False,
        reason: str = "",
    ) -> None:
        """Another value in place of a wrong one that was told.

        Everything is as if it had been told at first; only what was asked meanwhile stays. The
        journal keeps both.

        Parameters
        ----------
        which : dict or int
            The configuration, if it was told once, or the number of the trial.
        value, outputs, failed, reason
            As for `tell`.
        """
        measured = _given("correct", value, failed)
        self._turn(
            lambda: self._store.correct(which, measured, None, reason, outputs, confirmed=True)
        )

    def observe(
        self,
        configurations: Sequence[Mapping[str, Any]],
        values: Sequence[float],
        outputs: Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Warm start: values of this very task from elsewhere. Gives how many were new.

        ``outputs`` has what else was measured, for every configuration.
        """
        rows = [self._checked(configuration) for configuration in self.space.rows(configurations)]
        try:
            measured = [as_value(value) for value in values]
        except TypeError:
            raise InputError(
                f"values is {shown(values)}; expected a number for every configuration"
            ) from None
        others = [{}] * len(rows) if outputs is None else [dict(row) for row in outputs]
        for what, given in (("values", len(measured)), ("rows of outputs", len(others))):
            if given != len(rows):
                raise InputError(f"{len(rows)} configurations but {given} {what}")
        found = [
            self._store.result(row, value, "", other)
            for row, value, other in zip(rows, measured, others, strict=True)
        ]

        def note() -> int:
            run, key = self._store.run, self.space.key
            done = (t for t in run.record if t.state in ("complete", "failed"))
            known = {(key(t.point), t.value) for t in done}
            new = [e for e in found if (key(e["configuration"]), e.get("value")) not in known]
            self._store.append(new)
            return len(new)

        return self._turn(note)

    def enqueue(self, configurations: Sequence[Mapping[str, Any]]) -> None:
        """Ask for these first; not in a run that has to respect rules, and chooses by itself."""
        if self.source.rules:
            raise InputError(
                f"enqueue in a run with {self.source.rules['text']}: a configuration that is "
                "queued may violate them; expected those that you vouch for as start=[...]"
            )
        rows = [self._checked(configuration) for configuration in self.space.rows(configurations)]
        for row in rows:
            self.space.check(row, extrapolate=self.options.extrapolate)
        events = [{"event": "queued", "configuration": row} for row in rows]
        self._turn(lambda: self._store.append(events))

    def drop(self, which: Mapping[str, Any] | int) -> None:
        """This pending evaluation will not be done; it does not count towards the budget.

        By its configuration or its number. A failed one is taken back by its number: it is no bad
        place, and does not count either.
        """
        self._turn(lambda: self._store.drop(which))

    def drop_failed(self) -> int:
        """Take all failures back, as when the program was at fault; gives how many."""

        def note() -> int:
            failed = self._store.run.record.failed
            self._store.append([dropped(trial) for trial in failed])
            return len(failed)

        return self._turn(note)

    def accept_alarm(self) -> None:
        """Go on after an alarm that has stopped a run (`Optimizer.accept_alarm`)."""

        def note() -> None:
            alarm = self._optimizer.alarm
            if alarm is None:
                raise InputError("accept_alarm: there was no alarm")
            self._store.append([{"event": "alarm accepted", "told": alarm.time}])

        self._turn(note)

    # How it is kept

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, is a Tuner on the same journal."""
        if self._store.place is None:
            raise TypeError(
                "this Tuner has no journal, so its memory cannot be copied or pickled; "
                "expected a Tuner with a journal, which its copies share: Tuner(prior, path)"
            )
        options = {
            "budget": self.budget,
            "stop_at": self.stop_at,
            "adopt_after": self.adopt_after,
            **{f.name: getattr(self.options, f.name) for f in fields(self.options)},
        }
        if self.options.candidates is not None:
            options["candidates"] = self.options.candidates.given
        return partial(type(self), self.prior, self._store.place, **options), ()

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = self._store.checked(configuration)
        if self.options.candidates is not None:
            self.options.candidates.as_listed(row)
        return row

    def _wonder(self, row: Configuration) -> None:
        """Whoever runs suggestions with rounded values leaves them pending for ever."""
        pending = self._store.run.record.pending
        mine = [trial for trial in pending if trial.note.owner == this_process()]
        if mine and "not asked for" not in self._wondered:
            self._wondered.add("not asked for")
            LOG.warning(
                "%s was not asked for: trial %d stays pending. If this was run instead of "
                "it, say so: tell(..., instead_of=%d), or the configuration that was asked",
                row,
                mine[0].number,
                mine[0].number,
            )


def _given(act: str, value: float | None, failed: Any) -> float | None:
    """The value, or None where there is none; why there is none is the reason."""
    if not isinstance(failed, bool | np.bool_):
        raise InputError(
            f"{act}: failed is {shown(failed)}; expected True or False, and why as reason=..."
        )
    if value is None and not failed:
        raise InputError(f"{act}: no value; say failed=True if there is none")
    return None if failed else value
