"""What a confidence sequence assumes and how it computes: options of `ConfidenceSequence`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, Protocol, get_args

import numpy as np

from metakel._arrays import Array, as_number, check_choice, positive
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum

# (n, d0) points -> (n,) values
Center = Callable[[Array], Array]


def center_at(center: Center, Z: Array) -> Array:
    """(n,) values of a centre at ``Z`` (n, d0), checked."""
    values = np.asarray(center(Z), dtype=np.float64)
    if values.shape != (len(Z),):
        raise ShapeError(
            f"centre returned shape {values.shape} for {len(Z)} points; expected ({len(Z)},)"
        )
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise InputError(f"center is {values[bad]} at {Z[bad].tolist()}; expected finite numbers")
    return values


ClosedFormName = Literal["amm", "ay", "paper-corrected", "paper", "oracle"]
MethodName = Literal["dmm", "amm", "ay", "paper-corrected", "paper", "oracle"]
NormBound = float | Callable[[int], float] | None
NormOf = Literal["truth", "kernel", "all"]
OnAlarm = Literal["widen", "stop", "raise", "ignore"]


@dataclass(frozen=True)
class DMM:
    """The default method: every function that fits the data and has a small norm.

    How well it must fit is decided by a mixture over kernels and guesses of the norm, which are
    fixed in advance. All choices are valid; they change how wide the intervals are, and what the
    alarm notices.

    Parameters
    ----------
    norm_scales : sequence of float, optional
        Guesses of the norm of f in the norm of the kernel. By default B, B/2, ..., B/128.
    norm_range : (low, high), optional
        Range of the guesses if there is no B, in units of the values: by default from a hundredth
        to a million times the noise (over the root of the smallest weight), so that units do not
        matter.
    misspecification_weight : float
        Weight in the mixture of guesses above all of these, at which f would stand out of the noise
        (1, 8, 64 and 512 times it). The alarm needs them: without them it would not notice a B
        that is small against the noise, however wrong. 0.01 makes R_t^2 larger by 0.02. With
        ``norm_scales`` there are none.
    watch_kernels : bool
        Give a quarter of the mixture to kernels with one base kernel more, so that the alarm
        notices a single missing one earlier. The kernel keeps its half, so R_t^2 grows no further.
        Every `tell` then takes one small decomposition for each base kernel that is missing.
    noise_weight : float
        Weight in the mixture of the chi-square supermartingale, which bounds the distance of f from
        the values by what noise alone can have, whatever f is. It narrows intervals where f has
        many features, and lets the alarm notice noise that is larger than was said. 0.02 makes R_t
        larger by at most half a per cent where delta is at most 0.1.
    remember : int
        At most how many past sets `interval` intersects with at points that were not named in
        advance: the previous one and the first ones past the powers of 2. It narrows the intervals
        by a few per cent.
    """

    norm_scales: tuple[float, ...] | None = None
    norm_range: tuple[float, float] | None = None
    misspecification_weight: float = 0.01
    watch_kernels: bool = False
    noise_weight: float = 0.02
    remember: int = 4

    def __post_init__(self) -> None:
        weight = as_number("misspecification_weight", self.misspecification_weight, 0, 1)
        _set(self, "misspecification_weight", weight)
        _set(self, "noise_weight", as_number("noise_weight", self.noise_weight, 0, 0.5))
        if self.norm_scales is not None:
            scales = tuple(positive("norm_scales", scale) for scale in self.norm_scales)
            if not scales:
                raise InputError("norm_scales is empty; expected at least one positive number")
            _set(self, "norm_scales", scales)
        if self.norm_range is not None:
            low, high = (float(end) for end in self.norm_range)
            if not 0 < low < high < inf:
                raise InputError(f"norm_range is {self.norm_range}; expected 0 < low < high")
            _set(self, "norm_range", (low, high))
        if self.remember < 0:
            raise InputError(f"remember is {self.remember}; expected an integer >= 0")

    @property
    def name(self) -> MethodName:
        """ "dmm"."""
        return "dmm"


@dataclass(frozen=True)
class ClosedForm:
    """A closed form, mean plus and minus nu standard deviations, of the present time alone.

    Parameters
    ----------
    name : "amm", "ay", "paper-corrected", "paper" or "oracle"
        See `metakel.confidence.radius`.
    rho : float, optional
        Regulariser of "amm", "ay" and "paper-corrected", by default noise_std^2 (1 + 2/t for
        "paper-corrected"). If noise differs by observation, that of observation i is
        rho (noise_std_i / noise_std)^2.
    beta_min, recovery_error : float, optional
        c_1 and epsilon of Theorem 5.1, for "paper" only; the kernel is then taken as it is given.
    """

    name: ClosedFormName
    rho: float | None = None
    beta_min: float | None = None
    recovery_error: float | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.name, get_args(ClosedFormName))
        for name in ("rho", "beta_min"):
            if getattr(self, name) is not None:
                _set(self, name, positive(name, getattr(self, name)))
        if self.name == "paper" and (self.beta_min is None or self.recovery_error is None):
            raise InputError(
                'method "paper" is Theorem 5.1 as printed: it needs beta_min (c_1) and '
                "recovery_error (epsilon), ClosedForm('paper', beta_min=..., recovery_error=...). "
                'Neither can be observed; "dmm" needs neither'
            )
        if self.recovery_error is not None:
            _set(self, "recovery_error", as_number("recovery_error", self.recovery_error, 0))


def as_method(method: MethodName | DMM | ClosedForm) -> DMM | ClosedForm:
    """A method by its name, or with options of its own."""
    if isinstance(method, DMM | ClosedForm):
        return method
    check_choice("method", method, get_args(MethodName))
    return DMM() if method == "dmm" else ClosedForm(method)


@dataclass(frozen=True)
class ConfidenceOptions:
    """The arguments of `ConfidenceSequence` other than kernels and points; see there."""

    noise_std: float
    norm_bound: NormBound
    delta: float
    delta_learning: float
    method: DMM | ClosedForm
    norm_of: NormOf
    on_alarm: OnAlarm
    slack: float = 0.0

    def __post_init__(self) -> None:
        check_choice("norm_of", self.norm_of, get_args(NormOf))
        check_choice("on_alarm", self.on_alarm, get_args(OnAlarm))
        _set(self, "noise_std", positive("noise_std", self.noise_std))
        for name in ("delta", "delta_learning"):
            _set(self, name, as_number(name, getattr(self, name)))
        self._check_delta()
        _set(self, "slack", as_number("slack", self.slack, 0))
        if self.slack and self.name != "dmm":
            raise InputError(f'slack is {self.slack:g}, but method is {self.name!r}; use "dmm"')
        self._check_norm_bound()

    @property
    def name(self) -> MethodName:
        """Of the method."""
        return self.method.name

    @property
    def dual(self) -> DMM:
        """The options of "dmm"; its defaults for closed forms, which use none of them."""
        return self.method if isinstance(self.method, DMM) else DMM()

    def _check_delta(self) -> None:
        if 0 <= self.delta_learning < self.delta < 1:
            return
        found = (
            f"delta is {self.delta:g}, of which {self.delta_learning:g} was spent on learning the "
            "kernel; expected 0 <= delta_learning < delta < 1"
        )
        if self.delta_learning == 1:
            found += (
                ". 1 means that lambda was chosen by hand, so that nothing is guaranteed for the "
                "learned kernel: learn it without lam, or say with delta_learning=0 that you trust "
                "it"
            )
        elif 0 < self.delta <= self.delta_learning < 1:
            found += (
                f". Give a delta above {self.delta_learning:g}, or learn with a smaller one: "
                f"learn_kernel(..., delta={min(self.delta, 1.0) / 2:g})"
            )
        raise InputError(found)

    def _check_norm_bound(self) -> None:
        if self.name != "dmm" and (self.norm_bound is None or callable(self.norm_bound)):
            raise InputError(
                f'method {self.name!r} needs a number as norm_bound; only "dmm" works without '
                "one, or with one that grows over time"
            )
        if self.norm_bound is not None:
            first = self.norm_at(0)
            if not callable(self.norm_bound):
                _set(self, "norm_bound", first)

    def check_kernel(self, kernel: KernelSum) -> None:
        """Raise if the method needs features that the kernel does not have."""
        if kernel.finite:
            return
        if self.norm_bound is None:
            raise InputError(
                "norm_bound is None, but the kernel has base kernels without features, whose "
                "functions are not determined by any number of values; give a norm_bound"
            )
        if self.name in ("paper", "oracle"):
            raise InputError(
                f"method {self.name!r} uses the number of features of the kernel, which has "
                'base kernels without any; use "dmm", "amm", "ay" or "paper-corrected"'
            )

    def check_noise(self, noise_std: Array) -> None:
        """Raise if the method knows one noise level and observations (n,) have another."""
        literal = self.name in ("paper", "oracle", "paper-corrected")
        if literal and (noise_std != self.noise_std).any():
            raise InputError(
                f"method {self.name!r} knows one noise level, {self.noise_std:g}; "
                'use "dmm", "amm" or "ay" where it differs by observation'
            )

    @property
    def delta_deciding(self) -> float:
        """The part of delta that is left for the intervals themselves."""
        return self.delta - self.delta_learning

    def norm_at(self, t: int) -> float:
        """The norm bound after t observations; inf where there is none."""
        if self.norm_bound is None:
            return inf
        if callable(self.norm_bound):
            return positive(f"norm_bound({t})", self.norm_bound(t))
        return positive("norm_bound", self.norm_bound)


def _set(value: Any, name: str, found: Any) -> None:
    """Replace a NumPy number by one of Python, which JSON can store."""
    object.__setattr__(value, name, found)


class Learned(Protocol):
    """What `ConfidenceSequence` asks of a kernel that was learned: `LearnedKernel`."""

    @property
    def noise_std(self) -> float: ...
    @property
    def delta(self) -> float: ...
    def confidence_kernel(self, norm_bound: float | None) -> KernelSum: ...
