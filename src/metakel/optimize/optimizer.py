"""The optimizer: a record, what follows from it, the next point, and what it answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import (
    Array,
    as_generator,
    check_count,
    lock_of,
    refuse_masked,
    shown,
    single_blas_thread,
)
from metakel._files import Format, Functions, decode, encode, write_file
from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.curves import Curve, CurveModel, Decision, as_curve
from metakel.errors import InputError, ShapeError
from metakel.optimize.acquisition import Acquisition, Feasibility, as_acquisition, without_nan
from metakel.optimize.certificate import Best, Certificate, as_tolerance, describe
from metakel.optimize.explain import Reasons, explain
from metakel.optimize.model import Model, Search
from metakel.optimize.outcomes import OutputScale, outcomes
from metakel.optimize.record import Record, Trial, as_noise_levels, as_outputs, as_values, feasible
from metakel.optimize.state import State
from metakel.search import Domain, StartPoints
from metakel.search.named import as_domain

LOGGER = logging.getLogger("metakel")
FORMAT = Format("metakel.Optimizer", version=1, noun="optimizer")
START_STREAM, ASK_STREAM, BEST_STREAM = 0, 1, 2
Method = TypeVar("Method", bound=Callable[..., Any])


def _one_at_a_time(method: Method) -> Method:
    """For methods that change the record: threads that share an optimizer take turns."""

    @wraps(method)
    def alone(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast("Method", alone)


class Optimizer:
    """Ask where to look next, tell what was observed there.

    The next point maximises an acquisition of the model, given the record. Points that were asked
    for and have no value yet are pending: the search keeps away from them. Results may come in any
    order, or never (`drop`). The same record gives the same next point, whatever the order in which
    it came about, and after a restart too. Threads may share an optimizer.

    `mk.GPUCB` and `Prior.optimizer` make optimizers; see there.

    On a space of named parameters, ``fixed={...}`` holds some of them at a value for one question:
    the weather of today, say, which is given and not chosen (``docs/guide/decide.md``).

    Parameters
    ----------
    model : Model
        Surrogate model of the objective.
    domain : Domain
        Where to look.
    rng, seed : Generator or int, optional
        Draws the start of the search and breaks ties; used once, here. By default always the same.
    acquisition : str or callable, optional
        "ucb", "ei", "ts" (Thompson sampling, of a prior), or a function of your own
        (`metakel.optimize.acquisition`). By default that of
        the model: "ei" for a cold start, "ucb" for all others.
    minimize : bool
        True to minimise; everything is reported in the sign of the values.
    log_floor : float
        If it is positive, the model is one of logarithms of the output, and smaller values count as
        this one to it. Everything is told and reported in units of the output.
    stop_at : float or str, optional
        `done` is True once the best point is within this of the optimum by the rule for stopping
        (`metakel.optimize.certificate.Stopping`), in units of the output; text such as "1%" is a
        share of the usual spread of a task.
    curves : CurveModel, optional
        How runs went on in the past; `should_stop` needs it.
    """

    def __init__(
        self,
        model: Model,
        domain: Domain,
        *,
        rng: np.random.Generator | None = None,
        seed: int | None = None,
        acquisition: str | Acquisition | None = None,
        minimize: bool = False,
        log_floor: float = 0.0,
        stop_at: float | str | None = None,
        curves: CurveModel | None = None,
    ) -> None:
        domain = as_domain(domain)
        if model.d0 not in (None, domain.d0):
            raise ShapeError(f"the model takes {model.d0} inputs but the domain has {domain.d0}")
        self._turn = lock_of(self, "_turn")
        self.domain, self.scale, self.stop_at = domain, OutputScale(minimize, log_floor), stop_at
        if stop_at is not None:
            found = as_tolerance(stop_at, model.spread)
            self.stop_at = stop_at if isinstance(stop_at, str) else found
        if curves is not None:
            curves.check_goal(minimize, "the optimizer")
        self.curves = curves
        self.acquisition = model.acquisition if acquisition is None else acquisition
        as_acquisition(self.acquisition)
        self._accepted = 0
        self._begin(model, int(as_generator(rng, seed).integers(2**63)))
        if stop_at is not None and (why := self.certificate().outlook(stop_at)):
            LOGGER.warning("stop_at=%s will not stop this run: %s", stop_at, why)

    def _begin(self, model: Model, seed: int) -> None:
        """With an empty record."""
        domain, self._seed = self.domain, seed
        start = domain.start_points(stream(seed, START_STREAM), model.landmarks)
        none = outcomes(Record(), d0=domain.d0, scale=self.scale)
        ready, feasibility = model.prepare(start).given(none), Feasibility(start.X)
        rest = (domain, start, self.acquisition, self.scale)
        self._last = State(Record(), none, ready, feasibility, *rest)
        self._record = self._last.record

    @property
    def minimize(self) -> bool:
        """Whether smaller is better."""
        return self.scale.minimize

    @property
    def record(self) -> Record:
        """All trials: the whole memory. It may be replaced by another record of the same domain."""
        return self._record

    @record.setter
    def record(self, record: Record) -> None:
        self._last = self._last.after(record)
        self._record = record

    @property
    def state(self) -> State:
        """What follows from the record; worked out when something is asked that needs it."""
        if self._last.record is not self._record:
            self._last = self._last.after(self._record)
        return self._last

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which goes on by itself in the same way; locks are not shared."""
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turn=lock_of(self, "_turn"))

    def _place(self, fixed: Mapping[str, Any] | None, where: str) -> tuple[Domain, StartPoints]:
        """Where to look: the domain, or the part of it in which some parameters are held."""
        if not isinstance(fixed, Mapping | None):
            raise InputError(f"{where}: fixed is {shown(fixed)}; expected a dict of values by name")
        if not fixed:
            return self.domain, self._last.start
        place = self.domain.holding(fixed, where)
        return place, place.start_points(stream(self._seed, START_STREAM), self.model.landmarks)

    # Ask

    @_one_at_a_time
    @single_blas_thread
    def ask(self, fixed: Mapping[str, Any] | None = None) -> Any:
        """The next point: an array (d0,), or a dict of named parameters. It is pending then.

        ``fixed`` holds named parameters at the values that are given, for this question.
        """
        point, x = self._suggest(fixed, "ask")
        self._record = self._record.with_pending(point, x)
        return copy(point)

    @_one_at_a_time
    @single_blas_thread
    def ask_batch(self, n: int, fixed: Mapping[str, Any] | None = None) -> list[Any]:
        """The next ``n`` points, to be run side by side; all are pending then."""
        check_count("ask_batch: n", n)
        self._check_supply(n, self._place(fixed, "ask_batch")[0])
        return [self.ask(fixed) for _ in range(n)]

    @single_blas_thread
    def peek(self, fixed: Mapping[str, Any] | None = None) -> Any:
        """The point that `ask` would give, without noting it."""
        return copy(self._suggest(fixed, "peek")[0])

    def _suggest(self, fixed: Mapping[str, Any] | None, where: str) -> tuple[Any, Array]:
        place, start = self._place(fixed, where)
        self._check_supply(1, place)
        self._check_alarm()
        state, found = self.state, self.state.outcomes
        draws = cache(partial(stream, self._seed, ASK_STREAM, len(self._record)))
        exclude = place.excluded(found.closed, found.pending)
        search = Search(place, start, draws, exclude, found.pending)
        for first in state.model.opening(np.concatenate([found.closed, found.pending])):
            if place.contains(first[None])[0]:
                return place.decode(first), first
        x = state.deciding.choose(without_nan(state.score(), state.deciding), search)
        return place.decode(x), x

    def _check_supply(self, n: int, place: Domain) -> None:
        found = self.state.outcomes
        if place.points is not None and n <= len(place.points) - len(found.closed) - len(
            found.pending
        ):
            return  # even if all of them are different
        supply = place.supply(found.closed, found.pending)
        if n > supply:
            raise InputError(f"ask: {n} asked for, but {supply:g} points are left to ask for")

    def _check_alarm(self) -> None:
        alarm = self.alarm
        if self.model.stops and alarm is not None and alarm.time > self._accepted:
            raise Alarm(
                f"after {alarm.time} values: {alarm.reason}. Nothing is asked for until "
                "accept_alarm() is called"
            )

    # Tell

    @_one_at_a_time
    @single_blas_thread
    def tell(
        self,
        x: Any,
        value: Any = None,
        outputs: Mapping[str, Any] | None = None,
        *,
        failed: bool = False,
        noise_std: float | ArrayLike | None = None,
        constraints: Mapping[str, float] | None = None,
        curve: Curve | None = None,
    ) -> None:
        """Take in what was observed; on bad input nothing has changed.

        Parameters
        ----------
        x : point, or several
            Asked for or not. For a domain of one input, a vector is several points. Configurations
            for a prior may have been run with numbers beyond their range, or with new choices.
        value : float, or one for every point
            nan, or a value beyond 1e50, stands for a failed run; among several values None does.
        outputs : dict, optional
            What else was measured, by name: a number, or one for every point. None or nan where it
            was not measured.
        failed : bool
            The run gave no value, and never will: it is no evidence, and the search keeps away from
            the point.
        noise_std : float, optional
            Noise level of these observations, if it is not that of the model.
        constraints : dict, optional
            Numbers by name. A run is feasible where none of them is above 0. An infeasible run
            updates the model but is never the best; later suggestions avoid that region.
        curve : dict, optional
            Values of one run by step, from 1. Without a value, the run was ended early
            (`should_stop`): it is no evidence, and the search keeps away from the point.
        """
        refuse_masked("tell: the value", value)
        steps = {} if curve is None else as_curve(curve)
        stopped = bool(steps) and value is None and not failed
        if failed != (value is None) and not stopped:
            given = "a value and failed=True" if failed else "no value"
            raise InputError(
                f"tell: there is {given}; expected a number, failed=True, or the curve of a run "
                "that was ended early"
            )
        asked = self._asked(x)
        X = self._placed(x, "tell") if asked is None else asked.x[None]
        if steps and len(X) != 1:
            raise InputError(f"tell: a curve and {len(X)} points; expected one point")
        values = [None] * len(X) if failed or stopped else as_values(value, len(X))
        self.scale.refuse_negative([found for found in values if found is not None])
        noise = as_noise_levels(noise_std, len(X))
        feasible(constraints or {})
        bounds = {name: float(value) for name, value in (constraints or {}).items()}
        measured = as_outputs(outputs, self._last.model.output_names, len(X))
        if not len(X):
            return
        points = points_of(x, X, self.domain)
        results, waiting, number = [], list(self._record.pending), len(self._record)
        for point, row, found, level, other in zip(points, X, values, noise, measured, strict=True):
            trial = asked or self._take(waiting, row)
            if trial is None:
                trial = Trial(number, point, row)
                number += 1
            done = trial.with_result(found, level, bounds, other)
            results.append(done.with_curve(steps, stopped=stopped) if steps else done)
        before = self._last.alarm
        self.record = self._record.with_results(results)
        alarm = self.alarm
        if alarm is not None and (before is None or before.time != alarm.time):
            if self.model.raised is not None:
                raise self.model.raised
            LOGGER.warning("alarm at t=%d: %s", alarm.time, alarm.reason)

    def should_stop(self, x: Any, curve: Curve) -> Decision:
        """Whether a pending run would not become the best, by its values by step so far.

        If so, end it, and tell its curve without a value. A whole run makes as many steps as the
        longest one that was begun before it.
        """
        if self.curves is None:
            raise InputError(
                "should_stop: it is not known how runs go on; expected an optimizer with a model "
                "of curves: prior.optimizer(curves=CurveModel.learn(...)), or that of the library"
            )
        trial = self._asked(x)
        if trial is None:
            row = self._placed(x, "should_stop")[0]
            trial = self._take(list(self._record.pending), row)
        if trial is None:
            raise InputError(f"should_stop: {x} is not pending; expected what was asked for")
        earlier = Record(self._record.trials[: trial.number]).curves
        whole = max((max(each) for each in earlier), default=None)
        return self.curves.decide(as_curve(curve), earlier, whole)

    def _asked(self, x: Any) -> Trial | None:
        """The pending trial whose configuration this is, as `ask` gave it: it need not be read."""
        if type(x) is not dict:
            return None
        kinds = [type(value) for value in x.values()]  # 1 equals True

        def alike(point: Any) -> bool:
            named = isinstance(point, dict)
            return named and [type(v) for v in point.values()] == kinds and bool(point == x)

        return next((trial for trial in self._record.pending if alike(trial.point)), None)

    def _take(self, waiting: list[Trial], x: Array) -> Trial | None:
        """The first of the waiting trials at this point, removed from them."""
        for i, trial in enumerate(waiting):
            if self.domain.same(trial.x[None], x[None])[0, 0]:
                return waiting.pop(i)
        return None

    @_one_at_a_time
    def add_pending(self, x: Any) -> None:
        """Points that are being run without having been asked for: the search keeps away."""
        X, record = self._placed(x, "add_pending"), self._record
        for point, row in zip(points_of(x, X, self.domain), X, strict=True):
            record = record.with_pending(point, row)
        self.record = record

    @_one_at_a_time
    def drop(self, x: Any) -> None:
        """Points that were asked for will not be run: they are pending no more."""
        waiting, numbers = list(self._record.pending), []
        for row in self._placed(x, "drop"):
            trial = self._take(waiting, row)
            if trial is None:
                raise InputError(f"drop: the point {self.domain.decode(row)} is not pending")
            numbers.append(trial.number)
        self.record = self._record.with_dropped(numbers)

    def accept_alarm(self) -> None:
        """Go on after an alarm that has stopped `ask`.

        The intervals are those of the wider assumption from then on. A start set from past tasks
        does not count any more, one that you have vouched for does.
        """
        if self.alarm is None:
            raise InputError("accept_alarm: there was no alarm")
        self._accepted = self.alarm.time

    # What it answers

    @property
    def t(self) -> int:
        """Number of values."""
        return self.state.outcomes.t

    @property
    def X(self) -> Array:
        """(t, d0) where values were observed, as the model sees it."""
        return self.state.outcomes.X

    @property
    def y(self) -> Array:
        """(t,) the observed values."""
        state = self.state
        return np.array([state.value(i) for i in range(state.outcomes.t)], dtype=np.float64)

    @property
    def pending(self) -> list[Any]:
        """Points that were asked for, and neither observed nor dropped."""
        return [trial.point for trial in self._record.pending]

    @property
    def model(self) -> Model:
        """Surrogate model of the objective given all values, in the sign to be maximised."""
        return self.state.model

    @property
    def trust(self) -> float:
        """Posterior weight of what was learned from the past, given the values so far."""
        return self.model.transfer_weight

    @property
    def alarm(self) -> AlarmEvent | None:
        """The time at which the values contradicted what was assumed; None as long as they agree.

        It is logged as a warning, too.
        """
        return self.state.alarm

    def allowed(self, x: Any) -> NDArray[np.bool_]:
        """(n,) which of the points ``x`` may be asked for: all, but for `metakel.safe`."""
        return self.model.allowed(self.domain.locate(x, "allowed"))

    @single_blas_thread
    def predict(self, x: Any) -> tuple[Array, Array]:
        """(n,) means and standard deviations, by the model that decides next.

        With pending or failed runs it takes them as if they had shown less than expected, so that
        the search keeps away from them: its means are lower then, and its deviations smaller.
        """
        mean, sd = self.state.deciding.predict(self.domain.locate(x, "predict"))
        return self.scale.from_model(mean), self.scale.deviation(mean, sd)

    @single_blas_thread
    def confidence(self, x: Any = None) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of the objective, for all points and times at once.

        By default at the points of a finite domain. What they decide is right at all times: a level
        set, and which points may be optimal (Proposition 27 of ``docs/theory.md``).
        """
        model = self.model
        if x is None and self.domain.points is None:
            raise InputError(
                f"confidence: the domain {self.domain!r} has no finite number of points; give some,"
                f" as in confidence(Z) with Z of shape (n, {self.domain.d0})"
            )
        if model.no_bounds:
            raise InputError(f"there is no confidence band: {model.no_bounds}")
        if x is None:
            lower, upper = model.bounds_within(self._last.start.X)
        else:
            lower, upper = model.bounds(self.domain.locate(x, "confidence"))
        return self.scale.interval(lower, upper)

    @single_blas_thread
    def explain(self, x: Any, fixed: Mapping[str, Any] | None = None) -> Reasons:
        """Why to try the point ``x``: what is expected, which runs speak for it, what is safer.

        A pending point is explained as it was when it was asked for. With ``fixed`` parameters, it
        is compared with other choices that have the same.
        """
        place, start = self._place(fixed, "explain")
        X = self.domain.locate(x, "explain")
        if len(X) != 1:
            raise InputError(f"explain: {len(X)} points; expected one")
        if place is not self.domain and not place.contains(X)[0]:
            raise InputError(f"explain: {x!r} does not have {dict(fixed or {})}")
        return explain(self.state, points_of(x, X, place)[0], X[0], place, start)

    @property
    def output_range(self) -> tuple[float, float]:
        """Between which all values lie, as far as it is known; `predict` may go beyond."""
        low, high = map(float, self.scale.interval(*self.model.output_range))
        return low, high

    @single_blas_thread
    def best(self, fixed: Mapping[str, Any] | None = None) -> Best:
        """The best observed point; see `Best` for what is best to which model.

        With ``fixed`` parameters: what to choose beside them, the point with the largest lower
        bound, or mean where nothing bounds it. It need not have been observed.
        """
        if not fixed:
            return self.state.best
        place, x, lower, upper, _ = self._surest(fixed, "best")
        mean = float(self.model.predict(x[None])[0][0])
        low, high = map(float, self.scale.interval(lower, upper))
        return Best(place.decode(x), self.scale.value(min(max(mean, lower), upper)), low, high)

    @single_blas_thread
    def certificate(self, fixed: Mapping[str, Any] | None = None) -> Certificate:
        """How far the best point can be from the optimum; where nothing is promised, why.

        With a prior it rests on replays of this optimizer on past tasks (`RegretCalibration`), and
        is about tasks like them. It improves as long as the points are those of `ask`, one at a
        time; after an alarm nothing is promised any more. With a norm bound it is the largest upper
        bound in the domain minus the largest lower bound of an observed point. On a continuous
        domain the former is the largest that the search found.

        With ``fixed`` parameters: how far ``best(fixed)`` can be from the best choice beside them
        (Theorem 28). With probability 1 - delta this holds for all their values and all times
        together, also for values that were never seen, whoever chose them.
        """
        if not fixed:
            return self.state.certificate
        model = self.model
        if model.no_bounds:
            return Certificate(np.inf, delta=model.delta, reason=model.no_bounds, final=True)
        place, x, lower, upper, start = self._surest(fixed, "certificate")
        bounds = lower, upper, model.largest_upper(place, start)
        return model.by_bounds(place.decode(x), bounds, self.scale)

    def _surest(
        self, fixed: Mapping[str, Any], where: str
    ) -> tuple[Domain, Array, float, float, StartPoints]:
        """Where some parameters are held: the place, the surest point, its bounds, the start."""
        place, start = self._place(fixed, where)
        rng = stream(self._seed, BEST_STREAM, len(self._record))
        x = self.model.surest(Search(place, start, lambda: rng))
        if self.model.no_bounds:
            return place, x, -np.inf, np.inf, start
        lower, upper = self.model.bounds(x[None])
        return place, x, float(lower[0]), float(upper[0]), start

    @property
    def done(self) -> bool:
        """Whether ``stop_at`` is reached, or no point is left to ask for.

        With the confidence sets of a kernel, the best point is then within ``stop_at`` of the
        optimum with probability 1 - delta, whoever chose the points (Theorem 17 of
        ``docs/theory.md``). With a prior, at most a share delta of the searches that stop on tasks
        like the past ones is wrong (`metakel.optimize.certificate.Stopping`).
        """
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        """Why nothing more is asked for; empty while there is something to do."""
        found = self.state.outcomes
        if not self.domain.supply(found.closed, found.pending):
            return f"all points of the {self.domain!r} were asked for"
        return "" if self.stop_at is None else self.certificate().reached(self.stop_at)

    def __repr__(self) -> str:
        found = ""
        if self.state.outcomes.counts.any():
            best = self.best()
            x = describe(best.x)
            at = f"({x})" if isinstance(best.x, Mapping) else x
            found = f", best {best.value:.4g} at {at}"
        goal = "minimise" if self.minimize else "maximise"
        rung = f", alarm at t={self.alarm.time}" if self.alarm else ""
        failed = sum(trial.state == "failed" for trial in self._record.trials)
        stopped = len(self._record.stopped)
        without = f"{f', failed={failed}' * bool(failed)}{f', stopped={stopped}' * bool(stopped)}"
        counts = f"t={self.t}{without}{rung}"
        return (
            f"Optimizer({goal} over {self.domain!r}, {self.model.describe()}, {counts}, "
            f"pending={len(self.state.outcomes.pending)}{found})"
        )

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form; what is read from it goes on as this optimizer would."""
        if not isinstance(self.acquisition, str):
            raise InputError("an acquisition that is a function cannot be stored")
        return FORMAT.dump(
            {
                "model": self.model.to_dict(),
                "domain": encode(self.domain),
                "acquisition": self.acquisition,
                "minimize": self.minimize,
                "log_floor": self.scale.floor,
                "stop_at": self.stop_at,
                "seed": self._seed,
                "accepted_alarm": self._accepted,
                "record": self._record.to_dict(),
                **({} if self.curves is None else {"curves": encode(self.curves)}),
            }
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], functions: Functions | None = None) -> Optimizer:
        """Inverse of `to_dict`; ``functions`` maps the names of the user's own kernels to them."""
        with FORMAT.load(data) as content:
            return cls._from_content(content, functions)

    @classmethod
    def _from_content(cls, data: Mapping[str, Any], functions: Functions | None) -> Optimizer:
        model = Model.from_dict(data["model"], functions)
        optimizer = cls(
            model,
            decode(Domain, data["domain"], "stored domain"),  # type: ignore[type-abstract]
            acquisition=str(data["acquisition"]),
            minimize=bool(data["minimize"]),
            log_floor=float(data["log_floor"]),
            stop_at=data["stop_at"],
            curves=decode(CurveModel, data["curves"], "curves") if "curves" in data else None,
        )
        optimizer._begin(model, int(data["seed"]))
        optimizer.record = Record.from_dict(data["record"], optimizer._stored_point)
        optimizer._accepted = int(data["accepted_alarm"])
        return optimizer

    def _placed(self, points: Any, where: str) -> Array:
        """(n, d0) of what was run, beyond the domain too where the model can learn from it."""
        anywhere = self._last.model.anywhere
        return self.domain.place(points, where) if anywhere else self.domain.encode(points, where)

    def _stored_point(self, stored: Any) -> tuple[Any, Array]:
        X = self._placed(stored, "stored optimizer")
        if len(X) != 1:
            raise InputError(f"stored point is {stored!r}; expected one point")
        return dict(stored) if isinstance(stored, Mapping) else X[0].copy(), X[0]

    def save(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_file(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path, functions: Functions | None = None) -> Optimizer:
        """Read what `save` wrote."""
        with FORMAT.read_file(path) as content:
            return cls._from_content(content, functions)


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


def rehearse(optimizer: Optimizer, value: Callable[[Trial], float]) -> float:
    """Ask for one point and give it the value that was recorded there, which is returned."""
    optimizer.ask()
    (asked,) = optimizer.record.pending
    found = value(asked)
    optimizer.record = optimizer.record.with_results([asked.with_result(found)])
    return found
