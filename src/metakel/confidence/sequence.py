"""Confidence sequences: intervals for all points and all times together (Eq. 2, Theorem 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel.confidence.alarm import Alarm, AlarmEvent, Hypothesis, hypotheses, second_kernel
from metakel.confidence.assess import Assessment, assess
from metakel.confidence.intersection import Intersection
from metakel.confidence.mixture import NORM_RANGE
from metakel.confidence.observations import Observations, no_observations
from metakel.confidence.set import ConfidenceSet
from metakel.confidence.settings import Method, NormBound, Settings
from metakel.confidence.spectrum import Spectrum
from metakel.confidence.told import Batch, Told
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum
from metakel.tasks import Array

FORMAT = "metakel.ConfidenceSequence"


class ConfidenceSequence:
    """Intervals that hold for all points and all times at once, with probability 1 - delta.

    Values are f(x) plus noise that is sigma-sub-Gaussian given the past (Eq. 1), and the points may
    be chosen in any way that depends on the past only. f lies in the space of ``kernel`` with a
    bounded norm.

    Parameters
    ----------
    kernel : KernelSum
    noise_std : float
        Bound of the noise level sigma (its sub-Gaussian proxy).
    norm_bound : float, callable or None
        B. None asks for nothing and gives infinite intervals until the points told span the
        features (feature kernels only). A callable t -> B_t, increasing without bound, holds
        from the time on at which B_t has passed the norm of f; a B_t that the data contradict
        is doubled.
    delta : float
        Total probability of error.
    delta_learning : float
        The part of delta that was spent on learning the kernel (that it misses a base kernel).
        The intervals get the rest, ``delta_deciding``. 0 for a kernel that was not learned.
    method : "dmm", "amm", "ay", "paper-corrected", "paper" or "oracle"
        "dmm" is the tightest: every function that fits the data and has a small norm (`dual`),
        intersected over time. The others are closed forms (`closed_form`) of the present time.
    norm_of : "truth" or "kernel"
        Whose norm B bounds: that of the true kernel, with weights of at most 1 on some of the
        active base kernels, or that of ``kernel`` itself. For "truth" the bound in the norm of
        ``kernel`` is B / sqrt(its smallest weight): use weights of 1.
    on_alarm : "widen", "raise" or "ignore"
        What to do when no function fits, which has probability at most delta unless a base kernel
        is missing, B or the noise is too small. "widen" falls back to all base kernels, and if
        this does not fit either to any norm (kernels without features: a doubled one), from then
        on and with everything observed; the intervals hold at the same delta for the wider
        assumption. "raise" raises `Alarm` after taking the observation in, then goes on like
        "widen". "ignore" enlarges the set until it is not empty; nothing is promised then. Only
        "dmm" has an alarm.
    full : KernelSum, optional
        What "widen" falls back to, and half of the mixture; by default weight 1 on every base
        kernel. Give ``kernel`` itself to spend nothing on the alarm (it then sees a wrong B only).
    points : (n, d0) array, optional
        A finite domain on which the intersection over the times after each `tell` is exact.
    remember : int
        At most how many past sets `interval` intersects with elsewhere: the previous one and the
        first ones past the powers of 2. Any choice is valid; it narrows by a few per cent.
    norm_scales : sequence of float, optional
        Guesses of the norm of f in the norm of ``kernel``, fixed in advance, over which the mixture
        of "dmm" averages: by default B, B/2, ..., B/128. Any are valid.
    norm_range : (low, high)
        Where the guesses lie if there is no B.
    rho : float, optional
        Regulariser of "amm", "ay" and "paper-corrected", by default noise_std^2 (1 + 2/t for
        "paper-corrected"). If noise differs by observation, that of observation i is
        rho (noise_std_i / noise_std)^2.
    beta_min, recovery_error : float, optional
        c_1 and epsilon of Theorem 5.1, for "paper" only; the kernel is then taken as it is given.
    """

    def __init__(
        self,
        kernel: KernelSum,
        *,
        noise_std: float,
        norm_bound: NormBound,
        delta: float = 0.1,
        delta_learning: float = 0.0,
        method: Method = "dmm",
        norm_of: Literal["truth", "kernel"] = "truth",
        on_alarm: Literal["widen", "raise", "ignore"] = "widen",
        full: KernelSum | None = None,
        points: ArrayLike | None = None,
        remember: int = 4,
        norm_scales: Sequence[float] | None = None,
        norm_range: tuple[float, float] = NORM_RANGE,
        rho: float | None = None,
        beta_min: float | None = None,
        recovery_error: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.settings = Settings(
            noise_std=noise_std,
            norm_bound=norm_bound,
            delta=delta,
            delta_learning=delta_learning,
            method=method,
            norm_of=norm_of,
            on_alarm=on_alarm,
            norm_scales=None if norm_scales is None else tuple(map(float, norm_scales)),
            norm_range=(float(norm_range[0]), float(norm_range[1])),
            rho=rho,
            beta_min=beta_min,
            recovery_error=recovery_error,
        )
        self.settings.check_kernel(kernel)
        if remember < 0:
            raise InputError(f"remember is {remember}; expected an integer >= 0")
        self.full = second_kernel(self.settings, kernel, full)
        self._hypotheses = hypotheses(self.settings, kernel, self.full)

        kernels = [kernel] if self.full is None else [kernel, self.full]
        self._observations: list[Observations] = [no_observations(k) for k in kernels]
        self._told = Told()
        self._alarms: list[AlarmEvent] = []
        self._stage = 0
        domain = None if points is None else kernel.base.points(points)
        self._now = self._assess()
        self._intersection, _ = Intersection(domain, remember).narrowed(self._now.set)

    # What it knows

    @property
    def t(self) -> int:
        """How many observations it was told."""
        return self._told.t

    @property
    def told(self) -> Told:
        """Everything it was told, call by call."""
        return self._told

    @property
    def delta(self) -> float:
        """Total probability of error: `delta_learning` plus `delta_deciding`."""
        return self.settings.delta

    @property
    def delta_learning(self) -> float:
        """What was spent on learning the kernel."""
        return self.settings.delta_learning

    @property
    def delta_deciding(self) -> float:
        """What the intervals themselves may fail with."""
        return self.settings.delta_deciding

    @property
    def method(self) -> Method:
        """How the intervals are made."""
        return self.settings.method

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last alarm, None as long as the data agree with the assumptions."""
        return self._alarms[-1] if self._alarms else None

    @property
    def alarms(self) -> tuple[AlarmEvent, ...]:
        """All alarms; each falls back to a wider assumption."""
        return tuple(self._alarms)

    @property
    def hypothesis(self) -> Hypothesis | None:
        """What is assumed of f at present; None if nothing that was tried fits the data."""
        return self._hypotheses[self._stage] if self._stage < len(self._hypotheses) else None

    @property
    def radius(self) -> float:
        """ "dmm": R_t, the largest ||f(X) - y|| in units of the noise; closed forms: nu_t."""
        return self._now.radius

    @property
    def largest_norm_scale(self) -> float:
        """The largest guess of the norm of f in the widest kernel."""
        return float(self._hypotheses[-1].norm_scales.max())

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet.

        In the eigenbasis of the kernel that is believed at present; with pending points only the
        eigenvalues and directions mean anything, which give the variances there will be.
        """
        data = next(o for o in self._observations if o.kernel is self.current.kernel)
        if len(pending):
            noise = np.full(len(pending), self.settings.noise_std)
            data = data.append(Batch(pending, np.zeros(len(pending)), noise))
        return data.spectrum()

    @property
    def current(self) -> ConfidenceSet:
        """The set of the present time alone: the fast way to bounds and gradients."""
        return self._now.set

    def __repr__(self) -> str:
        believed = "nothing" if self.hypothesis is None else str(self.hypothesis)
        return (
            f"ConfidenceSequence({self.method!r}, t={self.t}, "
            f"delta={self.delta:g} (learning {self.delta_learning:g}, "
            f"deciding {self.delta_deciding:g}), {believed}, alarm={self.alarm})"
        )

    # What it is told

    def tell(self, X: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike | None = None) -> None:
        """Take observations in; on an error nothing has changed.

        Parameters
        ----------
        X : (n, d0) array
        y : (n,) array
        noise_std : float or (n,) array, optional
            Noise level of these observations if it is not that of the sequence. It must not depend
            on ``y``.
        """
        given = self.settings.noise_std if noise_std is None else noise_std
        batch = self._told.checked(self.kernel, X, y, given)
        self.check(batch)
        if not len(batch.y):
            return
        self._observations = [o.append(batch) for o in self._observations]
        kept = self._intersection
        if not self._intersects:
            kept = kept.forgetting()
        elif self.t:
            kept = kept.keeping(self.t, self._told.t_before_last, self._now.set)
        self._told = self._told.with_batch(batch)
        self._now = self._assess()
        alarms_before = len(self._alarms)
        self._intersection, agreed = kept.narrowed(self._now.set)
        while (self._now.empty or not agreed) and self.hypothesis is not None:
            if self.settings.on_alarm == "ignore":
                if not self._alarms:
                    self._ring("ignored")
                self._intersection, _ = kept.forgetting().narrowed(self._now.set)
                break
            self._fall_back()
            self._intersection, agreed = kept.forgetting().narrowed(self._now.set)
        if self.settings.on_alarm == "raise" and len(self._alarms) > alarms_before:
            raise Alarm(f"after {self.t} observations: {self._alarms[-1].reason}")

    def _ring(self, consequence: str) -> None:
        self._alarms.append(AlarmEvent(self.t, f"{self.hypothesis} does not fit; {consequence}"))

    def _fall_back(self) -> None:
        wider = self._hypotheses[self._stage + 1 : self._stage + 2]
        self._ring(f"assumed from here on: {wider[0] if wider else 'nothing (check noise_std)'}")
        self._stage += 1
        self._now = self._assess()

    def check(self, batch: Batch) -> None:
        """Refuse noise levels that the method does not know."""
        literal = self.method in ("paper", "oracle", "paper-corrected")
        if literal and (batch.noise_std != self.settings.noise_std).any():
            raise InputError(
                f"method {self.method!r} knows one noise level, {self.settings.noise_std:g}; "
                'use "dmm", "amm" or "ay" where it differs by observation'
            )

    # What it answers

    def interval(self, Z: ArrayLike | None = None, *, refine: bool = True) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of f at ``Z``, by default at the ``points`` of the sequence.

        At ``points`` this is the intersection over the times after every `tell`, elsewhere over
        the present and the remembered ones. ``refine=False`` is faster and slightly wider.
        """
        if Z is not None:
            query = self.kernel.base.points(Z)
            return self._intersection.interval(query, self._now.set, refine=refine)
        if self._intersection.running is None:
            raise InputError("interval: no Z given, and the sequence was made without points")
        lower, upper = self._intersection.running
        return lower.copy(), upper.copy()

    def upper(self, Z: ArrayLike) -> Array:
        """(n,) upper bounds; see `interval`."""
        return self.interval(Z)[1]

    def lower(self, Z: ArrayLike) -> Array:
        """(n,) lower bounds; see `interval`."""
        return self.interval(Z)[0]

    def mean(self, Z: ArrayLike) -> Array:
        """(n,) posterior mean at the regulariser that the data support best (closed forms: rho)."""
        return self._now.set.mean(self.kernel.base.points(Z), self._now.alpha)

    # How it is kept

    def fresh(self) -> Self:
        """The same sequence before it was told anything, to be told it again step by step.

        It goes on after an alarm, and intersects over time nowhere in particular (no ``points``).
        """
        settings = asdict(self.settings)
        if settings["on_alarm"] == "raise":
            settings["on_alarm"] = "widen"
        return type(self)(self.kernel, full=self.full or self.kernel, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of what it was told and found; `from_dict` needs the kernel again."""
        if callable(self.settings.norm_bound):
            raise InputError("a norm_bound that is a function cannot be stored; store the data")
        kept = self._intersection
        return {
            "format": FORMAT,
            "version": 1,
            "settings": {**asdict(self.settings), "remember": kept.remember},
            "points": None if kept.points is None else kept.points.tolist(),
            "told": self._told.to_list(),
            "stage": self._stage,
            "alarms": [asdict(event) for event in self._alarms],
            "past": [time for time, _, _ in kept.past],
            "running": kept.running and [_finite(bound) for bound in kept.running],
        }

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], kernel: KernelSum, full: KernelSum | None = None
    ) -> Self:
        """Inverse of `to_dict`, given the same kernels; goes on exactly as the stored one would."""
        if data.get("format") != FORMAT or data.get("version") != 1:
            raise InputError(
                f"stored sequence has format {data.get('format')!r}; expected {FORMAT!r}, version 1"
            )
        sequence = cls(kernel, full=full, points=data["points"], **data["settings"])
        sequence._replay(data)
        return sequence

    def _replay(self, data: Mapping[str, Any]) -> None:
        self._stage = int(data["stage"])
        self._alarms = [AlarmEvent(**event) for event in data["alarms"]]
        kept = self._intersection
        for batch in Told.from_list(data["told"], self.kernel).batches:
            self._observations = [o.append(batch) for o in self._observations]
            self._told = self._told.with_batch(batch)
            if self.t in data["past"]:
                kept = kept.keeping(self.t, self._told.t_before_last, self._assess().set)
        if data["running"] is not None:
            lower, upper = (np.array(bound, dtype=np.float64) for bound in data["running"])
            running = np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf)
            kept = replace(kept, running=running)
        self._now = self._assess()
        self._intersection = kept

    @property
    def _intersects(self) -> bool:
        return self.method == "dmm" and not callable(self.settings.norm_bound)

    def _assess(self) -> Assessment:
        return assess(self.settings, self._hypotheses, self._stage, self._observations, self.t)


def _finite(bound: Array) -> list[float | None]:
    return [float(b) if np.isfinite(b) else None for b in bound]
