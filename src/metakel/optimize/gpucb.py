"""GP-UCB (Eq. 11) with an anytime confidence sequence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, check_generator, is_number, positive
from metakel._json import Format, write_file
from metakel.confidence.fallback import AlarmEvent
from metakel.confidence.observations import Batch, no_observations
from metakel.confidence.options import Method, NormBound
from metakel.confidence.sequence import ConfidenceSequence
from metakel.errors import InputError, ShapeError
from metakel.gp import Posterior, posterior
from metakel.kernels.sum import KernelSum, as_kernel
from metakel.optimize.argmax import Search
from metakel.optimize.certified import Belief, FixedNu, Schedule, at_step, checked_schedule
from metakel.optimize.events import Best, Event
from metakel.optimize.log import Memory
from metakel.optimize.storage import (
    generator_from,
    generator_state,
    read_model,
    storable,
    stored_model,
)
from metakel.search import Domain, Finite, domain_from_dict

FORMAT = Format("metakel.GPUCB", version=1, noun="optimizer")
LOGGER = logging.getLogger("metakel")


class GPUCB:
    """Ask where to look next, tell what was seen there (Eq. 11).

    The next point maximises the upper confidence bound. Points that were asked and not told yet are
    pending: the next ones are chosen as if they had been observed, at a value that changes no mean.
    Results may come in any order, or never (`forget`).

    Parameters
    ----------
    kernel : KernelSum
        Usually a learned one.
    domain : Domain
        `box`, `grid` or `points`, within the domain of the base kernels.
    rng : Generator
        Breaks ties and shifts the start of the search.
    noise_std : float
        Bound of the noise level sigma of an observation.
    norm_bound : float, callable or None
        B, see `ConfidenceSequence`. None asks for nothing: the features are explored first.
    delta, delta_learning : float
        Total probability of error, and the part of it that learning the kernel has spent.
    method, norm_of, on_alarm, full, rho, beta_min, recovery_error
        See `ConfidenceSequence`.
    nu : float or callable, optional
        Explore with the posterior mean plus nu posterior standard deviations (Eq. 3) instead of the
        confidence sequence; a number or a function of the step t = 1, 2, ... Confidence bounds and
        certificate are then available only if a norm bound is given, and do not depend on nu.
    noise_var : float or callable, optional
        The regulariser of Eq. 3 for ``nu`` and for `posterior`, by default noise_std^2; Theorem 5.1
        uses ``lambda t: 1 + 2 / t``.
    maximize : bool
        False to minimise; everything is reported in the sign of what was told.
    stop_at : float, optional
        `done` is True once the certificate is at most this.
    """

    def __init__(
        self,
        kernel: KernelSum,
        domain: Domain,
        *,
        rng: np.random.Generator,
        noise_std: float,
        norm_bound: NormBound = None,
        delta: float = 0.1,
        delta_learning: float = 0.0,
        method: Method = "dmm",
        norm_of: Literal["truth", "kernel"] = "truth",
        on_alarm: Literal["widen", "raise", "ignore"] = "widen",
        full: KernelSum | None = None,
        rho: float | None = None,
        beta_min: float | None = None,
        recovery_error: float | None = None,
        nu: Schedule | None = None,
        noise_var: Schedule | None = None,
        maximize: bool = True,
        stop_at: float | None = None,
    ) -> None:
        kernel = as_kernel("kernel", kernel)
        if not isinstance(domain, Domain):
            raise InputError(
                f"domain is a {type(domain).__name__}; use mk.box, mk.grid or mk.candidates"
            )
        check_generator(rng)
        if kernel.d0 not in (None, domain.d0):
            raise ShapeError(f"the kernel takes {kernel.d0} inputs but the domain has {domain.d0}")
        if stop_at is not None and not (is_number(stop_at) and 0 <= stop_at < inf):
            raise InputError(f"stop_at is {stop_at!r}; expected a number >= 0")
        self.kernel, self.domain, self.rng = kernel, domain, rng
        self.noise_std = positive("noise_std", noise_std)
        self.nu = checked_schedule("nu", nu)
        self.noise_var = checked_schedule("noise_var", noise_var)
        self.maximize = maximize
        self.stop_at = None if stop_at is None else float(stop_at)
        sequence = fixed = None
        if nu is None or norm_bound is not None:
            sequence = ConfidenceSequence(
                kernel,
                noise_std=noise_std,
                norm_bound=norm_bound,
                delta=delta,
                delta_learning=delta_learning,
                method=method,
                norm_of=norm_of,
                on_alarm=on_alarm,
                full=full,
                points=domain.X if isinstance(domain, Finite) else None,
                rho=rho,
                beta_min=beta_min,
                recovery_error=recovery_error,
            )
        if self.nu is not None:
            variance = self.noise_std**2 if self.noise_var is None else self.noise_var
            fixed = FixedNu(no_observations(kernel), 0, self.nu, variance, self.noise_std)
        self._belief = Belief(domain, sequence, fixed)
        self._rng_at_start = generator_state(rng)
        self._search = Search(domain, domain.candidates(rng))
        kernel.base.points(self._search.candidates.X)  # an error if the domains do not fit
        self._memory = Memory.empty(domain, maximize=maximize)
        self._best: Best | None = None  # these two until the next observation
        self._certificate: float | None = None

    # What it knows

    @property
    def sequence(self) -> ConfidenceSequence | None:
        """The confidence sequence behind it, in the sign to be maximised; None for a nu alone."""
        return self._belief.sequence

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last time at which the data contradicted what was assumed, and what is assumed since.

        None as long as they agree, and for a nu alone. It is logged as a warning, too.
        """
        return None if self.sequence is None else self.sequence.alarm

    @property
    def t(self) -> int:
        """How many observations it was told."""
        return self._memory.told.t

    @property
    def X(self) -> Array:
        """(t, d0) where it was told."""
        return self._memory.X

    @property
    def y(self) -> Array:
        """(t,) what it was told there."""
        return self._memory.y

    @property
    def pending(self) -> Array:
        """(q, d0) points that were asked, and neither told nor forgotten."""
        return self._memory.pending.copy()

    @property
    def log(self) -> tuple[Event, ...]:
        """What was asked, told and forgotten, in order."""
        return self._memory.log

    def __repr__(self) -> str:
        found = ""
        if self.t:
            x = ", ".join(f"{number:.4g}" for number in self.best.x)
            found = f", best {self.best.value:.4g} at ({x})"
        goal = "maximise" if self.maximize else "minimise"
        rung = f", alarm at t={self.alarm.time}" if self.alarm else ""
        return (
            f"GPUCB({goal} over {self.domain!r}, {self._belief.assumed(self.kernel)}, "
            f"t={self.t}{rung}, pending={len(self._memory.pending)}{found})"
        )

    def __copy__(self) -> Self:
        """One that goes on by itself, with a generator of its own in the same state."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.rng = deepcopy(self.rng)
        other._belief, other._search = self._belief.copied(), replace(self._search)
        return other

    # Ask and tell

    def ask(self, n: int | None = None) -> Array:
        """The next point (d0,), or the next ``n`` points (n, d0) to be evaluated side by side.

        They are pending from now on. No pending point is asked again, as long as the domain has
        others.
        """
        count = 1 if n is None else n
        if not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"ask: n is {n!r}; expected an integer >= 1")
        supply = self._memory.supply
        if count > supply:
            raise InputError(f"ask: {count} asked for, but {supply} points are left to ask")
        before = self._memory.pending
        pending = before
        for _ in range(count):
            pending = np.concatenate([pending, self._choose(pending)[None]])
        chosen = pending[len(before) :]
        self._memory = self._memory.with_asked(chosen)
        return chosen[0].copy() if n is None else chosen.copy()

    def tell(self, x: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike | None = None) -> None:
        """Take in what was observed; on bad input nothing has changed.

        Parameters
        ----------
        x : (d0,) or (n, d0) array
            Points of the domain, asked or not. For d0 = 1 a vector is n points.
        y : float or (n,) array
            What was observed there.
        noise_std : float or (n,) array, optional
            Noise level of these observations, if it is not that of the optimizer.
        """
        points = self.domain.points(x, "tell")
        given = self.noise_std if noise_std is None else noise_std
        checked = self._memory.told.checked(self.kernel, points, np.atleast_1d(y), given)
        if not len(checked.y):
            return
        batch = Batch(checked.X, self._memory.sign * checked.y, checked.noise_std)
        memory = self._memory.with_told(batch)
        before = self.alarm
        alarm = self._belief.tell(batch)
        self._memory, self._best, self._certificate = memory, None, None
        if alarm is not None:
            raise alarm
        if self.alarm is not None and self.alarm is not before:
            LOGGER.warning("alarm at t=%d: %s", self.alarm.time, self.alarm.reason)

    def forget(self, x: ArrayLike) -> None:
        """Points (d0,) or (n, d0) that were asked will never be told: they are pending no more."""
        self._memory = self._memory.with_forgotten(self.domain.points(x, "forget"))

    def _choose(self, pending: Array) -> Array:
        return self._search.next_point(
            self._belief.present,
            self._belief.spectrum(pending),
            self.rng,
            ceiling=self._belief.ceiling if self.nu is None else None,
            exclude=self._memory.excluded(pending),
        )

    # What it answers

    def confidence(self, Z: ArrayLike | None = None) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of the function at ``Z``, for all points and times at once.

        By default at the points of a finite domain.
        """
        if Z is None and not isinstance(self.domain, Finite):
            raise InputError(
                f"confidence: the domain {self.domain!r} has no finite number of points; give some,"
                f" as in confidence(Z) with Z of shape (n, {self.domain.d0})"
            )
        lower, upper = self._belief.confident.interval(Z)
        return (lower, upper) if self.maximize else (-upper, -lower)

    @property
    def posterior(self) -> Posterior:
        """GP(0, k) given the observations (Eq. 3), k being the kernel believed at present."""
        scale = 1.0
        if self.noise_var is not None:
            scale = at_step("noise_var", self.noise_var, self.t + 1) / self.noise_std**2
        noise_var = scale * self._memory.noise_std**2
        return posterior(self._belief.present.kernel, self.X, self.y, noise_var=noise_var)

    @property
    def best(self) -> Best:
        """The told point with the largest lower bound (smallest upper bound when minimising).

        Where all are infinite the largest posterior mean decides.
        """
        if self._best is None:
            self._best = self._find_best()
        return self._best

    @property
    def certificate(self) -> float:
        """With probability 1 - delta, `best` is at most this far from the optimum, at all times.

        The largest upper bound in the domain minus the largest lower bound of a told point
        (infinite before there is one). On a box the former is the largest that the search found.
        """
        if self._certificate is None:
            highest = self._search.largest_upper(
                self._belief.confident.current, self._belief.ceiling
            )
            floor = -inf
            if self.t:
                floor = self.best.lower if self.maximize else -self.best.upper
            self._certificate = max(highest - floor, 0.0)
        return self._certificate

    @property
    def done(self) -> bool:
        """Whether the certificate is at most ``stop_at``, or no point is left to ask."""
        return not self._memory.supply or (
            self.stop_at is not None and self.certificate <= self.stop_at
        )

    def _find_best(self) -> Best:
        if not self.t:
            raise InputError("best: nothing was told yet")
        X, sign = self.X, self._memory.sign
        mean, lower, upper = self._belief.at_told(X)
        chosen = int(np.argmax(lower if np.isfinite(lower).any() else mean))
        low, high = sorted((float(sign * lower[chosen]), float(sign * upper[chosen])))
        value = min(max(float(sign * mean[chosen]), low), high)
        return Best(X[chosen], value, low, high)

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form; what is read from it goes on as this optimizer would."""
        own = ("noise_std", "nu", "noise_var", "maximize", "stop_at")
        return FORMAT.dump(
            {
                **stored_model(self.kernel, self.sequence),
                "domain": self.domain.to_dict(),
                "settings": {name: storable(name, getattr(self, name)) for name in own},
                "log": [event.to_dict() for event in self.log],
                "rng_at_start": self._rng_at_start,
                "rng": generator_state(self.rng),
            }
        )

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Self:
        """Inverse of `to_dict`; ``functions`` maps the names of the user's own kernels to them."""
        with FORMAT.load(data) as content:
            return cls._from_content(content, functions)

    @classmethod
    def _from_content(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
    ) -> Self:
        kernel, sequence = read_model(data, functions)
        optimizer = cls(
            kernel,
            domain_from_dict(data["domain"]),
            rng=generator_from(data["rng_at_start"]),
            norm_bound=None if sequence is None else sequence.options.norm_bound,
            **data["settings"],
        )
        optimizer.rng = generator_from(data["rng"])
        optimizer._memory = optimizer._memory.replayed(map(Event.from_dict, data["log"]))
        optimizer._belief.replay(sequence, optimizer._memory.told)
        return optimizer

    def save(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_file(path, self.to_dict())

    @classmethod
    def load(
        cls, path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Self:
        """Read what `save` wrote."""
        with FORMAT.read_file(path) as content:
            return cls._from_content(content, functions)
