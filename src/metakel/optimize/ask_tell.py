"""Ask and tell: how an optimizer changes its record, and what it concludes from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, wraps
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, check_count, check_generator, refuse_masked, single_blas_thread
from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.errors import InputError, ShapeError
from metakel.optimize.acquisition import (
    Acquisition,
    Feasibility,
    as_acquisition,
    constrained,
    without_nan,
)
from metakel.optimize.certificate import Best, Certificate, best_of, certificate_of, spread_of
from metakel.optimize.model import Model, Score, Search
from metakel.optimize.outcomes import Outcomes, outcomes
from metakel.optimize.record import (
    Record,
    Trial,
    as_noise_levels,
    as_outputs,
    as_values,
    feasible,
)
from metakel.optimize.regret import as_tolerance
from metakel.search import Domain, Finite, InContext, SearchSpace, StartPoints
from metakel.search.context import check_agreement, encode_contexts

LOGGER = logging.getLogger("metakel")
START_STREAM, ASK_STREAM = 0, 1


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A record and all that an optimizer concludes from it.

    Parameters
    ----------
    record : Record
    outcomes : Outcomes
        What the record means for a model.
    model : Model
        Given the outcomes; in the sign to be maximised.
    feasibility : Feasibility
        Given the constraints.
    domain, start, acquisition, sign
        Of the optimizer; ``sign`` is 1 to maximise, -1 to minimise.
    """

    record: Record
    outcomes: Outcomes
    model: Model
    feasibility: Feasibility
    domain: Domain
    start: StartPoints
    acquisition: str | Acquisition
    sign: float

    @single_blas_thread
    def after(self, record: Record) -> Snapshot:
        """Of another record; what both have in common is not computed again."""
        found, feasibility = outcomes(record, d0=self.domain.d0, sign=self.sign), self.feasibility
        if found.constraints or self.outcomes.constraints:
            feasibility = feasibility.given(found.constraints)
        model = self.model.given(found)
        rest = (self.domain, self.start, self.acquisition, self.sign)
        return Snapshot(record, found, model, feasibility, *rest)

    @cached_property
    def outlook(self) -> Model:
        """The model that decides: given the values, and runs without one as fantasies."""
        fantasies = self.outcomes.fantasies
        return self.model.with_fantasies(fantasies) if len(fantasies) else self.model

    def point(self, i: int) -> Any:
        """The i-th observed point, as users see it."""
        return copy(self.record.trials[self.outcomes.numbers[i]].point)

    @cached_property
    def best(self) -> Best:
        """The best observed point."""
        return best_of(self)

    @cached_property
    @single_blas_thread
    def certificate(self) -> Certificate:
        """How far the best point can be from the optimum."""
        return certificate_of(self)


Method = TypeVar("Method", bound=Callable[..., Any])


