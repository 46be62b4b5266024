"""The optimizer: a model, a domain and a record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, check_generator, refuse_masked
from metakel._json import Format, write_file
from metakel._threads import single_blas_thread
from metakel.confidence.fallback import Alarm, AlarmEvent
from metakel.errors import InputError, ShapeError
from metakel.optimize.acquisition import Acquisition, as_acquisition, constrained
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.context import best_in, certificate_in, cumulative_regret
from metakel.optimize.explain import Reasons, explain
from metakel.optimize.level_sets import LevelSet
from metakel.optimize.limits import as_outputs
from metakel.optimize.mixture import MixtureModel, load_mixture
from metakel.optimize.model import Best, Certificate, Model, Score, Search
from metakel.optimize.record import (
    Record,
    Trial,
    as_noise_levels,
    as_values,
    feasible,
)
from metakel.optimize.regret import as_tolerance
from metakel.optimize.safe import SafeModel
from metakel.optimize.snapshot import Snapshot, spread_of
from metakel.search import Domain, Finite, SearchSpace, StartPoints, domain_from_dict
from metakel.search.context import InContext, encode_contexts

FORMAT = Format("metakel.Optimizer", version=1, noun="optimizer")
LOGGER = logging.getLogger("metakel")
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
    order, or never (`forget`). The same record gives the same next point, whatever the order in
    which it came about, and after a restart too. Threads may share an optimizer.

    `mk.GPUCB` and `Prior.optimizer` make optimizers; see there.

    Parameters
    ----------
    model : Model
        What is believed of the objective.
    domain : Domain
        Where to look.
    rng : Generator
        Draws the start of the search and breaks ties; used once, here.
    acquisition : str or callable
        "ucb", "ei", or a function of your own (`metakel.optimize.acquisition`).
    maximize : bool
        False to minimise; everything is reported in the sign of the values.
    stop_at : float or str, optional
        `done` is True once the certificate's regret is at most this, in units of the output; text
        such as "1%" is a share of the usual spread of a task.
    context : Domain, optional
        Where contexts come from. The model takes the inputs of a point, then those of a context,
        and every point is asked for in a context: see `ask`.
    """

    def __init__(
        self,
        model: Model,
        domain: Domain,
        *,
        rng: np.random.Generator,
        acquisition: str | Acquisition = "ucb",
        maximize: bool = True,
        stop_at: float | str | None = None,
        context: Domain | None = None,
    ) -> None:
        if not isinstance(domain, Domain):
            raise InputError(
                f"domain is a {type(domain).__name__}; use mk.box, mk.grid or mk.candidates, "
                "or a Space"
            )
        check_generator(rng)
        _check_inputs(model, domain, context)
        if context is not None:
            _check_contextual(acquisition, stop_at)
        self._turn = RLock()
        self.domain, self.contexts, self.maximize = domain, context, maximize
        self.stop_at = None if stop_at is None else as_tolerance(stop_at, spread_of(model))
        if isinstance(acquisition, LevelSet) and not maximize:
            raise InputError(
                "maximize=False with a LevelSet, which minimises nothing; leave it out"
            )
        self.acquisition = acquisition
        self._acquire = as_acquisition(acquisition)
        self._start_up(model, int(rng.integers(2**63)))

    def _start_up(self, model: Model, seed: int) -> None:
        self._seed = seed
        self._accepted = 0
        self._start = self.domain.start_points(_stream(seed, START_STREAM), model.landmarks)
        self._record = Record()
        points, start = self.domain, self._start
        if self.contexts is not None:
            some = self.contexts.start_points(_stream(seed, START_STREAM)).X
            points = InContext(self.domain, self.contexts, some[0])
            spread = some[np.arange(len(start.X)) % len(some)]
            start = replace(start, X=np.concatenate([start.X, spread], axis=1))
        self._points = points  # as the model sees them, contexts included
        self._last_snapshot = Snapshot.before_any_run(
            model, points, start, self.acquisition, self._sign
        )

    # What it knows

    @property
    def model(self) -> Model:
        """What is believed of the objective, given all values; in the sign to be maximised."""
        return self._snapshot.model

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
    def t(self) -> int:
        """How many values were observed."""
        return self._snapshot.outcomes.t

    @property
    def X(self) -> Array:
        """(t, d0) where values were observed, as the model sees it."""
        return self._snapshot.outcomes.X

    @property
    def y(self) -> Array:
        """(t,) the observed values."""
        return self._sign * self._snapshot.outcomes.y

    @property
    def pending(self) -> list[Any]:
        """Points that were asked for, and neither observed nor forgotten."""
        return [trial.point for trial in self._record.pending]

    @property
    def trust(self) -> float:
        """Posterior weight of what was learned from the past, given the values so far."""
        return self._snapshot.model.transfer_weight

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

    def safe(self, x: Any, context: Any = None) -> NDArray[np.bool_]:
        """(n,) which of the points ``x`` may be tried without violating a limit.

        With probability 1 - delta all points that are ever found safe respect all limits.
        """
        place, _ = self._place(context, "safe")
        return self.model.safe(place.locate(x, "safe"))

    def above(self, x: Any, level: float, context: Any = None) -> NDArray[np.bool_]:
        """(n,) which points ``x`` have a value of at least ``level``, as far as the bounds say."""
        found: NDArray[np.bool_] = self._bounds_at(x, context, "above")[0] >= level
        return found

    def below(self, x: Any, level: float, context: Any = None) -> NDArray[np.bool_]:
        """(n,) which points ``x`` have a value below ``level``, as far as the bounds say."""
        found: NDArray[np.bool_] = self._bounds_at(x, context, "below")[1] < level
        return found

    def _bounds_at(self, x: Any, context: Any, where: str) -> tuple[Array, Array]:
        if self.model.no_bounds:
            raise InputError(f"{where}: there is no confidence band: {self.model.no_bounds}")
        place, _ = self._place(context, where)
        lower, upper = self.model.bounds_within(place.locate(x, where))
        return (lower, upper) if self.maximize else (-upper, -lower)

    @property
    def potential_maximisers(self) -> Array:
        """(n, d0) the points of a finite domain that may be optimal; all optima are among them."""
        if self.contexts is not None:
            raise InputError("potential_maximisers: they depend on the context")
        lower, upper = self.confidence()
        assert isinstance(self.domain, Finite)  # or there is no confidence without points
        kept = upper >= lower.max() if self.maximize else lower <= upper.min()
        return np.asarray(self.domain.X[kept])

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    def __repr__(self) -> str:
        found = ""
        if self._snapshot.outcomes.counts.any() and self.contexts is None:
            best = self.best
            named = isinstance(best.x, Mapping)
            shown = best.x.items() if named else enumerate(best.x)
            x = ", ".join((f"{name}=" if named else "") + _short(v) for name, v in shown)
            found = f", best {best.value:.4g} at ({x})"
        goal = "maximise" if self.maximize else "minimise"
        rung = f", alarm at t={self.alarm.time}" if self.alarm else ""
        failed = sum(trial.state == "failed" for trial in self._record.trials)
        counts = f"t={self.t}{f', failed={failed}' if failed else ''}{rung}"
        contexts = "" if self.contexts is None else f" in contexts of {self.contexts!r}"
        return (
            f"Optimizer({goal} over {self.domain!r}{contexts}, "
            f"{self._snapshot.model.describe()}, {counts}, "
            f"pending={len(self._snapshot.outcomes.pending)}{found})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which goes on by itself in the same way; locks are not shared."""
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turn=RLock())

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
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"ask_batch: n is {n!r}; expected an integer >= 1")
        self._check_supply(n, self._place(context, "ask_batch")[0])
        return [self.ask(context) for _ in range(n)]

    @_one_at_a_time
    def add_pending(self, x: Any, context: Any = None) -> None:
        """Points that are being run without having been asked for: the search keeps away."""
        X = self._encode(x, context, "add_pending")
        record = self._record
        for point, row in zip(_points_of(x, X, self._points), X, strict=True):
            record = record.with_pending(point, row, self._context_of(row))
        self.record = record

    @single_blas_thread
    def suggest(self, context: Any = None) -> Any:
        """The point that `ask` would give, without noting it."""
        place, start = self._place(context, "suggest")
        self._check_supply(1, place)
        return copy(self._suggest(place, start)[0])

    def _place(self, context: Any, where: str) -> tuple[Domain, StartPoints]:
        """Where to look: the domain, or its points in a context."""
        named = self.contexts is None and isinstance(context, Mapping)
        if named and isinstance(self.domain, SearchSpace):
            held = self.domain.holding(context, where)
            return held, held.start_points(_stream(self._seed, START_STREAM), self.model.landmarks)
        z = encode_contexts(self.contexts, context, 1, where)[0]
        if self.contexts is None:
            return self.domain, self._start
        place = InContext(self.domain, self.contexts, z)
        return place, place.start_from(self._start)

    def _encode(self, x: Any, context: Any, where: str) -> Array:
        """(n, d0) points in their contexts."""
        X = self.domain.encode(x, where)
        if self.contexts is None and context is None:
            return X
        return np.concatenate([X, encode_contexts(self.contexts, context, len(X), where)], axis=1)

    def _context_of(self, x: Array) -> Any:
        return None if self.contexts is None else self.contexts.decode(x[self.domain.d0 :])

    def _check_supply(self, n: int, place: Domain) -> None:
        supply = self._supply(place)
        if n > supply:
            raise InputError(f"ask: {n} asked for, but {supply:g} points are left to ask for")

    def _supply(self, place: Domain) -> float:
        return place.supply(self._snapshot.outcomes.closed, self._snapshot.outcomes.pending)

    def _suggest(self, place: Domain, start: StartPoints) -> tuple[Any, Array]:
        self._check_alarm()
        found, outlook = self._snapshot.outcomes, self._snapshot.outlook
        rng = _stream(self._seed, ASK_STREAM, len(self._record))
        search = Search(place, start, rng, place.excluded(found.closed, found.pending))
        x = outlook.choose(_checked(self._score(), outlook), search)
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
        X = self._encode(x, context, "tell")
        values = as_values(value, len(X))
        noise = as_noise_levels(noise_std, len(X))
        limits = dict(constraints or {})
        feasible(limits)
        if limits and self.contexts is not None:
            raise InputError("tell: constraints cannot be used together with contexts; use limits")
        measured = as_outputs(outputs, self._last_snapshot.model.output_names, len(X))
        if not len(X):
            return
        points = _points_of(x, X, self._points)
        results, waiting, number = [], list(self._record.pending), len(self._record)
        for point, row, found, level, other in zip(points, X, values, noise, measured, strict=True):
            trial = self._take(waiting, row)
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
        self.record = self._record.with_forgotten(numbers)

    # What it answers

    @single_blas_thread
    def predict(self, x: Any, context: Any = None) -> tuple[Array, Array]:
        """(n,) means and standard deviations, by the model that decides next."""
        place, _ = self._place(context, "predict")
        mean, sd = self._snapshot.outlook.predict(place.locate(x, "predict"))
        return self._sign * mean, sd

    @single_blas_thread
    def explain(self, x: Any) -> Reasons:
        """Why to try the point ``x``: what is expected, which runs speak for it, what is safer.

        A pending point is explained as it was when it was asked for.
        """
        X = self.domain.locate(x, "explain")
        if len(X) != 1:
            raise InputError(f"explain: {len(X)} points; expected one")
        return explain(self._snapshot, _points_of(x, X, self.domain)[0], X[0])

    @property
    def output_limits(self) -> tuple[float, float]:
        """Between which all values lie, as far as it is known; `predict` may go beyond."""
        low, high = sorted(self._sign * limit for limit in self.model.limits)
        return low, high

    @single_blas_thread
    def confidence(self, x: Any = None, context: Any = None) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of the objective, for all points and times at once.

        By default at the points of a finite domain. With contexts, for all contexts at once.
        """
        place, start = self._place(context, "confidence")
        if x is None and not isinstance(self.domain, Finite):
            raise InputError(
                f"confidence: the domain {self.domain!r} has no finite number of points; give some,"
                f" as in confidence(Z) with Z of shape (n, {self.domain.d0})"
            )
        if self._snapshot.model.no_bounds:
            raise InputError(f"there is no confidence band: {self._snapshot.model.no_bounds}")
        over_time = isinstance(self._snapshot.model, CertifiedModel) and self.contexts is None
        if x is None and over_time:
            assert isinstance(self._snapshot.model, CertifiedModel)
            lower, upper = self._snapshot.model.domain_bounds()
        else:
            Z = start.X if x is None else place.locate(x, "confidence")
            lower, upper = self._snapshot.model.bounds(Z)
        return (lower, upper) if self.maximize else (-upper, -lower)

    @property
    def best(self) -> Best:
        """The best observed point; see `Best` for what is best to which model."""
        if self.contexts is not None:
            raise InputError("best: what is best depends on the context; use best_for(context)")
        return self._snapshot.best

    @single_blas_thread
    def best_for(self, context: Any) -> Best:
        """What to choose in a context, seen or not: the point with the largest lower bound.

        It need not have been observed.
        """
        model = self._snapshot.model
        return best_in(model, *self._in_context(context, "best_for"), self._sign)

    @single_blas_thread
    def certificate_for(self, context: Any) -> Certificate:
        """How far `best_for` of this context can be from the optimum in it.

        With probability 1 - delta this holds for all contexts and all times together, also for
        contexts that were never seen, whoever chose them. On a continuous domain the largest upper
        bound is the largest that the search found.
        """
        model = self._snapshot.model
        return certificate_in(model, *self._in_context(context, "certificate_for"), self._sign)

    def _in_context(
        self, context: Any, where: str
    ) -> tuple[Domain, StartPoints, np.random.Generator]:
        place, start = self._place(context, where)
        if place is self.domain:
            raise InputError(f"{where}: this optimizer has no contexts; use best and certificate")
        return place, start, _stream(self._seed, BEST_STREAM, len(self._record))

    @property
    @single_blas_thread
    def regret_certificate(self) -> float:
        """Bound of the cumulative regret of all observed points, each in its context.

        With probability 1 - delta at all times, however the points were chosen. inf where nothing
        is promised.
        """
        X = self._snapshot.outcomes.X
        places: dict[bytes, tuple[Domain, StartPoints]] = {}
        for x in X:
            z = x[self.domain.d0 :]
            if z.tobytes() not in places:
                places[z.tobytes()] = self._place(self._context_of(x), "regret_certificate")
        each = [places[x[self.domain.d0 :].tobytes()] for x in X]
        return cumulative_regret(self._snapshot.model, X, each)

    @property
    def certificate(self) -> Certificate:
        """How far the best point can be from the optimum.

        With a prior it rests on replays of this optimizer on past tasks (`RegretCalibration`), and
        is about tasks like them. It improves as long as the points are those of `ask`, one at a
        time; after an alarm nothing is promised any more. With a norm bound it is the largest upper
        bound in the domain minus the largest lower bound of an observed point. On a continuous
        domain the former is the largest that the search found.
        """
        if self.contexts is not None:
            raise InputError("certificate: it depends on the context; use certificate_for(context)")
        return self._snapshot.certificate

    @property
    def no_certificate(self) -> str:
        """Why there will be no certificate, whatever is observed; empty where there may be one."""
        return self._snapshot.no_certificate

    @property
    def done(self) -> bool:
        """Whether the certificate is at most ``stop_at``, or no point is left to ask for."""
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        """Why nothing more is asked for; empty while there is something to do."""
        if self.contexts is None and not self._supply(self.domain):
            return f"all points of the {self.domain!r} were asked for"
        if self.stop_at is not None and self.certificate.regret <= self.stop_at:
            return f"{self.certificate} (stop_at={self.stop_at:.3g})"
        if isinstance(self.acquisition, LevelSet) and self.t and self.contexts is None:
            undecided = self.acquisition.undecided(*self.model.bounds_within(self._start.X))
            if not undecided.any():
                return f"every point is decided: {self.acquisition}"
        return ""

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form; what is read from it goes on as this optimizer would."""
        acquisition: Any = self.acquisition
        if isinstance(acquisition, LevelSet):
            acquisition = asdict(acquisition)
        elif callable(acquisition):
            raise InputError("an acquisition that is a function cannot be stored")
        return FORMAT.dump(
            {
                "model": self._snapshot.model.to_dict(),
                "domain": self.domain.to_dict(),
                "context": None if self.contexts is None else self.contexts.to_dict(),
                "acquisition": acquisition,
                "maximize": self.maximize,
                "stop_at": self.stop_at,
                "seed": self._seed,
                "accepted_alarm": self._accepted,
                "record": self._record.to_dict(),
            }
        )

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Optimizer:
        """Inverse of `to_dict`; ``functions`` maps the names of the user's own kernels to them."""
        with FORMAT.load(data) as content:
            return cls._from_content(content, functions)

    @classmethod
    def _from_content(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
    ) -> Optimizer:
        model, stored = _model_from_dict(data["model"], functions), data["acquisition"]
        contexts = data.get("context")
        optimizer = cls(
            model,
            domain_from_dict(data["domain"]),
            rng=np.random.default_rng(0),
            acquisition=LevelSet(**stored) if isinstance(stored, Mapping) else stored,
            maximize=bool(data["maximize"]),
            stop_at=data["stop_at"],
            context=None if contexts is None else domain_from_dict(contexts),
        )
        optimizer._start_up(model, int(data["seed"]))
        optimizer.record = Record.from_dict(data["record"], optimizer._stored_point)
        optimizer._accepted = int(data.get("accepted_alarm", 0))
        return optimizer

    def _stored_point(self, stored: Any, context: Any) -> tuple[Any, Any, Array]:
        X = self._encode(stored, context, "stored optimizer")
        if len(X) != 1:
            raise InputError(f"stored point is {stored!r}; expected one point")
        point = dict(stored) if isinstance(stored, Mapping) else X[0, : self.domain.d0].copy()
        return point, self._context_of(X[0]), X[0]

    def save(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_file(path, self.to_dict())

    @classmethod
    def load(
        cls, path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Optimizer:
        """Read what `save` wrote."""
        with FORMAT.read_file(path) as content:
            return cls._from_content(content, functions)


def _check_inputs(model: Model, domain: Domain, context: Domain | None) -> None:
    if context is not None and not isinstance(context, Domain):
        raise InputError(
            f"context is a {type(context).__name__}; use mk.box, mk.grid or mk.candidates, or a "
            "Space"
        )
    found = domain.d0 + (0 if context is None else context.d0)
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


def _model_from_dict(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> Model:
    kind = data["kind"]
    if kind == CertifiedModel.kind:
        return CertifiedModel.from_dict(data, functions)
    if kind == SafeModel.kind:
        return SafeModel.from_dict(data, functions)
    if kind == MixtureModel.kind:
        return load_mixture(data)
    raise InputError(f"stored model is of kind {kind!r}; known: certified, safe, mixture")


def _checked(score: Score, model: Model) -> Score:
    """A score that is never nan: a search would take the first point as the best."""

    def check(values: Array, Z: Array) -> Array:
        wrong = np.isnan(values)
        if wrong.any():
            first = Z[int(np.argmax(wrong))].tolist()
            raise InputError(
                f"the score of {type(model).__name__} ({model.describe()}) is nan at "
                f"{int(wrong.sum())} of {len(Z)} points, first at {first}; expected numbers: look "
                "for extreme values in the history or among those observed"
            )
        return values

    def values(Z: Array) -> Array:
        return check(score.values(Z), Z)

    slopes = score.gradient
    if slopes is None:
        return Score(values)

    def gradient(Z: Array) -> tuple[Array, Array]:
        found, slope = slopes(Z)
        return check(found, Z), slope

    return Score(values, gradient)


def _stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of their own for every purpose and step."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _points_of(x: Any, X: Array, domain: Domain) -> list[Any]:
    """Points as users see them: dicts as they were given, arrays as the domain has them."""
    if isinstance(x, Mapping):
        return [dict(x)]
    if isinstance(x, Sequence) and len(x) and isinstance(x[0], Mapping):
        return [dict(row) for row in x]
    return [domain.decode(row) for row in X]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
