"""Confidence sequences: intervals for all points and all times together (Eq. 2, Theorem 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel._files import Format
from metakel.confidence.fallback import (
    Alarm,
    AlarmEvent,
    Hypothesis,
    State,
    first_stage,
    hypotheses,
    mixture,
    wider_kernels,
)
from metakel.confidence.observations import Batch, ObservationLog, Spectrum, no_observations
from metakel.confidence.radius import Centre, ConfidenceOptions, Method, NormBound, centre_at
from metakel.confidence.set import ConfidenceSet, Intersection
from metakel.errors import InputError
from metakel.kernels.sum import KernelFunction, KernelSum, as_kernel

FORMAT = Format("metakel.ConfidenceSequence", version=2, noun="sequence")


class ConfidenceSequence:
    """Intervals that hold for all points and all times at once, with probability 1 - delta.

    Values are f(x) plus noise that is sigma-sub-Gaussian given the past (Eq. 1), and the points may
    be chosen in any way that depends on the past only. f lies in the space of ``kernel`` with a
    bounded norm.

    Parameters
    ----------
    kernel : KernelSum
        One without any active base kernel, from a history in which nothing stood out of the noise,
        is replaced by ``full`` from the start, with a warning: that does not make f zero.
    noise_std : float
        Bound of the noise level sigma (its sub-Gaussian proxy).
    norm_bound : float, callable or None
        B. None assumes nothing and gives infinite intervals until the observed points span the
        features (feature kernels only). A callable t -> B_t, increasing without bound, holds
        from the time on at which B_t has passed the norm of f; a B_t that the data contradict
        is doubled.
    delta : float
        Total probability of error.
    delta_learning : float
        The part of delta that was spent on learning the kernel: that the noise of the history
        misled it. The intervals get the rest, ``delta_deciding``. 0 for a kernel that was not
        learned. That no base kernel was too weak to be seen there is an assumption, not a part of
        delta; the alarm checks it.
    method : "dmm", "amm", "ay", "paper-corrected", "paper" or "oracle"
        "dmm" is the tightest: every function that fits the data and has a small norm, intersected
        over time. The others are closed forms (`closed_form`) of the present time.
    norm_of : "truth" or "kernel"
        Whose norm B bounds: that of the true kernel, with weights of at most 1 on some of the
        active base kernels, or that of ``kernel`` itself. For "truth" the bound in the norm of
        ``kernel`` is B / sqrt(its smallest weight): use weights of 1.
    on_alarm : "widen", "stop", "raise" or "ignore"
        What to do when no function fits, which has probability at most delta unless a base kernel
        is missing, or B or the noise is too small. "widen" falls back to all base kernels, and if
        these do not fit either, to any norm (kernels without features: a doubled norm bound), from
        then on and with all observations; the intervals hold at the same delta for the wider
        assumption. "raise" raises `Alarm` after recording the observation, then continues like
        "widen". "ignore" enlarges the set until it is not empty; nothing is guaranteed then. Only
        "dmm" has an alarm.
    full : KernelSum or sequence of KernelSum, optional
        What "widen" falls back to, and half of the mixture; by default weight 1 on every base
        kernel. Give ``kernel`` itself to spend nothing on it; the alarm then notices a wrong B
        only. Several kernels are a ladder, such as `LearnedKernel.ladder`: each contains the one
        before it, and an alarm falls back by one. f must lie in the last.
    points : (n, d0) array, optional
        A finite domain on which the intersection over the times after each `tell` is exact.
    remember : int
        At most how many past sets `interval` intersects with elsewhere: the previous one and the
        first ones past the powers of 2. Any choice is valid; it narrows by a few per cent.
    norm_scales : sequence of float, optional
        Scales of the mixture of "dmm": guesses of the norm of f in the norm of ``kernel``, fixed in
        advance. By default B, B/2, ..., B/128; any are valid.
    norm_range : (low, high), optional
        Range of the scales if there is no B, in units of the values: by default from a hundredth
        to a million times the noise (over the root of the smallest weight), so that units do not
        matter.
    misspecification_weight : float
        Weight in the mixture of scales above all of these, at which f would stand out of the noise
        (1, 8, 64 and 512 times it). The alarm needs them: without them it would not notice a B
        that is small against the noise, however wrong. Any weight is valid; 0.01 makes R_t^2
        larger by 0.02. With ``norm_scales`` there are none.
    rho : float, optional
        Regulariser of "amm", "ay" and "paper-corrected", by default noise_std^2 (1 + 2/t for
        "paper-corrected"). If noise differs by observation, that of observation i is
        rho (noise_std_i / noise_std)^2.
    beta_min, recovery_error : float, optional
        c_1 and epsilon of Theorem 5.1, for "paper" only; the kernel is then taken as it is given.
    centre : (n, d0) -> (n,), optional
        What f is expected to be, such as the mean of past tasks; 0 by default. The assumptions are
        then about f minus this function. It must not depend on the values of this sequence.
    slack : float
        How far f may be from the functions that are assumed, at every point: some function with
        this kernel and norm is within ``slack`` of f. The intervals stay valid and get wider, by
        about slack (1 + sqrt(number of features)) after many values (Statement 5 of
        ``docs/guide/safe-search.md``). Only "dmm" has it.
    watch_kernels : bool
        Give a quarter of the mixture to kernels with one base kernel more, so that the alarm
        notices a single missing one earlier. ``kernel`` keeps its half, so R_t^2 grows no further.
        Every `tell` then takes one small decomposition for each base kernel that is missing.
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
        on_alarm: Literal["widen", "stop", "raise", "ignore"] = "widen",
        full: KernelSum | Sequence[KernelSum] | None = None,
        points: ArrayLike | None = None,
        remember: int = 4,
        norm_scales: Sequence[float] | None = None,
        norm_range: tuple[float, float] | None = None,
        misspecification_weight: float = 0.01,
        rho: float | None = None,
        beta_min: float | None = None,
        recovery_error: float | None = None,
        centre: Centre | None = None,
        slack: float = 0.0,
        watch_kernels: bool = False,
    ) -> None:
        self.kernel = kernel = as_kernel("kernel", kernel)
        self.options = ConfidenceOptions(
            noise_std=noise_std,
            norm_bound=norm_bound,
            delta=delta,
            delta_learning=delta_learning,
            method=method,
            norm_of=norm_of,
            on_alarm=on_alarm,
            norm_scales=None if norm_scales is None else tuple(map(float, norm_scales)),
            norm_range=None if norm_range is None else (float(norm_range[0]), float(norm_range[1])),
            misspecification_weight=misspecification_weight,
            rho=rho,
            beta_min=beta_min,
            recovery_error=recovery_error,
            slack=slack,
            watch_kernels=bool(watch_kernels),
        )
        if not (centre is None or callable(centre)):
            raise InputError(f"centre is {centre!r}; expected a function of points (n, d0)")
        self.centre = centre
        self.options.check_kernel(kernel)
        if remember < 0:
            raise InputError(f"remember is {remember}; expected an integer >= 0")
        self.wider = wider_kernels(self.options, kernel, full)
        domain = None if points is None else kernel.base.points(points)
        ladder = hypotheses(self.options, kernel, self.wider)
        members = mixture(self.options, ladder, len(self.wider))
        data = tuple(no_observations(member.kernel) for member in members)
        stage = first_stage(self.options, kernel, self.wider)
        self._state = State(self.options, ladder, members, data, stage)
        self._kept, _ = Intersection(domain, remember).narrowed(self.current)
        self.alarms: tuple[AlarmEvent, ...] = ()  # each falls back to a wider assumption
        self._at_points = 0.0 if domain is None else self._centre_at(domain)

    @property
    def full(self) -> KernelSum | None:
        """The widest kernel to fall back to; None where there is no other."""
        return self.wider[-1] if self.wider else None

    @property
    def t(self) -> int:
        """Number of observations."""
        return self.told.t

    @property
    def told(self) -> ObservationLog:
        """The record of all observations, call by call."""
        return self._state.log

    @property
    def delta(self) -> float:
        """Total probability of error: `delta_learning` plus `delta_deciding`."""
        return self.options.delta

    @property
    def delta_learning(self) -> float:
        """The part of delta that was spent on learning the kernel."""
        return self.options.delta_learning

    @property
    def delta_deciding(self) -> float:
        """The probability with which the intervals themselves may fail."""
        return self.options.delta_deciding

    @property
    def method(self) -> Method:
        """How the intervals are computed."""
        return self.options.method

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last alarm, None as long as the data agree with the assumptions."""
        return self.alarms[-1] if self.alarms else None

    @property
    def hypothesis(self) -> Hypothesis | None:
        """What is assumed of f at present; None if nothing that was tried fits the data."""
        return self._state.hypothesis

    @property
    def radius(self) -> float:
        """ "dmm": R_t, the largest ||f(X) - y|| in units of the noise; closed forms: nu_t."""
        return self._state.now.radius

    @property
    def alpha(self) -> float:
        """Regulariser of `mean`, in units of the noise variance."""
        return self._state.now.alpha

    @property
    def points(self) -> Array | None:
        """(n, d0) the finite domain on which the intersection over time is exact, if any."""
        return self._kept.points

    def _centre_at(self, Z: Array) -> Array | float:
        return 0.0 if self.centre is None else centre_at(self.centre, Z)

    @property
    def largest_norm_scale(self) -> float:
        """The largest scale of the mixture in the widest kernel."""
        return float(self._state.hypotheses[-1].norm_scales.max())

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet.

        In the eigenbasis of the kernel that is assumed at present. With pending points only the
        eigenvalues and directions are meaningful; they give the variances after these runs.
        """
        data = next(o for o in self._state.observations if o.kernel is self.current.kernel)
        if len(pending):
            noise = np.full(len(pending), self.options.noise_std)
            data = data.append(Batch(pending, np.zeros(len(pending)), noise))
        return data.spectrum()

    @property
    def current(self) -> ConfidenceSet:
        """The set of the present time alone, for fast bounds and gradients.

        It holds functions that are within ``slack`` of f minus the centre.
        """
        return self._state.now.set

    def __repr__(self) -> str:
        assumed = "nothing" if self.hypothesis is None else str(self.hypothesis)
        return (
            f"ConfidenceSequence({self.method!r}, t={self.t}, "
            f"delta={self.delta:g} (learning {self.delta_learning:g}, "
            f"deciding {self.delta_deciding:g}), {assumed}, alarm={self.alarm})"
        )

    def tell(self, X: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike | None = None) -> None:
        """Add observations; after an error nothing has changed.

        Parameters
        ----------
        X : (n, d0) or (d0,) array
            For d0 = 1 a vector is n points, and a number is one.
        y : (n,) array or float
        noise_std : float or (n,) array, optional
            Noise level of these observations if it is not that of the sequence. It must not depend
            on ``y``.
        """
        given = self.options.noise_std if noise_std is None else noise_std
        batch = self.told.checked(self.kernel, X, y, given)
        self.options.check_noise(batch.noise_std)
        if not len(batch.y):
            return
        known = self.alarms
        self._state, self._kept, self.alarms = self._after(batch)
        if self.options.on_alarm == "raise" and len(self.alarms) > len(known):
            raise Alarm(f"after {self.t} observations: {self.alarms[-1].reason}")

    def extended(
        self, X: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike | None = None
    ) -> tuple[Self, Alarm | None]:
        """Another sequence that was told these as well, and the alarm that it raised, if any."""
        other, raised = copy(self), None
        try:
            other.tell(X, y, noise_std)
        except Alarm as alarm:  # which is raised after the observations were taken in
            raised = alarm
        return other, raised

    def _after(self, batch: Batch) -> tuple[State, Intersection, tuple[AlarmEvent, ...]]:
        """State, intersection and alarms after one more batch: an alarm where no function fits."""
        state, alarms = self._state.observed(batch, self._centre_at(batch.X)), self.alarms
        earlier = self._kept
        if self.method != "dmm" or callable(self.options.norm_bound):
            earlier = earlier.forgetting()  # closed forms and a growing B are not intersected
        elif self.t:
            earlier = earlier.keeping(self.told, self.current)
        kept, agreed = earlier.narrowed(state.now.set)
        while (state.now.empty or not agreed) and state.hypothesis is not None:
            reason = f"{state.hypothesis} does not fit;"
            if self.options.on_alarm == "ignore":
                kept, _ = earlier.forgetting().narrowed(state.now.set)
                return state, kept, alarms or (AlarmEvent(state.log.t, f"{reason} ignored"),)
            state = replace(state, stage=state.stage + 1)
            reason += f" assumed from here on: {state.hypothesis or 'nothing (check noise_std)'}"
            alarms = (*alarms, AlarmEvent(state.log.t, reason))
            kept, agreed = earlier.forgetting().narrowed(state.now.set)
        return state, kept, alarms

    def interval(self, Z: ArrayLike | None = None, *, refine: bool = True) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of f at ``Z``, by default at the ``points`` of the sequence.

        At ``points`` this is the intersection over the times after every `tell`, elsewhere over
        the present and the remembered ones. ``refine=False`` is faster and slightly wider.
        """
        slack = self.options.slack
        if Z is not None:
            points = self.kernel.base.points(Z)
            centre = self._centre_at(points)
            lower, upper = self._kept.interval(points, self.current, refine=refine)
            return lower + (centre - slack), upper + (centre + slack)
        if self._kept.running is None:
            raise InputError(
                "interval: no Z was given, and there is no finite domain to take its place; give "
                "the points, as in interval(Z) with Z of shape (n, d0), or make the sequence with "
                "points="
            )
        lower, upper = self._kept.running
        return lower + (self._at_points - slack), upper + (self._at_points + slack)

    def upper(self, Z: ArrayLike) -> Array:
        """(n,) upper bounds; see `interval`."""
        return self.interval(Z)[1]

    def lower(self, Z: ArrayLike) -> Array:
        """(n,) lower bounds; see `interval`."""
        return self.interval(Z)[0]

    def mean(self, Z: ArrayLike) -> Array:
        """(n,) posterior mean at the regulariser that the data support best (closed forms: rho)."""
        points = self.kernel.base.points(Z)
        return self.current.mean(points, self.alpha) + self._centre_at(points)

    def fresh(self) -> Self:
        """The same sequence before its first observation, to replay the observations step by step.

        It continues after an alarm, and has no ``points``.
        """
        return self.over(None, on_alarm="widen" if self.options.on_alarm == "raise" else None)

    def over(
        self,
        points: ArrayLike | None,
        *,
        negated: bool = False,
        delta: float | None = None,
        on_alarm: str | None = None,
    ) -> Self:
        """The same assumptions before any observation, about the points of a finite domain.

        Parameters
        ----------
        points : (n, d0) array or None
            See `ConfidenceSequence`.
        negated : bool
            Whether it is about minus the function, which is then minus its centre away.
        delta, on_alarm : optional
            Others than those of this sequence.
        """
        options, centre = asdict(self.options), self.centre
        if negated and centre is not None:
            centre = negative(centre)
        options |= {"remember": self._kept.remember, "centre": centre, "points": points}
        options |= {} if delta is None else {"delta": delta}
        options |= {} if on_alarm is None else {"on_alarm": on_alarm}
        return type(self)(self.kernel, full=self.wider or self.kernel, **options)

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of options and state; `from_dict` needs kernel and centre again."""
        if callable(self.options.norm_bound):
            raise InputError("a norm_bound that is a function cannot be stored; store the data")
        kept = self._kept
        return FORMAT.dump(
            {
                "options": {**asdict(self.options), "remember": kept.remember},
                "points": None if kept.points is None else kept.points.tolist(),
                "told": self.told.to_list(),
                "stage": self._state.stage,
                "alarms": [asdict(event) for event in self.alarms],
                "past": [time for time, _, _ in kept.past],
                "running": kept.running and [_finite(bound) for bound in kept.running],
            }
        )

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        kernel: KernelSum,
        full: KernelSum | Sequence[KernelSum] | None = None,
        centre: Centre | None = None,
    ) -> Self:
        """Inverse of `to_dict`, given the same kernels and centre; continues like the first."""
        with FORMAT.load(data) as content:
            options = {**content["options"], "points": content["points"], "centre": centre}
            sequence = cls(kernel, full=full, **options)
            sequence._restore(content)
            return sequence

    def _restore(self, content: Mapping[str, Any]) -> None:
        """From the state before the first observation to the one that was stored."""
        stage, first, last = int(content["stage"]), self._state.stage, len(self._state.hypotheses)
        if not first <= stage <= last:  # below the first: an empty kernel, by an older version
            raise InputError(
                f"stored sequence is at stage {stage}; expected {first} to {last}. Make a new "
                "sequence from its data"
            )
        self.alarms = tuple(AlarmEvent(**event) for event in content["alarms"])
        self._state = replace(self._state, stage=stage)
        for batch in ObservationLog.from_list(content["told"], self.kernel).batches:
            self._state = self._state.observed(batch, self._centre_at(batch.X))
            if self.t in content["past"]:
                self._kept = self._kept.keeping(self.told, self.current)
        if content["running"] is not None:
            lower, upper = (np.array(bound, dtype=np.float64) for bound in content["running"])
            running = np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf)
            self._kept = replace(self._kept, running=running)


def _finite(bound: Array) -> list[float | None]:
    return [float(b) if np.isfinite(b) else None for b in bound]


def negative(centre: Centre) -> Centre:
    """Minus the function."""
    return -centre if isinstance(centre, KernelFunction) else lambda Z: -centre(Z)
