"""The optimizer: a model, a domain and a record; what it answers, and how it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, single_blas_thread
from metakel._files import Format, write_file
from metakel.errors import InputError
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.ask_tell import AskTell, points_of, stream
from metakel.optimize.certificate import (
    Best,
    Certificate,
    best_in,
    certificate_in,
    cumulative_regret,
    describe,
    no_certificate,
)
from metakel.optimize.certified import load_certified
from metakel.optimize.explain import Reasons, explain
from metakel.optimize.mixture import load_mixture
from metakel.optimize.model import Model
from metakel.optimize.record import Record, Trial
from metakel.optimize.safe import load_safe
from metakel.search import Domain, Finite, StartPoints, domain_from_dict
from metakel.search.context import check_agreement

FORMAT = Format("metakel.Optimizer", version=1, noun="optimizer")
BEST_STREAM = 2


class Optimizer(AskTell):
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

    # What it answers

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

    def safe(self, x: Any, context: Any = None) -> NDArray[np.bool_]:
        """(n,) which of the points ``x`` may be tried without violating a limit.

        With probability 1 - delta all points that are ever found safe respect all limits.
        """
        place, _ = self._place(context, "safe")
        return self.model.safe(place.locate(x, "safe"))

    def __repr__(self) -> str:
        found = ""
        if self._snapshot.outcomes.counts.any() and self.contexts is None:
            x = describe(self.best.x)
            at = f"({x})" if isinstance(self.best.x, Mapping) else x
            found = f", best {self.best.value:.4g} at {at}"
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
            check_agreement(x, context, "explain")
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

        By default at the points of a finite domain. With contexts, for all contexts at once. What
        they decide is right at all times: a level set, and which points may be optimal (Statement
        18 of ``docs/guide/decide.md``).
        """
        place, start = self._place(context, "confidence")
        if x is None and not isinstance(self.domain, Finite):
            raise InputError(
                f"confidence: the domain {self.domain!r} has no finite number of points; give some,"
                f" as in confidence(Z) with Z of shape (n, {self.domain.d0})"
            )
        model = self._snapshot.model
        if model.no_bounds:
            raise InputError(f"there is no confidence band: {model.no_bounds}")
        if x is not None:
            lower, upper = model.bounds(place.locate(x, "confidence"))
        elif self.contexts is not None:
            lower, upper = model.bounds(start.X)
        else:
            lower, upper = model.bounds_within(start.X)
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
        return no_certificate(self._snapshot)

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
        found = self._snapshot.outcomes
        if self.contexts is None and not self.domain.supply(found.closed, found.pending):
            return f"all points of the {self.domain!r} were asked for"
        if self.stop_at is not None and self.certificate.regret <= self.stop_at:
            return f"{self.certificate} (stop_at={self.stop_at:.3g})"
        return ""

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
            acquisition=str(data["acquisition"]),
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


def model_from_dict(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> Model:
    """Inverse of `Model.to_dict`, whichever model it was."""
    kind = data["kind"]
    if kind == "mixture":
        return load_mixture(data)
    loaders: dict[str, Callable[..., Model]] = {
        "certified": load_certified,
        "safe": load_safe,
    }
    if kind not in loaders:
        known = ", ".join([*loaders, "mixture"])
        raise InputError(f"stored model is of kind {kind!r}; known: {known}")
    return loaders[kind](data, functions)


def stored_acquisition(acquisition: str | Acquisition) -> str:
    """As JSON."""
    if isinstance(acquisition, str):
        return acquisition
    raise InputError("an acquisition that is a function cannot be stored")
