"""Tuner: named parameters in, values out, everything in a journal."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from metakel._arrays import Array
from metakel.confidence import AlarmEvent
from metakel.errors import InputError
from metakel.learn import LearnedKernel
from metakel.optimize import Best, Certificate, Optimizer, Reasons
from metakel.priors import Prior
from metakel.space import Space
from metakel.tuner.events import Configuration, as_value, key, plain, result
from metakel.tuner.lock import this_process
from metakel.tuner.options import Candidates, RunLimits, RunOptions, TuningSource
from metakel.tuner.session import Asking
from metakel.tuner.show import draw_run, tuner_card
from metakel.tuner.trials import JournalTrial, Trials

LOG = logging.getLogger("metakel")
DELTA, LIMITED_DELTA = 0.2, 0.1  # defaults, without and with limits


class Tuner(Asking):
    """Ask for the next configuration, tell its value.

    Whatever is asked and told goes to the journal before the call returns, and what is asked
    depends on the journal alone: a new Tuner on the same journal goes on where the last one
    stopped. An evaluation whose process died is asked again. Several processes may share a journal.

    Parameters
    ----------
    prior : Prior or LearnedKernel
        It knows the parameters, the output, and whether to maximise or to minimise. A kernel must
        have been learned from a history with named parameters.
    journal : path, optional
        Created where there is none; without it, memory is all there is.
    budget : int, optional
        At most how many evaluations to ask for, failed ones included, unless they are taken back
        (`drop_failed`).
    stop_at : float or str, optional
        Done as soon as the certificate is at most this, in units of the output; text such as "1%"
        is a share of the usual spread of a task. The attribute ``tolerance`` has it as a number.
    seed, delta, fixed, extrapolate, candidates, task, command
        See `RunOptions`; a journal keeps them. Candidates are a frame or a sequence of dicts. A
        journal that was begun with another task or command is refused. The default delta is 0.2,
        and 0.1 with limits.
    limits : dict of pairs, optional
        Smallest and largest allowed value by the names of outputs, as in
        ``{"temperature": (None, 90)}``; the objective may be among them. Only configurations are
        asked for that respect all limits, with probability 1 - delta for the whole run. This needs
        a prior with records of these outputs (`learn_outputs`); the search then decides by
        confidence bounds, not by the mixture of the prior.
    start : sequence of dicts, optional
        Configurations that you know to respect the limits. By default past tasks vouch for some.
    adopt_after : float, optional
        Seconds after which an evaluation of a process that cannot be looked up, as in another
        container or on another machine, is asked again; longer than any evaluation takes. By
        default it waits for its result for ever.
    manual : bool
        Whether evaluations outlive this process, as when a person does them; they are then never
        asked again by themselves.
    norm_bound : float, optional
        For a learned kernel: B of `ConfidenceSequence`.
    """

    def __init__(
        self,
        prior: Prior | LearnedKernel,
        journal: str | Path | None = None,
        *,
        budget: int | None = None,
        stop_at: float | str | None = None,
        seed: int = 0,
        delta: float | None = None,
        fixed: Mapping[str, Any] | None = None,
        extrapolate: bool = False,
        candidates: Any = None,
        adopt_after: float | None = None,
        manual: bool = False,
        norm_bound: float | None = None,
        task: str = "",
        command: Sequence[str] = (),
        limits: Mapping[str, Sequence[float | None]] | None = None,
        start: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        source = TuningSource(prior, norm_bound)
        listed = None if candidates is None else Candidates.of(candidates, source.space)
        allowed = RunLimits.of(limits, start)
        if delta is None:
            delta = LIMITED_DELTA if allowed else DELTA
        options = RunOptions(
            seed, delta, plain(fixed or {}), extrapolate, listed, task, tuple(command), allowed
        )
        self.prior, self._wondered = prior, False
        super().__init__(
            source,
            options,
            journal,
            budget=budget,
            stop_at=stop_at,
            adopt_after=adopt_after,
            manual=manual,
        )

    # What it knows

    @property
    def trials(self) -> Trials:
        """Everything the journal says, by whichever process."""
        return self._latest()

    @property
    def pending(self) -> tuple[Configuration, ...]:
        """Asked, and without a result."""
        return tuple(trial.configuration for trial in self.trials.pending)

    @property
    def space(self) -> Space:
        """Parameters and their recorded ranges."""
        return self._source.space

    @property
    def output(self) -> str:
        """What is measured."""
        return self._source.output

    @property
    def optimizer(self) -> Optimizer:
        """What decides, given everything that the journal says."""
        self._latest()
        return self._optimizer

    @property
    def best(self) -> Best:
        """The best observed configuration."""
        return self.optimizer.best

    @property
    def alarm(self) -> AlarmEvent | None:
        """Set once the values contradict the history; the certificate ends with it."""
        return self.trials.alarm

    @property
    def trust(self) -> float:
        """Posterior weight of the history against a cold start."""
        return self.optimizer.trust

    @property
    def certificate(self) -> Certificate:
        """How much better than the best configuration anything can be; see `Certificate`."""
        return self.optimizer.certificate

    def predict(self, configurations: Any) -> tuple[Array, Array]:
        """(n,) means and standard deviations, by the model that decides next."""
        return self.optimizer.predict(configurations)

    def explain(
        self, configuration: Mapping[str, Any], context: Mapping[str, Any] | None = None
    ) -> Reasons:
        """Why to try a configuration, for example one that was asked for; see `Reasons`."""
        return self.optimizer.explain(configuration, context)

    def confidence(self, configurations: Any) -> tuple[Array, Array]:
        """(n,) lower and upper confidence bounds, for all configurations and times at once."""
        return self.optimizer.confidence(configurations)

    def __repr__(self) -> str:
        trials = self.trials
        best = f", best {self.best.value:.4g}" if trials.complete else ""
        alarm = ", ALARM" if trials.alarm else ""
        counts = f"{len(trials.complete)} values, {len(trials.pending)} pending"
        return f"Tuner({self._source.output}: {counts}{best}{alarm})"

    def _repr_html_(self) -> str:
        return tuner_card(self)

    def plot(self, ax: Any = None) -> Any:
        """Every value and the best so far, on matplotlib axes, which are returned."""
        return draw_run(self, ax)

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
    ) -> None:
        """The value of a configuration, asked or not; safe on disk when this returns.

        ``outputs`` are what else was measured, by name; with limits, one for every limited output
        (None where it was not measured).

        A value that is not finite, or beyond 1e50, counts as failed. Where a suggestion was run
        with other settings, rounded ones say, tell those ``instead_of`` the suggestion (or its
        number): it is then done, and counts once.
        """
        if value is None and not failed:
            raise InputError("tell: no value; say failed=True if there is none")
        checked = self._checked(configuration)
        if not failed:
            self._check_outputs(outputs)
        with self._turn():
            waiting = self._settles(checked, instead_of)
            number = None if waiting is None else waiting.number
            event = result(number, checked, None if failed else value, reason, outputs)
            self._append([event])

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
        if value is None and not failed:
            raise InputError("correct: no value; say failed=True if there is none")
        if not failed:
            self._check_outputs(outputs)
        with self._turn():
            trials = self._trials
            if isinstance(which, Mapping):
                which = trials.done_as(which, self._source.space).number
            right = None if failed else value
            self._append([trials.correction(which, right, reason, outputs)])

    def observe(
        self,
        configurations: Sequence[Mapping[str, Any]],
        values: Sequence[float],
        outputs: Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Warm start: values of this very task from elsewhere. Gives how many were new.

        ``outputs`` has what else was measured, for every configuration.
        """
        if len(configurations) != len(values):
            raise InputError(f"{len(configurations)} configurations but {len(values)} values")
        rows = [self._checked(configuration) for configuration in configurations]
        others = [{}] * len(rows) if outputs is None else [dict(row) for row in outputs]
        if len(others) != len(rows):
            raise InputError(f"{len(rows)} configurations but {len(others)} rows of outputs")
        for row in others:
            self._check_outputs(row)
        found = [
            result(None, row, as_value(value), "", other)
            for row, value, other in zip(rows, values, others, strict=True)
        ]
        with self._turn():
            trials = self._trials
            done = [*trials.complete, *trials.failed]
            known = {(key(t.configuration, self._source.space), t.value) for t in done}
            new = [e for e in found if (key(e["configuration"]), e.get("value")) not in known]
            self._append(new)
        return len(new)

    def enqueue(self, configurations: Sequence[Mapping[str, Any]]) -> None:
        """Ask for these first; not in a run with limits, which asks for safe ones only."""
        if self.options.limits:
            raise InputError(
                "enqueue in a run with limits: a configuration that is queued may be unsafe; "
                "expected start=[...] for those that you vouch for"
            )
        rows = [self._checked(configuration) for configuration in configurations]
        with self._turn():
            self._append([{"event": "queued", "configuration": row} for row in rows])

    def drop(self, which: Mapping[str, Any] | int) -> None:
        """This pending evaluation will not be done; it does not count towards the budget.

        By its configuration or its number. A failed one is taken back by its number: it is no bad
        place, and does not count either.
        """
        with self._turn():
            trials = self._trials
            if isinstance(which, Mapping):
                waiting = trials.waiting(which, self._source.space)
                if waiting is None:
                    raise InputError(f"{dict(which)} is not pending")
                which = waiting.number
            self._append([trials.drop(which)])

    def drop_failed(self) -> int:
        """Take all failures back, as when the program was at fault; gives how many."""
        with self._turn():
            trials = self._trials
            failed = [trial.number for trial in trials.failed]
            self._append([trials.drop(number) for number in failed])
        return len(failed)

    def accept_alarm(self) -> None:
        """Go on after an alarm that has stopped a run with limits (`Optimizer.accept_alarm`)."""
        with self._turn():
            alarm = self._optimizer.alarm
            if alarm is None:
                raise InputError("accept_alarm: there was no alarm")
            self._append([{"event": "alarm accepted", "told": alarm.time}])

    # How it is kept

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, is a Tuner on the same journal."""
        if self._journal.place is None:
            raise TypeError(
                "this Tuner has no journal, so its memory cannot be copied or pickled; "
                "expected a Tuner with a journal, which its copies share: Tuner(prior, path)"
            )
        options = {
            "budget": self.budget,
            "stop_at": self.stop_at,
            "adopt_after": self.adopt_after,
            "manual": self._manual,
            "norm_bound": self._source.norm_bound,
            **{f.name: getattr(self.options, f.name) for f in fields(self.options)},
        }
        if self.options.candidates is not None:
            options["candidates"] = self.options.candidates.given
        allowed = self.options.limits
        options["limits"] = {name: r.to_list() for name, r in allowed.ranges.items()}
        options["start"] = allowed.start
        return partial(type(self), self.prior, self._journal.place, **options), ()

    def _checked(self, configuration: Mapping[str, Any]) -> Configuration:
        row = self._source.space.normalise(configuration)
        self._source.space.encode([row], extrapolate=self.options.extrapolate)
        if self.options.candidates is not None:
            self.options.candidates.as_listed(row)
        return row

    def _check_outputs(self, outputs: Mapping[str, Any] | None) -> None:
        expected = self._optimizer.model.output_names
        lacking = [name for name in expected if name not in (outputs or {})]
        if lacking:
            raise InputError(
                f"no value of {', '.join(map(repr, lacking))}, which is limited; expected one in "
                "outputs, or None where it was not measured"
            )

    def _settles(
        self, row: Configuration, instead_of: Mapping[str, Any] | int | None
    ) -> JournalTrial | None:
        """The pending trial that a result is of."""
        trials, space = self._trials, self._source.space
        if instead_of is None:
            found = trials.waiting(row, space, this_process())
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
        mine = [t for t in self._trials.pending if t.owner == this_process()]
        if mine and not self._wondered:
            self._wondered = True
            LOG.warning(
                "%s was not asked for: trial %d stays pending. If this was run instead of "
                "it, say so: tell(..., instead_of=%d), or the configuration that was asked",
                row,
                mine[0].number,
                mine[0].number,
            )
