"""Alarms, and what is assumed of f after one: from narrow hypotheses to wide ones."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from metakel._arrays import Array
from metakel.confidence.options import ConfidenceOptions
from metakel.confidence.radius import log_weights, misspecification_scales, norm_scales
from metakel.errors import InputError, MetaKelError
from metakel.kernels.sum import KernelSum
from metakel.theory import norm_certificate

# How often a norm bound is doubled before nothing is assumed any more.
DOUBLINGS = 20


class Alarm(MetaKelError, RuntimeError):
    """No function that the assumptions allow fits the data (``on_alarm="raise"``)."""


@dataclass(frozen=True)
class AlarmEvent:
    """The confidence set became empty; under the assumptions this has probability at most delta.

    Parameters
    ----------
    time : int
        Number of observations at that time.
    reason : str
        What was contradicted, and what is assumed from then on.
    """

    time: int
    reason: str


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """f lies in the space of a kernel, with at most this norm there.

    Parameters
    ----------
    kernel : KernelSum
    norm_bound : float
        In the norm of ``kernel``; inf where none is assumed.
    norm_scales : (S,) array
        Scales of the mixture for this kernel.
    misspecification_scales : (W,) array
        Scales of the mixture above the norm bound, for the alarm.
    misspecification_weight : float
        Weight of the latter together.
    """

    kernel: KernelSum
    norm_bound: float
    norm_scales: Array
    misspecification_scales: Array = field(default_factory=lambda: np.zeros(0))
    misspecification_weight: float = 0.0

    @cached_property
    def scales(self) -> Array:
        """(S + W,) all scales of the mixture."""
        return np.concatenate([self.norm_scales, self.misspecification_scales])

    @cached_property
    def log_weights(self) -> Array:
        """(S + W,) logarithms of their weights."""
        return log_weights(
            len(self.norm_scales), len(self.misspecification_scales), self.misspecification_weight
        )

    def __str__(self) -> str:
        norm = f"norm at most {self.norm_bound:.4g}" if np.isfinite(self.norm_bound) else "any norm"
        return f"{len(self.kernel.active)} of {self.kernel.base.p} base kernels, {norm}"


def certified_norm(options: ConfidenceOptions, kernel: KernelSum, norm_bound: float) -> float:
    """Bound of ||f|| in the norm of ``kernel``: B / sqrt(min weight) if B is about the truth."""
    if options.norm_of == "kernel" or not len(kernel.active):
        return norm_bound
    return norm_certificate(norm_bound=norm_bound, smallest_weight=kernel.min_weight)


def everything(kernel: KernelSum) -> KernelSum:
    """Weight 1 on every base kernel, which keeps the norm bound B: no true weight exceeds 1."""
    return KernelSum.uniform(kernel.base, weight=1.0)


def second_kernel(
    options: ConfidenceOptions, kernel: KernelSum, full: KernelSum | None
) -> KernelSum | None:
    """The second kernel of the mixture and first fallback; None where there is nothing to add."""
    if options.method != "dmm" or full is kernel:
        return None
    if full is None:
        return None if len(kernel.active) == kernel.base.p else everything(kernel)
    if not len(full.active):
        raise InputError("full has no active base kernel; expected one that contains the kernel")
    return full


def first_stage(options: ConfidenceOptions, kernel: KernelSum, full: KernelSum | None) -> int:
    """Index of the first of the `hypotheses`: that of ``kernel``, unless it is empty.

    The norm certificate holds for kernels that contain the true ones. That nothing stood out of
    the noise of the history does not make f zero, so an empty kernel certifies nothing, and all
    base kernels are assumed instead.
    """
    if len(kernel.active):
        return 0
    if full is None or options.norm_of == "kernel":
        why = (
            f'method {options.method!r} and full=kernel have no other; use "dmm", or'
            if full is None
            else 'norm_of="kernel" bounds no other norm; use norm_of="truth", or'
        )
        raise InputError(
            "the kernel has no active base kernel, so the only function in its space is 0; "
            f"{why} KernelSum.uniform(kernel.base, weight=1.0) for all of them"
        )
    warnings.warn(
        "the kernel has no active base kernel (nothing was learned), which does not make f zero; "
        f"all {len(full.active)} base kernels are used instead",
        stacklevel=3,
    )
    return 1


def hypotheses(
    options: ConfidenceOptions, kernel: KernelSum, full: KernelSum | None
) -> list[Hypothesis]:
    """The first hypothesis and its fallbacks, each of which contains the one before it.

    The given kernel with its norm bound, then all base kernels with theirs, then all base kernels
    with any norm. Kernels without features fit everything with any norm, so their norm bound is
    doubled instead, up to 20 times. All use the same radius R_t of the mixture, which assumes
    nothing about f, so that falling back costs no probability.
    """
    bound = options.norm_at(0)
    first = certified_norm(options, kernel, bound)
    ladder = [_hypothesis(options, kernel, first, norm_scales(options, kernel, first))]
    if full is not None:
        ratio = _norm_ratio(options, kernel, full)
        scales = ladder[0].norm_scales * ratio
        ladder.append(_hypothesis(options, full, first * ratio, scales))
    last = ladder[-1]
    if np.isfinite(bound) and last.kernel.finite:
        ladder.append(replace(last, norm_bound=np.inf))
    elif not last.kernel.finite:
        larger = last.norm_bound * np.exp2(np.arange(1, DOUBLINGS + 1, dtype=np.float64))
        ladder += [replace(last, norm_bound=float(b)) for b in larger]
    return ladder


def _hypothesis(
    options: ConfidenceOptions, kernel: KernelSum, norm_bound: float, scales: Array
) -> Hypothesis:
    beyond = misspecification_scales(options, kernel, scales)
    weight = options.misspecification_weight
    return Hypothesis(kernel, norm_bound, scales, beyond, weight)


def _norm_ratio(options: ConfidenceOptions, kernel: KernelSum, full: KernelSum) -> float:
    """How much larger the norm bound is in the norm of ``full``."""
    if not len(kernel.active):
        return certified_norm(options, full, 1.0)
    if options.norm_of == "kernel":
        # For f in the space of the kernel itself; nothing is known of the norm outside of it.
        return float(np.sqrt(kernel.eta.max() / full.min_weight))
    return float(np.sqrt(kernel.min_weight / full.min_weight))
