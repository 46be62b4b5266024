"""What a confidence sequence assumes and promises, checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, Literal, get_args

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum

Method = Literal["dmm", "amm", "ay", "paper", "paper-corrected", "oracle"]
# Squares are multiplied with squares, and the range of a float ends at 1e308.
EXTREME = 1e70
NormBound = float | Callable[[int], float] | None


@dataclass(frozen=True)
class Settings:
    """The arguments of `ConfidenceSequence` other than kernels and points; see there."""

    noise_std: float
    norm_bound: NormBound
    delta: float
    delta_learning: float
    method: Method
    norm_of: Literal["truth", "kernel"]
    on_alarm: Literal["widen", "raise", "ignore"]
    norm_scales: Sequence[float] | None
    norm_range: tuple[float, float] | None
    watch: float
    rho: float | None
    beta_min: float | None
    recovery_error: float | None

    def __post_init__(self) -> None:
        _check_choice("method", self.method, get_args(Method))
        _check_choice("norm_of", self.norm_of, ("truth", "kernel"))
        _check_choice("on_alarm", self.on_alarm, ("widen", "raise", "ignore"))
        for name in ("noise_std", "rho", "beta_min"):
            if name == "noise_std" or getattr(self, name) is not None:
                self._set(name, positive(name, getattr(self, name)))
        for name in ("delta", "delta_learning", "watch"):
            self._set(name, as_number(name, getattr(self, name)))
        self._check_delta()
        if not 0 <= self.watch < 1:
            raise InputError(f"watch is {self.watch}; expected 0 <= watch < 1")
        if self.norm_range is not None and not 0 < self.norm_range[0] < self.norm_range[1] < inf:
            raise InputError(f"norm_range is {self.norm_range}; expected 0 < low < high")
        for scale in self.norm_scales or ():
            positive("norm_scales", scale)
        if self.norm_scales is not None and not len(self.norm_scales):
            raise InputError("norm_scales is empty; expected at least one positive number")
        self._check_norm_bound()
        self._check_paper()

    def _check_delta(self) -> None:
        if 0 <= self.delta_learning < self.delta < 1:
            return
        found = (
            f"delta is {self.delta:g}, of which {self.delta_learning:g} was spent on learning the "
            "kernel; expected 0 <= delta_learning < delta < 1"
        )
        if self.delta_learning == 1:
            found += (
                ". 1 says that lambda was chosen by hand, so that nothing vouches for the learned "
                "kernel: learn it without lam, or say with delta_learning=0 that you trust it"
            )
        elif 0 < self.delta <= self.delta_learning < 1:
            found += (
                f". Give a delta above {self.delta_learning:g}, or learn with a smaller one: "
                f"learn_kernel(..., delta={min(self.delta, 1.0) / 2:g})"
            )
        raise InputError(found)

    def _check_norm_bound(self) -> None:
        if self.method != "dmm" and (self.norm_bound is None or callable(self.norm_bound)):
            raise InputError(
                f'method {self.method!r} needs a number as norm_bound; only "dmm" works without '
                "one, or with one that grows over time"
            )
        if self.norm_bound is not None:
            first = self.norm_at(0)
            if not callable(self.norm_bound):
                self._set("norm_bound", first)

    def _check_paper(self) -> None:
        if self.method == "paper" and (self.beta_min is None or self.recovery_error is None):
            raise InputError(
                'method "paper" is Theorem 5.1 as printed: it needs beta_min (c_1) and '
                'recovery_error (epsilon). Neither can be observed; "dmm" needs neither'
            )
        if self.recovery_error is None:
            return
        self._set("recovery_error", as_number("recovery_error", self.recovery_error))
        if not 0 <= self.recovery_error < inf:
            raise InputError(f"recovery_error is {self.recovery_error}; expected a number >= 0")

    def _set(self, name: str, value: float) -> None:
        """A number of Python in place of one of NumPy, which JSON would not keep."""
        object.__setattr__(self, name, value)

    def check_kernel(self, kernel: KernelSum) -> None:
        """Raise if the method needs features that the kernel has not got."""
        if kernel.finite:
            return
        if self.norm_bound is None:
            raise InputError(
                "norm_bound is None, but the kernel has base kernels without features, whose "
                "functions are not determined by any number of values; give a norm_bound"
            )
        if self.method in ("paper", "oracle"):
            raise InputError(
                f"method {self.method!r} uses the number of features of the kernel, which has "
                'base kernels without any; use "dmm", "amm", "ay" or "paper-corrected"'
            )

    def check_noise(self, noise_std: Array) -> None:
        """Raise if the method knows one noise level and observations (n,) have another."""
        literal = self.method in ("paper", "oracle", "paper-corrected")
        if literal and (noise_std != self.noise_std).any():
            raise InputError(
                f"method {self.method!r} knows one noise level, {self.noise_std:g}; "
                'use "dmm", "amm" or "ay" where it differs by observation'
            )

    @property
    def delta_deciding(self) -> float:
        """What is left of delta for the intervals themselves."""
        return self.delta - self.delta_learning

    def norm_at(self, t: int) -> float:
        """The norm bound after t observations, inf where there is none."""
        if self.norm_bound is None:
            return inf
        if callable(self.norm_bound):
            return positive(f"norm_bound({t})", self.norm_bound(t))
        return positive("norm_bound", self.norm_bound)


def positive(name: str, value: Any) -> float:
    """A number above 0, of Python or of NumPy, whose powers a float holds."""
    if not (is_number(value) and 0 < value < inf):
        raise InputError(f"{name} is {value!r}; expected a positive number")
    number = float(value)
    if not 1 / EXTREME <= number <= EXTREME:
        raise InputError(
            f"{name} is {value!r}; expected a number from {1 / EXTREME:g} to {EXTREME:g}, so that "
            "products of squares stay within the range of a float. Use other units"
        )
    return number


def as_number(name: str, value: Any) -> float:
    """A number, of Python or of NumPy."""
    if not is_number(value):
        raise InputError(f"{name} is {value!r}; expected a number")
    return float(value)


def is_number(value: Any) -> bool:
    """Whether it is a real number; True and False are none, though Python counts with them."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(known)}")
