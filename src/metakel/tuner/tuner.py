"""Tuner: named parameters in, values out, everything in a journal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from metakel.errors import InputError, MetaKelError
from metakel.priors import Prior
from metakel.tuner.candidates import Candidates
from metakel.tuner.journal import Event, Journal
from metakel.tuner.monitor import Certificate, Monitor
from metakel.tuner.normalise import Configuration, key, plain, settled
from metakel.tuner.options import Settings
from metakel.tuner.results import as_value, correction, dropping, result
from metakel.tuner.schedule import RunSchedule
from metakel.tuner.session import Session
from metakel.tuner.trials import AlarmRaised, Trial, Trials

LOG = logging.getLogger("metakel")


class Finished(InputError):
    """The budget is spent, or the certificate is small enough: nothing is left to ask."""


@dataclass(frozen=True)
class Best:
    """The best value told, and where."""

    configuration: Configuration
    value: float


class Tuner:
    """Ask for the next configuration, tell its value.

    Whatever is asked and told goes to the journal before the call returns, and what is asked
    depends on the journal alone: a new Tuner on the same journal goes on where the last one
    stopped. An evaluation whose process died is asked again. Several processes may share a journal.

    Parameters
    ----------
    prior : Prior
        It knows the parameters, the output, and whether to maximise or to minimise.
    journal : path, optional
        Created where there is none; without it, memory is all there is.
    budget : int, optional
        At most how many evaluations to ask for, failed ones included, unless they are taken back
        (`drop_failed`).
    stop_at : float, optional
        Done as soon as the certificate is at most this, in units of the output.
    seed, delta, fixed, extrapolate, candidates
        See `Settings`; a journal keeps them. Candidates are a frame or a sequence of dicts.
    manual : bool
        Whether evaluations outlive this process, as when a person does them; they are then never
        asked again by themselves.
    """

    def __init__(
        self,
        prior: Prior,
        journal: str | Path | None = None,
        *,
        budget: int | None = None,
        stop_at: float | None = None,
        seed: int = 0,
        delta: float = 0.2,
        fixed: Mapping[str, Any] | None = None,
        extrapolate: bool = False,
        candidates: Any = None,
        manual: bool = False,
    ) -> None:
        if not isinstance(prior, Prior):
            raise InputError(
                f"prior is a {type(prior).__name__}; expected a Prior: Prior.load(path) reads one "
                "that was saved, learn_prior(history) learns one"
            )
        listed = None if candidates is None else Candidates.of(candidates, prior.space)
        self.prior = prior
        self.settings = Settings(seed, delta, plain(fixed or {}), extrapolate, listed)
        self._plan = RunSchedule(prior, self.settings, budget, stop_at, manual)
        watch = Monitor(prior, self.settings)
        if stop_at is not None and watch.no_band:
            raise InputError(f"stop_at needs a certificate; there is none: {watch.no_band}")
        self._kept = Session(prior, self.settings, watch, Journal(journal))
        self._wondered = False

    # What it knows

    @property
    def budget(self) -> int | None:
        """At most how many evaluations are asked for."""
        return self._plan.budget

    @property
    def stop_at(self) -> float | None:
        """The certificate that is good enough."""
        return self._plan.stop_at

    @property
    def trials(self) -> Trials:
        """Everything the journal says, by whichever process."""
        return self._kept.latest()

    @property
    def pending(self) -> tuple[Configuration, ...]:
        """Asked, and without a result."""
        return tuple(trial.configuration for trial in self.trials.pending)

    @property
    def best(self) -> Best:
        """The best value told."""
        top = self.trials.best(minimize=self.prior.info.minimize)
        if top is None:
            raise InputError("nothing was told yet, so there is no best")
        return Best(dict(top.configuration), float(top.value or 0.0))

    @property
    def alarm(self) -> AlarmRaised | None:
        """Set once the values told contradict the history; it is left out from then on."""
        return self.trials.alarm

    @property
    def trust(self) -> float:
        """Posterior weight of the history against a cold start; 0 after an alarm."""
        return self._kept.watch.trust if self.trials.alarm is None else 0.0

    @property
    def certificate(self) -> Certificate:
        """How much better than the best certain configuration anything can be."""
        return self.watch.certificate

    @property
    def watch(self) -> Monitor:
        """The band behind the certificate."""
        self._kept.latest()
        return self._kept.watch

    @property
    def done(self) -> str:
        """Why nothing more is asked; empty while there is something to do."""
        return self._plan.done(self.trials, self._kept.watch)

    def __repr__(self) -> str:
        trials = self.trials
        best = f", best {self.best.value:.4g}" if trials.told else ""
        alarm = ", ALARM" if trials.alarm else ""
        counts = f"{len(trials.told)} told, {len(trials.pending)} pending"
        return f"Tuner({self.prior.info.output}: {counts}{best}{alarm})"

    # Ask and tell

    def ask(self) -> Configuration:
        """The configuration to try next; pending from now on."""
        return self.ask_batch(1)[0]

    def ask_batch(self, n: int) -> list[Configuration]:
        """The next ``n`` configurations, to be evaluated side by side.

        Fewer where fewer are left; `Finished` where none is.
        """
        if n < 0:
            raise InputError(f"ask_batch: n is {n}; expected at least 0")
        return [dict(trial.configuration) for trial in self._ask(n)]

    def _ask(self, n: int) -> list[Trial]:
        chosen: list[Trial] = []
        events: list[Event] = []
        with self._kept.turn():
            trials = self._kept.trials
            for _ in range(n):
                event = self._plan.next(trials, self._kept.watch)
                if event is None:
                    break
                events.append(event)
                trials = trials.after([event])
                number = event.get("number", len(trials.all) - 1)
                chosen.append(trials.all[number])
            if n and not events:
                raise Finished(self.done)
            self._kept.append(events)  # all or none: whoever gets no answer leaves nothing pending
        return chosen

    def __iter__(self) -> Iterator[Configuration]:
        """Ask until done: ``for x in tuner: tuner.tell(x, measure(x))``.

        A loop that is left before it told the last configuration, by an error say, gives it back:
        it is asked again.
        """
        process, handed = os.getpid(), list[int]()
        while True:
            try:
                (trial,) = self._ask(1)
            except Finished:
                return
            try:
                yield dict(trial.configuration)
            except GeneratorExit:
                # A fork throws its copy of the loop away as well.
                if process == os.getpid() and not (self._plan.manual or sys.is_finalizing()):
                    with suppress(MetaKelError):  # else it is pending while this process lives
                        self._kept.release(trial.number, unless=handed)
                raise
            handed.append(trial.number)

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None = None,
        *,
        failed: bool = False,
        reason: str = "",
        instead_of: Mapping[str, Any] | int | None = None,
    ) -> None:
        """The value of a configuration, asked or not; safe on disk when this returns.

        A value that is not finite, or beyond 1e50, counts as failed. Where a suggestion was run
        with other settings, rounded ones say, tell those ``instead_of`` the suggestion (or its
        number): it is then done, and counts once.
        """
        if value is None and not failed:
            raise InputError("tell: no value; say failed=True if there is none")
        checked = self._checked(configuration)
        with self._kept.turn():
            waiting = self._settles(checked, instead_of)
            self._kept.append([result(waiting, checked, None if failed else value, reason)])

    def correct(
        self,
        which: Mapping[str, Any] | int,
        value: float | None = None,
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
        value, failed, reason
            As for `tell`.
        """
        if value is None and not failed:
            raise InputError("correct: no value; say failed=True if there is none")
        with self._kept.turn():
            trials = self._kept.trials
            if isinstance(which, Mapping):
                which = trials.done_as(which, self.prior.space).number
            right = None if failed else value
            self._kept.append([correction(trials.result_of(which), None, right, reason)])

    def observe(self, configurations: Sequence[Mapping[str, Any]], values: Sequence[float]) -> int:
        """Warm start: values of this very task from elsewhere. Gives how many were new."""
        if len(configurations) != len(values):
            raise InputError(f"{len(configurations)} configurations but {len(values)} values")
        rows = [self._checked(configuration) for configuration in configurations]
        found = [result(None, row, as_value(v), "") for row, v in zip(rows, values, strict=True)]
        with self._kept.turn():
            trials = self._kept.trials
            done = [*trials.told, *trials.failed]
            known = {(key(t.configuration, self.prior.space), t.value) for t in done}
            new = [e for e in found if (key(e["configuration"]), e.get("value")) not in known]
            self._kept.append(new)
        return len(new)

    def enqueue(self, configurations: Sequence[Mapping[str, Any]]) -> None:
        """Ask for these first."""
        rows = [self._checked(configuration) for configuration in configurations]
        with self._kept.turn():
            self._kept.append([{"event": "queued", "configuration": row} for row in rows])

    def drop(self, which: Mapping[str, Any] | int) -> None:
        """This pending evaluation will not be done; it does not count towards the budget.

        By its configuration or its number. A failed one is taken back by its number: it is no bad
        place, and does not count either.
        """
        with self._kept.turn():
            trials = self._kept.trials
            if isinstance(which, Mapping):
                waiting = trials.waiting(which, self.prior.space)
                if waiting is None:
                    raise InputError(f"{dict(which)} is not pending")
                which = waiting.number
            self._kept.append([dropping(trials, which)])

    def drop_failed(self) -> int:
        """Take all failures back, as when the program was at fault; gives how many."""
        with self._kept.turn():
            trials = self._kept.trials
            failed = [trial.number for trial in trials.failed]
            self._kept.append([dropping(trials, number) for number in failed])
        return len(failed)

    # How it is kept

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, is a Tuner on the same journal."""
        if self._kept.place is None:
            raise TypeError(
                "this Tuner has no journal, so its memory cannot be copied or pickled; "
                "expected a Tuner with a journal, which its copies share: Tuner(prior, path)"
            )
        options = {
            "budget": self.budget,
            "stop_at": self.stop_at,
            "manual": self._plan.manual,
            **{f.name: getattr(self.settings, f.name) for f in fields(self.settings)},
        }
        if self.settings.candidates is not None:
            options["candidates"] = self.settings.candidates.given
        return partial(type(self), self.prior, self._kept.place, **options), ()

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = settled(self.prior.space, configuration)
        self.prior.space.encode([row], extrapolate=self.settings.extrapolate)
        candidates = self.settings.candidates
        if candidates is not None and candidates.find(row) is None:
            raise InputError(f"{row} is not among the {len(candidates.rows)} candidates")
        return row

    def _settles(
        self, row: Configuration, instead_of: Mapping[str, Any] | int | None
    ) -> Trial | None:
        """The pending trial that a result is of."""
        trials, space = self._kept.trials, self.prior.space
        if instead_of is None:
            found = trials.waiting(row, space)
            if found is None:
                self._wonder(row)
            return found
        if not isinstance(instead_of, Mapping):
            return trials.pending_one(instead_of)
        found = trials.waiting(instead_of, space)
        if found is None:
            raise InputError(f"instead_of is {dict(instead_of)}, which is not pending")
        return found

    def _wonder(self, row: Configuration) -> None:
        """Whoever runs suggestions with rounded values leaves them pending for ever."""
        mine = [t for t in self._kept.trials.pending if (t.owner or {}).get("pid") == os.getpid()]
        if mine and not self._wondered:
            self._wondered = True
            LOG.warning(
                "told %s, which was not asked: trial %d stays pending. If this was run instead of "
                "it, say so: tell(..., instead_of=%d), or the configuration that was asked",
                row,
                mine[0].number,
                mine[0].number,
            )
