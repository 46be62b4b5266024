"""What an optimizer answers: everything that follows from its record, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, single_blas_thread
from metakel.confidence.fallback import AlarmEvent
from metakel.errors import InputError, ShapeError
from metakel.optimize.acquisition import Acquisition, LevelSet
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.context import best_in, certificate_in, cumulative_regret
from metakel.optimize.explain import Reasons, explain
from metakel.optimize.model import Best, Certificate, Model
from metakel.optimize.record import Record
from metakel.optimize.snapshot import Snapshot
from metakel.optimize.union import UnionModel
from metakel.search import Domain, Finite, InContext, SearchSpace, StartPoints

START_STREAM, ASK_STREAM, BEST_STREAM = 0, 1, 2


class Answers:
    """The part of an `Optimizer` that reads its record."""

    domain: Domain
    contexts: Domain | None
    maximize: bool
    stop_at: float | None
    acquisition: str | Acquisition
    _seed: int
    _start: StartPoints
    _points: Domain  # as the model sees them, contexts included
    _record: Record
    _last_snapshot: Snapshot

    @property
    def model(self) -> Model:
        """What is believed of the objective, given all values; in the sign to be maximised."""
        return self._snapshot.model

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
    def kinds(self) -> dict[str, float]:
        """Posterior weight of every kind of past tasks (`Prior.kinds`), given the values so far.

        Beside them stand all tasks together and the cold start; empty where past tasks are alike.
        """
        return self._snapshot.model.kinds

    @property
    def alarm(self) -> AlarmEvent | None:
        """The time at which the values contradicted what was assumed; None as long as they agree.

        It is logged as a warning, too.
        """
        return self._snapshot.model.alarm

    @property
    def alive(self) -> tuple[int, ...]:
        """Which of the kernels that `GPUCB` was given still fit, by their places.

        With probability 1 - delta the right one is among them at all times. None is left after an
        `alarm`: all base kernels are assumed then.
        """
        model = self._snapshot.model
        if not isinstance(model, UnionModel):
            raise InputError("alive: there is one model; alarm says whether it fits")
        return model.alive

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
        """(n, d0) the points of a finite domain that may be optimal.

        With probability 1 - delta all optima are among them, at all times (Statement 18 of
        ``docs/guide/decide.md``).
        """
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

    def _place(self, context: Any, where: str) -> tuple[Domain, StartPoints]:
        """Where to look: the domain, or its points in a context."""
        if context is None and self.contexts is None:
            return self.domain, self._start
        named = self.contexts is None and isinstance(context, Mapping)
        if named and isinstance(self.domain, SearchSpace):
            held = self.domain.holding(context, where)
            return held, held.start_points(stream(self._seed, START_STREAM), self.model.landmarks)
        z = _encode_contexts(self.contexts, context, 1, where)[0]
        if self.contexts is None:
            return self.domain, self._start
        place = InContext(self.domain, self.contexts, z)
        return place, place.start_from(self._start)

    def _encode(self, x: Any, context: Any, where: str) -> Array:
        """(n, d0) points in their contexts."""
        place = self.domain
        if self.contexts is None and isinstance(context, Mapping):
            _check_agreement(x, context, where)
            place, context = self._place(context, where)[0], None
        X = place.encode(x, where)
        if self.contexts is None and context is None:
            return X
        return np.concatenate([X, _encode_contexts(self.contexts, context, len(X), where)], axis=1)

    def _context_of(self, x: Array) -> Any:
        return None if self.contexts is None else self.contexts.decode(x[self.domain.d0 :])

    def _supply(self, place: Domain) -> float:
        return place.supply(self._snapshot.outcomes.closed, self._snapshot.outcomes.pending)

    @single_blas_thread
    def predict(self, x: Any, context: Any = None) -> tuple[Array, Array]:
        """(n,) means and standard deviations, by the model that decides next.

        With pending or failed runs it takes them as if they had shown less than expected, so that
        the search keeps away from them: its means are lower then, and its deviations smaller.
        """
        place, _ = self._place(context, "predict")
        mean, sd = self._snapshot.outlook.predict(place.locate(x, "predict"))
        return self._sign * mean, sd

    @single_blas_thread
    def explain(self, x: Any, context: Any = None) -> Reasons:
        """Why to try the point ``x``: what is expected, which runs speak for it, what is safer.

        A pending point is explained as it was when it was asked for. With a context, it is compared
        with other choices in the same context.
        """
        if isinstance(context, Mapping):
            _check_agreement(x, context, "explain")
        place, start = self._place(context, "explain")
        X = place.locate(x, "explain")
        if len(X) != 1:
            raise InputError(f"explain: {len(X)} points; expected one")
        place = self._points if place is self.domain else place
        return explain(self._snapshot, points_of(x, X, place)[0], X[0], place, start)

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
        model = self._snapshot.model
        if x is None and self.contexts is None and isinstance(model, CertifiedModel | UnionModel):
            lower, upper = model.domain_bounds()
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
        return place, start, stream(self._seed, BEST_STREAM, len(self._record))

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
        """Whether the certificate is at most ``stop_at``, or no point is left to ask for.

        Whoever chose the points, the best one is then within ``stop_at`` of the optimum with
        probability 1 - delta (Statement 17 of ``docs/guide/decide.md``).
        """
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


def _check_agreement(x: Any, context: Mapping[str, Any], where: str) -> None:
    for row in [x] if isinstance(x, Mapping) else x:
        for name, value in context.items():
            if isinstance(row, Mapping) and row.get(name, value) != value:
                raise InputError(
                    f"{where}: {name!r} is {row[name]!r} in the configuration but {value!r} in the "
                    "context; expected the same"
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


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _encode_contexts(contexts: Domain | None, given: Any, n: int, where: str) -> Array:
    """(n, c) contexts of n points: one for all, or one for each; c = 0 where there are none."""
    if contexts is None:
        if given is not None:
            raise InputError(
                f"{where}: context is {given!r}, but this optimizer has no contexts; make it with "
                "context=, the domain of contexts"
            )
        return np.zeros((n, 0))
    if given is None:
        raise InputError(
            f"{where}: there is no context; expected context= with {_expected(contexts)}"
        )
    if isinstance(contexts, SearchSpace):
        for row in [given] if isinstance(given, Mapping) else given:
            _check_names(row, contexts, where)
    Z = contexts.encode(given, f"{where}: context")
    if len(Z) not in (1, n):
        raise ShapeError(f"{where}: {len(Z)} contexts for {n} points; expected one, or one each")
    return np.broadcast_to(Z, (n, Z.shape[1]))


def _expected(contexts: Domain) -> str:
    """What a context is, for messages."""
    if isinstance(contexts, SearchSpace):
        return ", ".join(map(repr, contexts.space.names))
    return f"{contexts.d0} input{'s' * (contexts.d0 != 1)} of {contexts!r}"


def _check_names(row: Any, contexts: SearchSpace, where: str) -> None:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: context is {row!r}; expected a dict with {_expected(contexts)}")
    missing = [name for name in contexts.space.names if name not in row]
    if missing:
        raise InputError(f"{where}: the context {dict(row)} lacks {', '.join(map(repr, missing))}")
