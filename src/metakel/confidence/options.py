"""The options of a confidence sequence, checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

import numpy as np

from metakel._arrays import Array, as_number, check_choice, positive
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum

# (n, d0) points -> (n,) values
Centre = Callable[[Array], Array]


def centre_at(centre: Centre, Z: Array) -> Array:
    """(n,) values of a centre at ``Z`` (n, d0), checked."""
    values = np.asarray(centre(Z), dtype=np.float64)
    if values.shape != (len(Z),):
        raise ShapeError(
            f"centre returned shape {values.shape} for {len(Z)} points; expected ({len(Z)},)"
        )
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise InputError(f"centre is {values[bad]} at {Z[bad].tolist()}; expected finite numbers")
    return values


Method = Literal["dmm", "amm", "ay", "paper", "paper-corrected", "oracle"]
NormBound = float | Callable[[int], float] | None


@dataclass(frozen=True)
class ConfidenceOptions:
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
    misspecification_weight: float
    rho: float | None
    beta_min: float | None
    recovery_error: float | None
    slack: float = 0.0
    watch_kernels: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        check_choice("norm_of", self.norm_of, ("truth", "kernel"))
        check_choice("on_alarm", self.on_alarm, ("widen", "raise", "ignore"))
        for name in ("noise_std", "rho", "beta_min"):
            if name == "noise_std" or getattr(self, name) is not None:
                self._set(name, positive(name, getattr(self, name)))
        for name in ("delta", "delta_learning"):
            self._set(name, as_number(name, getattr(self, name)))
        self._check_delta()
        weight = as_number("misspecification_weight", self.misspecification_weight, 0, 1)
        self._set("misspecification_weight", weight)
        if self.norm_range is not None and not 0 < self.norm_range[0] < self.norm_range[1] < inf:
            raise InputError(f"norm_range is {self.norm_range}; expected 0 < low < high")
        for scale in self.norm_scales or ():
            positive("norm_scales", scale)
        if self.norm_scales is not None and not len(self.norm_scales):
            raise InputError("norm_scales is empty; expected at least one positive number")
        self._set("slack", as_number("slack", self.slack, 0))
        if self.slack and self.method != "dmm":
            raise InputError(f'slack is {self.slack:g}, but method is {self.method!r}; use "dmm"')
        if self.watch_kernels and self.method != "dmm":
            raise InputError(f'watch_kernels is True, but {self.method!r} has no alarm; use "dmm"')
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
        if self.recovery_error is not None:
            self._set("recovery_error", as_number("recovery_error", self.recovery_error, 0))

    def _set(self, name: str, value: float) -> None:
        """Replace a NumPy number by one of Python, which JSON can store."""
        object.__setattr__(self, name, value)

    def check_kernel(self, kernel: KernelSum) -> None:
        """Raise if the method needs features that the kernel does not have."""
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
        """The part of delta that is left for the intervals themselves."""
        return self.delta - self.delta_learning

    def norm_at(self, t: int) -> float:
        """The norm bound after t observations; inf where there is none."""
        if self.norm_bound is None:
            return inf
        if callable(self.norm_bound):
            return positive(f"norm_bound({t})", self.norm_bound(t))
        return positive("norm_bound", self.norm_bound)
