"""Tuner: named parameters in, values out, everything in a journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.prior import Prior
from metakel.prior.configurations import as_rows
from metakel.tuner.certify import Certificate, Watch
from metakel.tuner.journal import Event, Journal
from metakel.tuner.plan import Plan
from metakel.tuner.record import result
from metakel.tuner.session import Session
from metakel.tuner.settings import Settings
from metakel.tuner.trials import AlarmRaised, Configuration, Trials, key, plain


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
        At most how many evaluations to ask for, failed ones included.
    stop_at : float, optional
        Done as soon as the certificate is at most this, in units of the output.
    seed, delta, fixed, outside, candidates
        See `Settings`; a journal keeps them. Candidates are a frame or a sequence of dicts.
    detached : bool
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
        outside: bool = False,
        candidates: Any = None,
        detached: bool = False,
    ) -> None:
        if candidates is not None:
            candidates = tuple(plain(row) for row in as_rows(candidates, prior.space))
        self.prior = prior
        self.settings = Settings(seed, delta, plain(fixed or {}), outside, candidates)
        self._plan = Plan(prior, self.settings, budget, stop_at, detached)
        watch = Watch(prior, self.settings)
        if stop_at is not None and watch.no_band:
            raise InputError(f"stop_at needs a certificate; there is none: {watch.no_band}")
        self._kept = Session(prior, self.settings, watch, Journal(journal))

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
        told = self.trials.told
        if not told:
            raise InputError("nothing was told yet, so there is no best")
        sign = -1.0 if self.prior.facts.minimize else 1.0
        top = max(told, key=lambda trial: sign * (trial.value or 0.0))
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
    def watch(self) -> Watch:
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
        return f"Tuner({self.prior.facts.output}: {counts}{best}{alarm})"

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
        chosen: list[Configuration] = []
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
                chosen.append(dict(trials.all[number].configuration))
            if n and not events:
                raise Finished(self.done)
            self._kept.append(events)  # all or none: whoever gets no answer leaves nothing pending
        return chosen

    def __iter__(self) -> Iterator[Configuration]:
        """Ask until done: ``for x in tuner: tuner.tell(x, measure(x))``."""
        while True:
            try:
                configuration = self.ask()
            except Finished:
                return
            yield configuration

    def tell(
        self,
        configuration: Mapping[str, Any],
        value: float | None = None,
        *,
        failed: bool = False,
        reason: str = "",
    ) -> None:
        """The value of a configuration, asked or not; safe on disk when this returns.

        A value that is not finite, or beyond 1e50, counts as failed.
        """
        if value is None and not failed:
            raise InputError("tell: no value; say failed=True if there is none")
        checked = self._checked(configuration)
        with self._kept.turn():
            waiting = self._kept.trials.waiting(checked)
            self._kept.append([result(waiting, checked, None if failed else value, reason)])

    def observe(self, configurations: Sequence[Mapping[str, Any]], values: Sequence[float]) -> int:
        """Warm start: values of this very task from elsewhere. Gives how many were new."""
        if len(configurations) != len(values):
            raise InputError(f"{len(configurations)} configurations but {len(values)} values")
        rows = [self._checked(configuration) for configuration in configurations]
        with self._kept.turn():
            known = {(key(t.configuration), t.value) for t in self._kept.trials.told}
            new = [
                result(None, row, value, "")
                for row, value in zip(rows, values, strict=True)
                if (key(row), float(value)) not in known
            ]
            self._kept.append(new)
        return len(new)

    def enqueue(self, configurations: Sequence[Mapping[str, Any]]) -> None:
        """Ask for these first."""
        rows = [self._checked(configuration) for configuration in configurations]
        with self._kept.turn():
            self._kept.append([{"event": "queued", "configuration": row} for row in rows])

    def drop(self, configuration: Mapping[str, Any]) -> None:
        """This pending evaluation will not be done; it does not count towards the budget."""
        with self._kept.turn():
            waiting = self._kept.trials.waiting(plain(configuration))
            if waiting is None:
                raise InputError(f"{dict(configuration)} is not pending")
            self._kept.append([{"event": "dropped", "number": waiting.number}])

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
            "detached": self._plan.detached,
            **{f.name: getattr(self.settings, f.name) for f in fields(self.settings)},
        }
        return partial(type(self), self.prior, self._kept.place, **options), ()

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = plain(configuration)
        self.prior.space.encode([row], outside=self.settings.outside)
        rows = self.settings.rows
        if self.settings.candidates is not None and key(row) not in rows:
            raise InputError(f"{row} is not among the {len(rows)} candidates")
        return row
