"""Confidence sequences: intervals for all points and all times together (Eq. 2, Theorem 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel._files import Format, Functions, decode, encode
from metakel.confidence.fallback import (
    Alarm,
    AlarmEvent,
    Hypothesis,
    Intersection,
    Knowledge,
    SequenceState,
    first_stage,
    hypotheses,
    wider_kernel,
)
from metakel.confidence.methods import (
    DMM,
    Center,
    ClosedForm,
    ConfidenceOptions,
    Learned,
    MethodName,
    NormBound,
    NormOf,
    OnAlarm,
    as_method,
    center_at,
    negative,
    storable_center,
)
from metakel.confidence.set import (
    Batch,
    ConfidenceSet,
    ObservationLog,
    Spectrum,
    no_observations,
)
from metakel.errors import InputError
from metakel.kernels.sum import KernelFunction, KernelSum, as_kernel

FORMAT = Format("metakel.ConfidenceSequence", version=4, noun="sequence")


class ConfidenceSequence:
    """Intervals that hold for all points and all times at once, with probability 1 - delta.

    Values are f(x) plus noise that is sigma-sub-Gaussian given the past (Eq. 1), and the points may
    be chosen in any way that depends on the past only. f lies in the space of ``kernel`` with a
    bounded norm.

    Parameters
    ----------
    kernel : LearnedKernel or KernelSum
        A learned kernel brings its noise level, the share of delta that learning spent, and weights
        that do not bet on the selection: base kernels that were not selected keep the weight that
        they can have without having been noticed (`LearnedKernel.confidence_kernel`). A sum of
        kernels is taken as it is: ``learned.kernel`` says that what was not selected is not there.
        One without any active base kernel is replaced by ``full`` from the start, with a warning:
        that nothing stood out of the noise does not make f zero.
    noise_std : float, optional
        Bound of the noise level sigma (its sub-Gaussian proxy). A learned kernel has one.
    norm_bound : float, callable or None
        B. None assumes nothing and gives infinite intervals until the observed points span the
        features (feature kernels only). A callable t -> B_t, increasing without bound, holds
        from the time on at which B_t has passed the norm of f; a B_t that the data contradict
        is doubled.
    delta : float
        Total probability of error.
    delta_learning : float, optional
        The part of delta that was spent on learning the kernel: that the noise of the history
        misled it. The intervals get the rest, ``delta_deciding``. By default that of the learned
        kernel, and 0 for a sum of kernels. That no base kernel is larger than the past allows is an
        assumption, not a part of delta; the alarm checks it.
    method : str, DMM or ClosedForm
        "dmm" holds every function that fits the data and has a small norm, intersected over time:
        the tightest where points are given, not always where its bound chooses them. The others
        are closed forms of the present time. `DMM` and `ClosedForm` have options of their own.
    norm_of : "truth", "kernel" or "all"
        Whose norm B bounds. "truth": that of the true kernel, with weights of at most 1 on some of
        the active base kernels; the bound in the norm of ``kernel`` is then B / sqrt(its smallest
        weight), so use weights of 1. "kernel": that of ``kernel`` itself. "all": that with weight
        1 on every base kernel, and it bounds the norm of ``kernel``, too; so it is for a learned
        kernel.
    on_alarm : "widen", "stop", "raise" or "ignore"
        What to do when no function fits, which has probability at most delta unless a base kernel
        is missing, or B or the noise is too small. "widen" falls back to all base kernels, and if
        these do not fit either, to any norm (kernels without features: a doubled norm bound), from
        then on and with all observations; the intervals hold at the same delta for the wider
        assumption. "raise" raises `Alarm` after recording the observation, then continues like
        "widen". "ignore" enlarges the set until it is not empty; nothing is guaranteed then. Only
        "dmm" has an alarm.
    full : KernelSum, optional
        What "widen" falls back to, and half of the mixture; by default weight 1 on every base
        kernel. Give ``kernel`` itself to spend nothing on it; the alarm then notices a wrong B
        only.
    points : (n, d0) array, optional
        A finite domain on which the intersection over the times after each `tell` is exact.
    center : (n, d0) -> (n,), optional
        What f is expected to be, such as the mean of past tasks; 0 by default. The assumptions are
        then about f minus this function. It must not depend on the values of this sequence.
    slack : float
        How far f may be from the functions that are assumed, at every point: some function with
        this kernel and norm is within ``slack`` of f. The intervals stay valid and get wider, by
        about slack (1 + sqrt(number of features)) after many values (Proposition 25 of
        ``docs/theory.md``). Only "dmm" has it.
    """

    def __init__(
        self,
        kernel: KernelSum | Learned,
        *,
        norm_bound: NormBound,
        noise_std: float | None = None,
        delta: float = 0.1,
        delta_learning: float | None = None,
        method: MethodName | DMM | ClosedForm = "dmm",
        norm_of: NormOf | None = None,
        on_alarm: OnAlarm = "widen",
        full: KernelSum | None = None,
        points: ArrayLike | None = None,
        center: Center | None = None,
        slack: float = 0.0,
    ) -> None:
        learned = None if isinstance(kernel, KernelSum) else kernel
        if hasattr(learned, "confidence_kernel"):
            assert learned is not None
            kernel, norm_of = _soft(learned, norm_bound, norm_of), "all"
            noise_std = learned.noise_std if noise_std is None else noise_std
            delta_learning = learned.delta if delta_learning is None else delta_learning
        self.kernel = kernel = as_kernel("kernel", kernel)
        if noise_std is None:
            raise InputError(
                "noise_std is None; expected a positive number, which only a learned kernel brings"
            )
        self.options = ConfidenceOptions(
            noise_std=noise_std,
            norm_bound=norm_bound,
            delta=delta,
            delta_learning=0.0 if delta_learning is None else delta_learning,
            method=as_method(method),
            norm_of="truth" if norm_of is None else norm_of,
            on_alarm=on_alarm,
            slack=slack,
        )
        self.delta, self.delta_learning = self.options.delta, self.options.delta_learning
        self.delta_deciding = self.options.delta_deciding  # of the intervals themselves
        self.method = self.options.name
        if not (center is None or callable(center)):
            raise InputError(f"center is {center!r}; expected a function of points (n, d0)")
        self.center = center
        self.options.check_kernel(kernel)
        self.full = wider_kernel(self.options, kernel, full)
        domain = None if points is None else kernel.base.points(points)
        ladder, members = hypotheses(self.options, kernel, self.full)
        data = tuple(no_observations(member.kernel) for member in members)
        stage = first_stage(self.options, kernel, self.full)
        state = SequenceState(self.options, ladder, members, data, stage)
        kept, _ = Intersection(domain, self.options.dual.remember).narrowed(state.now.set)
        self._known = Knowledge(state, kept)
        self._at_points = 0.0 if domain is None else self._center_at(domain)

    @property
    def t(self) -> int:
        """Number of observations."""
        return self.told.t

    @property
    def told(self) -> ObservationLog:
        """The record of all observations, call by call."""
        return self._known.state.log

    @property
    def alarms(self) -> tuple[AlarmEvent, ...]:
        """All alarms; each falls back to a wider assumption."""
        return self._known.alarms

    @property
    def alarm(self) -> AlarmEvent | None:
        """The last alarm; None as long as the data agree with the assumptions."""
        return self.alarms[-1] if self.alarms else None

    @property
    def hypothesis(self) -> Hypothesis | None:
        """What is assumed of f at present; None if nothing that was tried fits the data."""
        return self._known.state.hypothesis

    @property
    def radius(self) -> float:
        """ "dmm": R_t, the largest ||f(X) - y|| in units of the noise; closed forms: nu_t."""
        return self._known.state.now.radius

    @property
    def log_evidence(self) -> float:
        """Logarithm of the mixture over kernels and scales behind R_t; 0 for closed forms."""
        return self._known.state.now.evidence

    @property
    def alpha(self) -> float:
        """Regulariser of `mean`, in units of the noise variance."""
        return self._known.state.now.alpha

    @property
    def points(self) -> Array | None:
        """(n, d0) the finite domain on which the intersection over time is exact, if any."""
        return self._known.kept.points

    def _center_at(self, Z: Array) -> Array | float:
        return 0.0 if self.center is None else center_at(self.center, Z)

    @property
    def largest_norm_scale(self) -> float:
        """The largest scale of the mixture in the widest kernel."""
        return float(self._known.state.hypotheses[-1].norm_scales.max())

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet.

        In the eigenbasis of the kernel that is assumed at present. With pending points only the
        eigenvalues and directions are meaningful; they give the variances after these runs.
        """
        seen = self._known.state.observations
        data = next(o for o in seen if o.kernel is self.current.kernel)
        if len(pending):
            noise = np.full(len(pending), self.options.noise_std)
            data = data.append(Batch(pending, np.zeros(len(pending)), noise))
        return data.spectrum()

    @property
    def current(self) -> ConfidenceSet:
        """The set of the present time alone, for fast bounds and gradients.

        It holds functions that are within ``slack`` of f minus the centre.
        """
        return self._known.state.now.set

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
        given, raised = self.extended(X, y, noise_std)
        self._known = given._known
        if raised is not None:
            raise raised

    def extended(
        self, X: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike | None = None
    ) -> tuple[Self, Alarm | None]:
        """Another sequence that was told these as well, and the alarm that it raised, if any."""
        level = self.options.noise_std if noise_std is None else noise_std
        batch = self.told.checked(self.kernel, X, y, level)
        self.options.check_noise(batch.noise_std)
        if not len(batch.y):
            return self, None
        known = self._known.after(batch, self._center_at(batch.X))
        other = object.__new__(type(self))
        vars(other).update(vars(self) | {"_known": known})
        if self.options.on_alarm != "raise" or len(known.alarms) == len(self.alarms):
            return other, None
        return other, Alarm(f"after {other.t} observations: {known.alarms[-1].reason}")

    def interval(self, Z: ArrayLike | None = None, *, refine: bool = True) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of f at ``Z``, by default at the ``points`` of the sequence.

        At ``points`` this is the intersection over the times after every `tell`, elsewhere over
        the present and the remembered ones. ``refine=False`` is faster and slightly wider.
        """
        slack = self.options.slack
        if Z is not None:
            points = self.kernel.base.points(Z)
            center = self._center_at(points)
            lower, upper = self._known.kept.interval(points, self.current, refine=refine)
            return lower + (center - slack), upper + (center + slack)
        if self._known.kept.running is None:
            raise InputError(
                "interval: no Z was given, and there is no finite domain to take its place; give "
                "the points, as in interval(Z) with Z of shape (n, d0), or make the sequence with "
                "points="
            )
        lower, upper = self._known.kept.running
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
        return self.current.mean(points, self.alpha) + self._center_at(points)

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
        center = negative(self.center) if negated else self.center
        options = vars(self.options).copy()
        options |= {} if delta is None else {"delta": delta}
        options |= {} if on_alarm is None else {"on_alarm": on_alarm}
        full = self.full or self.kernel  # the kernel itself stands for no other one
        return type(self)(self.kernel, full=full, center=center, points=points, **options)

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of assumptions, observations and state."""
        if callable(self.options.norm_bound):
            raise InputError("a norm_bound that is a function cannot be stored; store the data")
        kept = self._known.kept
        stored = StoredSequence(
            kernel=self.kernel,
            full=self.full,
            options=self.options,
            center=storable_center(self.center),
            points=kept.points,
            told=self.told.batches,
            stage=self._known.state.stage,
            alarms=self.alarms,
            past=tuple(time for time, _, _ in kept.past),
            running=kept.running,
        )
        return FORMAT.dump(encode(stored))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], functions: Functions | None = None) -> Self:
        """Inverse of `to_dict`; continues like the first.

        ``functions`` maps the names of the user's own kernels to them.
        """
        with FORMAT.load(data) as content:
            stored = decode(StoredSequence, content, f"stored {FORMAT.noun}", functions)
            sequence = cls(
                stored.kernel,
                full=stored.full or stored.kernel,
                center=stored.center,
                points=stored.points,
                **vars(stored.options),
            )
            state, kept = sequence._known.state, sequence._known.kept
            stage, first, last = stored.stage, state.stage, len(state.hypotheses)
            if not first <= stage <= last:
                raise InputError(f"stored sequence is at stage {stage}; expected {first} to {last}")
            state = replace(state, stage=stage)
            for told in stored.told:
                batch = state.log.checked(sequence.kernel, told.X, told.y, told.noise_std)
                state = state.observed(batch, sequence._center_at(batch.X))
                if state.log.t in stored.past:
                    kept = kept.keeping(state.log, state.now.set)
            if stored.running is not None:
                kept = replace(kept, running=stored.running)
            sequence._known = Knowledge(state, kept, stored.alarms)
            return sequence


@dataclass(frozen=True, eq=False)
class StoredSequence:
    """All that `ConfidenceSequence` cannot work out again, as `metakel._files` stores it."""

    kernel: KernelSum
    full: KernelSum | None
    options: ConfidenceOptions
    center: KernelFunction | None
    points: Array | None
    told: tuple[Batch, ...]
    stage: int
    alarms: tuple[AlarmEvent, ...]
    past: tuple[int, ...]  # times of the sets that are remembered
    running: tuple[Array, Array] | None  # intersection at the points


def _soft(learned: Learned, norm_bound: NormBound, norm_of: NormOf | None) -> KernelSum:
    """The weights of a learned kernel, which do not bet on its selection."""
    if norm_of not in (None, "all"):
        raise InputError(
            f'norm_of is {norm_of!r} beside a learned kernel, whose norm_bound is that of "all" '
            "base kernels with weight 1; leave it out, or give a kernel: learned.kernel for the "
            "selected ones alone"
        )
    first = norm_bound(0) if callable(norm_bound) else norm_bound
    return learned.confidence_kernel(first)
