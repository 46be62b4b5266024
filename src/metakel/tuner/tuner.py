"""Tuner: named parameters in, values out, everything in a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.prior import Prior
from metakel.tuner.certify import Certificate, Watch
from metakel.tuner.journal import Journal
from metakel.tuner.owner import is_dead, this_process
from metakel.tuner.propose import propose
from metakel.tuner.record import result
from metakel.tuner.session import Session
from metakel.tuner.settings import Settings
from metakel.tuner.trials import AlarmRaised, Configuration, Trial, Trials, key, plain


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
        See `Settings`; a journal keeps them.
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
        candidates: Iterable[Mapping[str, Any]] | None = None,
        detached: bool = False,
    ) -> None:
        if budget is not None and budget < 1:
            raise InputError(f"budget is {budget}; expected at least one evaluation")
        if stop_at is not None and not stop_at > 0:
            raise InputError(f"stop_at is {stop_at}; expected a number > 0")
        rows = None if candidates is None else tuple(plain(row) for row in candidates)
        self.prior, self.budget, self.stop_at = prior, budget, stop_at
        self.settings = Settings(seed, delta, plain(fixed or {}), outside, rows)
        self._kept = Session(prior, self.settings, Journal(journal))
        if stop_at is not None and self._kept.watch.no_band:
            raise InputError(f"stop_at needs a certificate; there is none: {self.watch.no_band}")
        self._owner = None if detached else this_process
        self._rows = None if rows is None else self.settings.rows.keys()

    # What it knows

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
        trials = self.trials
        if self.stop_at is not None and self._kept.watch.certificate.regret <= self.stop_at:
            return f"no configuration can be better by more than {self.stop_at:g}"
        if self.budget is not None and trials.spent >= self.budget and not self._orphans:
            return f"the budget of {self.budget} evaluations is spent"
        if self._rows is not None and not self._rows - {key(t.configuration) for t in trials.all}:
            return f"all {len(self._rows)} candidates were asked"
        return ""

    def __repr__(self) -> str:
        trials = self.trials
        best = f", best {self.best.value:.4g}" if trials.told else ""
        alarm = ", ALARM" if trials.alarm else ""
        counts = f"{len(trials.told)} told, {len(trials.pending)} pending"
        return f"Tuner({self.prior.facts.output}: {counts}{best}{alarm})"

    # Ask and tell

    def ask(self) -> Configuration:
        """The configuration to try next; pending from now on."""
        with self._kept.turn():
            return self._ask()

    def ask_batch(self, n: int) -> list[Configuration]:
        """The next ``n`` configurations, to be evaluated side by side."""
        with self._kept.turn():
            return [self._ask() for _ in range(n)]

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

        A value that is not finite counts as failed.
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

    def _ask(self) -> Configuration:
        by = None if self._owner is None else self._owner()
        if self._orphans and by is not None:
            trial = self._orphans[0]
            self._kept.append([{"event": "adopted", "number": trial.number, "by": by}])
            return dict(trial.configuration)
        if self.done:
            raise Finished(self.done)
        queued = self._kept.trials.queued[:1]
        chosen = queued[0] if queued else propose(self.prior, self._kept.trials, self.settings)
        self._kept.append(
            [{"event": "asked", "configuration": chosen, "by": by, "queued": bool(queued)}]
        )
        return dict(chosen)

    @property
    def _orphans(self) -> list[Trial]:
        """Pending evaluations whose process is gone."""
        if self._owner is None:
            return []
        return [trial for trial in self._kept.trials.pending if is_dead(trial.owner)]

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = plain(configuration)
        self.prior.space.encode([row], outside=self.settings.outside)
        if self._rows is not None and key(row) not in self._rows:
            raise InputError(f"{row} is not among the {len(self._rows)} candidates")
        return row
