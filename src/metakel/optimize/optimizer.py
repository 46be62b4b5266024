"""The optimizer: a model, a domain and a record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from functools import cache, partial, wraps
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, check_count, check_generator, refuse_masked, single_blas_thread
from metakel._files import Format, write_file
from metakel.confidence.fallback import Alarm
from metakel.errors import InputError, ShapeError
from metakel.optimize.acquisition import (
    Acquisition,
    LevelSet,
    as_acquisition,
    constrained,
    without_nan,
)
from metakel.optimize.answers import ASK_STREAM, START_STREAM, Answers, points_of, stream
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.limits import as_outputs
from metakel.optimize.mixture import MixtureModel, load_mixture
from metakel.optimize.model import Model, Score, Search
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
from metakel.optimize.union import UnionModel
from metakel.search import Domain, Finite, InContext, StartPoints, domain_from_dict


def model_from_dict(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> Model:
    """Inverse of `Model.to_dict`, whichever model it was."""
    kind = data["kind"]
    if kind == MixtureModel.kind:
        return load_mixture(data)
    for known in (CertifiedModel, SafeModel, UnionModel):
        if kind == known.kind:
            return known.from_dict(data, functions)
    raise InputError(f"stored model is of kind {kind!r}; known: certified, safe, union, mixture")


def stored_acquisition(acquisition: str | Acquisition) -> str | dict[str, Any]:
    """As JSON."""
    if isinstance(acquisition, LevelSet):
        return asdict(acquisition)
    if isinstance(acquisition, str):
        return acquisition
    raise InputError("an acquisition that is a function cannot be stored")


def read_acquisition(stored: str | Mapping[str, Any]) -> str | LevelSet:
    """Inverse of `stored_acquisition`."""
    return LevelSet(**stored) if isinstance(stored, Mapping) else stored


FORMAT = Format("metakel.Optimizer", version=1, noun="optimizer")
LOGGER = logging.getLogger("metakel")


Method = TypeVar("Method", bound=Callable[..., Any])


def _one_at_a_time(method: Method) -> Method:
    """For methods that change the record: threads that share an optimizer take turns."""

    @wraps(method)
    def alone(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast("Method", alone)


class Optimizer(Answers):
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
    acquisition : str or callable, optional
        "ucb", "ei", or a function of your own (`metakel.optimize.acquisition`). By default that of
        the model: "ei" for a cold start, "ucb" for all others.
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
        acquisition: str | Acquisition | None = None,
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
        acquisition = model.acquisition if acquisition is None else acquisition
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
        self._start = self.domain.start_points(stream(seed, START_STREAM), model.landmarks)
        self._record = Record()
        points, start = self.domain, self._start
        if self.contexts is not None:
            some = self.contexts.start_points(stream(seed, START_STREAM)).X
            points = InContext(self.domain, self.contexts, some[0])
            spread = some[np.arange(len(start.X)) % len(some)]
            start = replace(start, X=np.concatenate([start.X, spread], axis=1))
        self._points = points  # as the model sees them, contexts included
        self._last_snapshot = Snapshot.before_any_run(
            model, points, start, self.acquisition, self._sign
        )

    # What it knows

    @property
    def record(self) -> Record:
        """All trials: the whole memory. It may be replaced by another record of the same domain."""
        return self._record

    @record.setter
    def record(self, record: Record) -> None:
        self._last_snapshot = self._last_snapshot.after(record)
        self._record = record

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
        supply = self._supply(place)
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
        self.record = self._record.with_forgotten(numbers)

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form; what is read from it goes on as this optimizer would."""
        return FORMAT.dump(
            {
                "model": self.model.to_dict(),
                "domain": self.domain.to_dict(),
                "context": None if self.contexts is None else self.contexts.to_dict(),
                "acquisition": stored_acquisition(self.acquisition),
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
        model, contexts = model_from_dict(data["model"], functions), data.get("context")
        optimizer = cls(
            model,
            domain_from_dict(data["domain"]),
            rng=np.random.default_rng(0),
            acquisition=read_acquisition(data["acquisition"]),
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


def rehearse(optimizer: Optimizer, value: Callable[[Trial], float]) -> float:
    """Ask for one point and give it the value that was recorded there, which is returned."""
    optimizer.ask()
    (asked,) = optimizer.record.pending
    found = value(asked)
    optimizer.record = optimizer.record.with_results([asked.with_result(found)])
    return found


def give(optimizer: Optimizer, points: Sequence[Any], values: Array) -> None:
    """Give recorded values at several points at once."""
    optimizer.add_pending(points)
    asked = optimizer.record.pending
    results = [trial.with_result(float(v)) for trial, v in zip(asked, values, strict=True)]
    optimizer.record = optimizer.record.with_results(results)


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
