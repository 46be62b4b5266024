"""Confidence sequences: intervals for all points and all times together (Eq. 2, Theorem 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel._json import check_format, reading
from metakel.confidence._validation import as_batch, as_kernel
from metakel.confidence.fallback import Alarm, AlarmEvent, Hypothesis, first_stage, second_kernel
from metakel.confidence.intersection import Intersection
from metakel.confidence.observation_log import Batch, ObservationLog
from metakel.confidence.options import Method, NormBound, Settings
from metakel.confidence.set import ConfidenceSet
from metakel.confidence.spectrum import Spectrum
from metakel.confidence.state import State
from metakel.confidence.storage import FORMAT, restored, stored
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum


class ConfidenceSequence:
    """Intervals that hold for all points and all times at once, with probability 1 - delta.

    Values are f(x) plus noise that is sigma-sub-Gaussian given the past (Eq. 1), and the points may
    be chosen in any way that depends on the past only. f lies in the space of ``kernel`` with a
    bounded norm.

    Parameters
    ----------
    kernel : KernelSum
        One without any active base kernel, from a history in which nothing stood out of the noise,
        is replaced by ``full`` from the start, with a warning: it does not make f zero.
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
        The part of delta that was spent on learning the kernel: that the noise of the history
        misled it. The intervals get the rest, ``delta_deciding``. 0 for a kernel that was not
        learned. That no base kernel was too weak to be seen there is an assumption, not a part of
        delta; the alarm watches over it.
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
    norm_range : (low, high), optional
        Where the guesses lie if there is no B, in units of the values: by default from a hundredth
        to a million times the noise (over the root of the smallest weight), so that units do not
        matter.
    watch : float
        The share of the mixture for guesses above all these, where f would stand out of the noise
        (1, 8, 64 and 512 times it). They are there for the alarm: without them it would not see a
        B that is small against the noise, however wrong. Any share is valid; 0.01 makes R_t^2
        larger by 0.02. With ``norm_scales`` there are none.
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
        norm_range: tuple[float, float] | None = None,
        watch: float = 0.01,
        rho: float | None = None,
        beta_min: float | None = None,
        recovery_error: float | None = None,
    ) -> None:
        self.kernel = kernel = as_kernel("kernel", kernel)
        self.settings = Settings(
            noise_std=noise_std,
            norm_bound=norm_bound,
            delta=delta,
            delta_learning=delta_learning,
            method=method,
            norm_of=norm_of,
            on_alarm=on_alarm,
            norm_scales=None if norm_scales is None else tuple(map(float, norm_scales)),
            norm_range=None if norm_range is None else (float(norm_range[0]), float(norm_range[1])),
            watch=watch,
            rho=rho,
            beta_min=beta_min,
            recovery_error=recovery_error,
        )
        self.settings.check_kernel(kernel)
        if remember < 0:
            raise InputError(f"remember is {remember}; expected an integer >= 0")
        full = full if full is None else as_kernel("full", full)
        self.full = second_kernel(self.settings, kernel, full)
        domain = None if points is None else kernel.base.points(points)
        kept = Intersection(domain, remember)
        stage = first_stage(self.settings, kernel, self.full)
        self._state = State.first(self.settings, kernel, self.full, kept, stage)

    # What it knows

    @property
    def t(self) -> int:
        """How many observations it was told."""
        return self._state.t

    @property
    def told(self) -> ObservationLog:
        """Everything it was told, call by call."""
        return self._state.told

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
        return self.alarms[-1] if self.alarms else None

    @property
    def alarms(self) -> tuple[AlarmEvent, ...]:
        """All alarms; each falls back to a wider assumption."""
        return self._state.alarms

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
        return self._state.intersection.points

    @property
    def largest_norm_scale(self) -> float:
        """The largest guess of the norm of f in the widest kernel."""
        return float(self._state.hypotheses[-1].norm_scales.max())

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet.

        In the eigenbasis of the kernel that is believed at present; with pending points only the
        eigenvalues and directions mean anything, which give the variances there will be.
        """
        data = next(o for o in self._state.observations if o.kernel is self.current.kernel)
        if len(pending):
            noise = np.full(len(pending), self.settings.noise_std)
            data = data.append(Batch(pending, np.zeros(len(pending)), noise))
        return data.spectrum()

    @property
    def current(self) -> ConfidenceSet:
        """The set of the present time alone: the fast way to bounds and gradients."""
        return self._state.now.set

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
        X : (n, d0) or (d0,) array
            For d0 = 1 a vector is n points, and a number is one.
        y : (n,) array or float
        noise_std : float or (n,) array, optional
            Noise level of these observations if it is not that of the sequence. It must not depend
            on ``y``.
        """
        given = self.settings.noise_std if noise_std is None else noise_std
        batch = self.told.checked(self.kernel, *as_batch(self.kernel, X, y), given)
        self.settings.check_noise(batch.noise_std)
        if not len(batch.y):
            return
        alarms_before = len(self.alarms)
        self._state = self._state.with_told(batch)
        if self.settings.on_alarm == "raise" and len(self.alarms) > alarms_before:
            raise Alarm(f"after {self.t} observations: {self.alarms[-1].reason}")

    # What it answers

    def interval(self, Z: ArrayLike | None = None, *, refine: bool = True) -> tuple[Array, Array]:
        """Lower and upper bounds (n,) of f at ``Z``, by default at the ``points`` of the sequence.

        At ``points`` this is the intersection over the times after every `tell`, elsewhere over
        the present and the remembered ones. ``refine=False`` is faster and slightly wider.
        """
        kept = self._state.intersection
        if Z is not None:
            return kept.interval(self.kernel.base.points(Z), self.current, refine=refine)
        if kept.running is None:
            raise InputError(
                "interval: no Z was given, and there is no finite domain to take its place; give "
                "the points, as in interval(Z) with Z of shape (n, d0), or make the sequence with "
                "points="
            )
        lower, upper = kept.running
        return lower.copy(), upper.copy()

    def upper(self, Z: ArrayLike) -> Array:
        """(n,) upper bounds; see `interval`."""
        return self.interval(Z)[1]

    def lower(self, Z: ArrayLike) -> Array:
        """(n,) lower bounds; see `interval`."""
        return self.interval(Z)[0]

    def mean(self, Z: ArrayLike) -> Array:
        """(n,) posterior mean at the regulariser that the data support best (closed forms: rho)."""
        return self.current.mean(self.kernel.base.points(Z), self._state.now.alpha)

    # How it is kept

    def fresh(self) -> Self:
        """The same sequence before it was told anything, to be told it again step by step.

        It goes on after an alarm, and intersects over time nowhere in particular (no ``points``).
        """
        settings = asdict(self.settings)
        if settings["on_alarm"] == "raise":
            settings["on_alarm"] = "widen"
        remember = self._state.intersection.remember
        return type(self)(self.kernel, full=self.full or self.kernel, remember=remember, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of what it was told and found; `from_dict` needs the kernel again."""
        return stored(self._state)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], kernel: KernelSum, full: KernelSum | None = None
    ) -> Self:
        """Inverse of `to_dict`, given the same kernels; goes on exactly as the stored one would."""
        check_format(data, "stored sequence", FORMAT)
        with reading("stored sequence"):
            # Before there was a watch, files did not speak of it. A mixture is fixed in advance.
            settings = {"watch": 0.0, **data["settings"]}
            sequence = cls(kernel, full=full, points=data["points"], **settings)
            sequence._state = restored(sequence._state, data)
            return sequence