def _one_at_a_time(method: Method) -> Method:
    """For methods that change the record: threads that share an optimizer take turns."""

    @wraps(method)
    def alone(self: AskTell, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast("Method", alone)


class AskTell:
    """The part of an `Optimizer` that changes its record; parameters are those of `Optimizer`."""

    def __init__(
        self,
        model: Model,
        domain: Domain,
        *,
        rng: np.random.Generator,
        acquisition: str | Acquisition | None = None,
        maximize: bool = True,
        stop_at: float | str | None = None,
        context: Domain | None = None,
    ) -> None:
        check_generator(rng)
        _check_inputs(model, domain, context)
        acquisition = model.acquisition if acquisition is None else acquisition
        if context is not None:
            _check_contextual(acquisition, stop_at)
        self._turn = RLock()
        self.domain, self.contexts, self.maximize = domain, context, maximize
        self.stop_at = None if stop_at is None else as_tolerance(stop_at, spread_of(model))
        self.acquisition = acquisition
        self._acquire = as_acquisition(acquisition)
        self._start_up(model, int(rng.integers(2**63)))

    def _start_up(self, model: Model, seed: int) -> None:
        self._seed = seed
        self._accepted = 0
        self._start = self.domain.start_points(stream(seed, START_STREAM), model.landmarks)
        self._record = Record()
        points, start = self.domain, self._start
        if self.contexts is not None:
            some = self.contexts.start_points(stream(seed, START_STREAM)).X
            points = InContext(self.domain, self.contexts, some[0])
            spread = some[np.arange(len(start.X)) % len(some)]
            start = replace(start, X=np.concatenate([start.X, spread], axis=1))
        self._points = points  # as the model sees them, contexts included
        none = outcomes(self._record, d0=points.d0, sign=self._sign)
        ready, feasibility = model.prepare(start).given(none), Feasibility(start.X)
        rest = (points, start, self.acquisition, self._sign)
        self._last_snapshot = Snapshot(self._record, none, ready, feasibility, *rest)

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    @property
    def record(self) -> Record:
        """All trials: the whole memory. It may be replaced by another record of the same domain."""
        return self._record

    @record.setter
    def record(self, record: Record) -> None:
        self._last_snapshot = self._last_snapshot.after(record)
        self._record = record

    @property
    def _snapshot(self) -> Snapshot:
        """What follows from the record; worked out when something is asked that needs it."""
        if self._last_snapshot.record is not self._record:
            self._last_snapshot = self._last_snapshot.after(self._record)
        return self._last_snapshot

    @property
    def model(self) -> Model:
        """What is believed of the objective, given all values; in the sign to be maximised."""
        return self._snapshot.model

    @property
    def alarm(self) -> AlarmEvent | None:
        """The time at which the values contradicted what was assumed; None as long as they agree.

        It is logged as a warning, too.
        """
        return self._snapshot.model.alarm

    def accept_alarm(self) -> None:
        """Go on after an alarm that has stopped `ask` (``on_alarm="stop"``).

        The intervals are those of the wider assumption from then on. A start set from past tasks
        does not count any more, one that you have vouched for does.
        """
        if self.alarm is None:
            raise InputError("accept_alarm: there was no alarm")
        self._accepted = self.alarm.time

    def _check_alarm(self) -> None:
        alarm = self.alarm
        if self.model.stops and alarm is not None and alarm.time > self._accepted:
            raise Alarm(
                f"after {alarm.time} values: {alarm.reason}. Nothing is asked for until "
                "accept_alarm() is called"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which goes on by itself in the same way; locks are not shared."""
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turn=RLock())

    # Where points are

    def _place(self, context: Any, where: str) -> tuple[Domain, StartPoints]:
        """Where to look: the domain, or its points in a context."""
        if context is None and self.contexts is None:
            return self.domain, self._start
        named = self.contexts is None and isinstance(context, Mapping)
        if named and isinstance(self.domain, SearchSpace):
            held = self.domain.holding(context, where)
            return held, held.start_points(stream(self._seed, START_STREAM), self.model.landmarks)
        z = encode_contexts(self.contexts, context, 1, where)[0]
        if self.contexts is None:
            return self.domain, self._start
        place = InContext(self.domain, self.contexts, z)
        return place, place.start_from(self._start)

    def _encode(self, x: Any, context: Any, where: str) -> Array:
        """(n, d0) points in their contexts."""
        place = self.domain
        if self.contexts is None and isinstance(context, Mapping):
            check_agreement(x, context, where)
            place, context = self._place(context, where)[0], None
        X = place.encode(x, where)
        if self.contexts is None and context is None:
            return X
        return np.concatenate([X, encode_contexts(self.contexts, context, len(X), where)], axis=1)

    def _context_of(self, x: Array) -> Any:
        return None if self.contexts is None else self.contexts.decode(x[self.domain.d0 :])

    # Ask and tell

    @_one_at_a_time
    @single_blas_thread
    def ask(self, context: Any = None) -> Any:
        """The next point: an array (d0,), or a dict of named parameters. It is pending then.

        ``context`` is the context that it is for, where the optimizer decides by context: numbers,
        or a dict of named ones. On a space of named parameters, any of these may be the context: it
        holds them at the values that are given, for this question.
        """
        place, start = self._place(context, "ask")
        self._check_supply(1, place)
        point, x = self._suggest(place, start)
        self._record = self._record.with_pending(point, x, self._context_of(x))
        return copy(point)

    @_one_at_a_time
    @single_blas_thread
    def ask_batch(self, n: int, context: Any = None) -> list[Any]:
        """The next ``n`` points, to be run side by side; all are pending then."""
        check_count("ask_batch: n", n)
        self._check_supply(n, self._place(context, "ask_batch")[0])
        return [self.ask(context) for _ in range(n)]

    @_one_at_a_time
    def add_pending(self, x: Any, context: Any = None) -> None:
        """Points that are being run without having been asked for: the search keeps away."""
        X = self._encode(x, context, "add_pending")
        record = self._record
        for point, row in zip(points_of(x, X, self._points), X, strict=True):
            record = record.with_pending(point, row, self._context_of(row))
        self.record = record

    @single_blas_thread
    def suggest(self, context: Any = None) -> Any:
        """The point that `ask` would give, without noting it."""
        place, start = self._place(context, "suggest")
        self._check_supply(1, place)
        return copy(self._suggest(place, start)[0])

    def _check_supply(self, n: int, place: Domain) -> None:
        found = self._snapshot.outcomes
        if isinstance(place, Finite) and n <= len(place) - len(found.closed) - len(found.pending):
            return  # even if all of them are different
        supply = place.supply(found.closed, found.pending)
        if n > supply:
            raise InputError(f"ask: {n} asked for, but {supply:g} points are left to ask for")

    def _suggest(self, place: Domain, start: StartPoints) -> tuple[Any, Array]:
        self._check_alarm()
        found, outlook = self._snapshot.outcomes, self._snapshot.outlook
        draws = cache(partial(stream, self._seed, ASK_STREAM, len(self._record)))
        exclude = place.excluded(found.closed, found.pending)
        search = Search(place, start, draws, exclude, found.pending)
        x = outlook.choose(without_nan(self._score(), outlook), search)
        return place.decode(x), x

    def _score(self) -> Score:
        model, found = self._snapshot.outlook, self._snapshot.outcomes
        first = model.first_score()
        if first is not None and not found.constraints:
            return first
        counted = found.y[found.counts]
        if found.constraints:
            best = float(counted.max()) if len(counted) else None
            return constrained(model, best, self._snapshot.feasibility)
        values = counted if len(counted) else found.y
        return self._acquire(model, float(values.max()) if len(values) else None)

    @_one_at_a_time
    @single_blas_thread
    def tell(
        self,
        x: Any,
        value: Any,
        outputs: Mapping[str, Any] | None = None,
        *,
        noise_std: float | ArrayLike | None = None,
        constraints: Mapping[str, float] | None = None,
        context: Any = None,
    ) -> None:
        """Take in what was observed; on bad input nothing has changed.

        Parameters
        ----------
        x : point, or several
            Asked for or not. For a domain of one input, a vector is several points.
        value : float or None, or one for every point
            None, nan or a value beyond 1e50 stands for a failed run: it is no evidence, and the
            search keeps away from the point.
        outputs : dict, optional
            What else was measured, by the names of the ``limits``: a number, or one for every
            point. None or nan where it was not measured.
        noise_std : float, optional
            Noise level of these observations, if it is not that of the model.
        constraints : dict, optional
            Numbers by name. A run is feasible where none of them is above 0. An infeasible run
            updates the model but is never the best; later suggestions avoid that region.
        context : context, or one for every point
            The context of the run, where the optimizer decides by context.
        """
        refuse_masked("tell: the value", value)
        asked = self._asked(x, context)
        X = self._encode(x, context, "tell") if asked is None else asked.x[None]
        values = as_values(value, len(X))
        noise = as_noise_levels(noise_std, len(X))
        limits = dict(constraints or {})
        feasible(limits)
        if limits and self.contexts is not None:
            raise InputError("tell: constraints cannot be used together with contexts; use limits")
        measured = as_outputs(outputs, self._last_snapshot.model.output_names, len(X))
        if not len(X):
            return
        points = points_of(x, X, self._points)
        results, waiting, number = [], list(self._record.pending), len(self._record)
        for point, row, found, level, other in zip(points, X, values, noise, measured, strict=True):
            trial = asked or self._take(waiting, row)
            if trial is None:
                trial = Trial(number, point, row, context=self._context_of(row))
                number += 1
            results.append(trial.with_result(found, level, limits, other))
        before = self._last_snapshot.model.alarm
        self.record = self._record.with_results(results)
        alarm = self.alarm
        if alarm is not None and (before is None or before.time != alarm.time):
            if self.model.raised is not None:
                raise self.model.raised
            LOGGER.warning("alarm at t=%d: %s", alarm.time, alarm.reason)

    def _asked(self, x: Any, context: Any) -> Trial | None:
        """The pending trial whose configuration this is, as `ask` gave it: it need not be read."""
        if type(x) is not dict or context is not None or self.contexts is not None:
            return None
        kinds = [type(value) for value in x.values()]  # 1 equals True

        def alike(point: Any) -> bool:
            named = isinstance(point, dict)
            return named and [type(v) for v in point.values()] == kinds and bool(point == x)

        return next((trial for trial in self._record.pending if alike(trial.point)), None)

    def _take(self, waiting: list[Trial], x: Array) -> Trial | None:
        """The first of the waiting trials at this point, removed from them."""
        for i, trial in enumerate(waiting):
            if self._points.same(trial.x[None], x[None])[0, 0]:
                return waiting.pop(i)
        return None

    @_one_at_a_time
    def forget(self, x: Any, context: Any = None) -> None:
        """Points that were asked for will not be run: they are pending no more."""
        waiting, numbers = list(self._record.pending), []
        for row in self._encode(x, context, "forget"):
            trial = self._take(waiting, row)
            if trial is None:
                raise InputError(f"forget: the point {self._points.decode(row)} is not pending")
            numbers.append(trial.number)
        self.record = self._record.with_dropped(numbers)


def _check_inputs(model: Model, domain: Domain, context: Domain | None) -> None:
    given = {"domain": domain} if context is None else {"domain": domain, "context": context}
    for name, place in given.items():
        if not isinstance(place, Domain):
            raise InputError(
                f"{name} is a {type(place).__name__}; use mk.box, mk.grid or mk.candidates, or a "
                "Space"
            )
    found = sum(place.d0 for place in given.values())
    if model.d0 not in (None, found):
        have = f"the domain has {domain.d0}"
        if context is not None:
            have += f" and a context {context.d0}"
        raise ShapeError(f"the model takes {model.d0} inputs but {have}")


def _check_contextual(acquisition: str | Acquisition, stop_at: float | str | None) -> None:
    if acquisition == "ei":
        raise InputError(
            "acquisition is 'ei', but with contexts there is no one best value to improve on; "
            "expected 'ucb', or a function"
        )
    if stop_at is not None:
        raise InputError(
            f"stop_at is {stop_at!r}, but with contexts there is no one certificate to stop at; "
            "ask certificate_for(context)"
        )


def stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of their own for every purpose and step."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def points_of(x: Any, X: Array, domain: Domain) -> list[Any]:
    """Points as users see them: dicts as they were given, arrays as the domain has them."""
    if isinstance(x, Mapping):
        return [dict(x)]
    if isinstance(x, Sequence) and len(x) and isinstance(x[0], Mapping):
        return [dict(row) for row in x]
    return [domain.decode(row) for row in X]
