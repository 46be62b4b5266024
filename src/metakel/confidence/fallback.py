"""Alarms, and what is assumed of f after one: from narrow hypotheses to wide ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from metakel._arrays import Array
from metakel.confidence.radius import (
    ConfidenceOptions,
    log_weights,
    misspecification_scales,
    norm_scales,
)
from metakel.errors import InputError, MetaKelError
from metakel.kernels.sum import KernelSum, as_kernel
from metakel.theory import norm_certificate

# How often a norm bound is doubled before nothing is assumed any more.
DOUBLINGS = 20
# Share of the mixture that kernels with one more base kernel have together.
WATCHED = 0.25


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
    share : float
        Weight of the kernel in the mixture.
    """

    kernel: KernelSum
    norm_bound: float
    norm_scales: Array
    misspecification_scales: Array = field(default_factory=lambda: np.zeros(0))
    misspecification_weight: float = 0.0
    share: float = 1.0

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


def wider_kernels(
    options: ConfidenceOptions, kernel: KernelSum, full: KernelSum | Sequence[KernelSum] | None
) -> tuple[KernelSum, ...]:
    """The kernels to fall back to, from narrow to wide; none where there is nothing to add."""
    if options.method != "dmm" or full is kernel:
        return ()
    if full is None:
        return () if len(kernel.active) == kernel.base.p else (everything(kernel),)
    if not isinstance(full, list | tuple):
        wider: tuple[KernelSum, ...] = (as_kernel("full", full),)
    else:
        wider = tuple(as_kernel(f"full[{i}]", rung) for i, rung in enumerate(full))
    for i, rung in enumerate(wider):
        if not len(rung.active):
            raise InputError(
                "full has no active base kernel; expected one that contains the kernel"
            )
        missing = np.setdiff1d(wider[i - 1].active if i else (), rung.active)
        if missing.size:
            raise InputError(
                f"full[{i}] lacks {rung.base.names[missing[0]]}, which is in full[{i - 1}]; "
                "expected a ladder, in which every kernel contains the one before it"
            )
    return wider


def first_stage(options: ConfidenceOptions, kernel: KernelSum, wider: Sequence[KernelSum]) -> int:
    """Index of the first of the `hypotheses`: that of ``kernel``, unless it is empty.

    The norm certificate holds for kernels that contain the true ones. That nothing stood out of
    the noise of the history does not make f zero, so an empty kernel certifies nothing, and all
    base kernels are assumed instead.
    """
    if len(kernel.active):
        return 0
    if not wider or options.norm_of == "kernel":
        why = (
            f'method {options.method!r} and full=kernel have no other; use "dmm", or'
            if not wider
            else 'norm_of="kernel" bounds no other norm; use norm_of="truth", or'
        )
        raise InputError(
            "the kernel has no active base kernel, so the only function in its space is 0; "
            f"{why} KernelSum.uniform(kernel.base, weight=1.0) for all of them"
        )
    warnings.warn(
        "the kernel has no active base kernel (nothing was learned), which does not make f zero; "
        f"{_count(wider[0])} base kernels are used instead",
        stacklevel=3,
    )
    return 1


def hypotheses(
    options: ConfidenceOptions, kernel: KernelSum, wider: Sequence[KernelSum], rivals: int = 0
) -> list[Hypothesis]:
    """The first hypothesis and its fallbacks, each of which contains the one before it.

    The given kernel with its norm bound, then the wider ones with theirs, then the widest with any
    norm. Kernels without features fit everything with any norm, so their norm bound is doubled
    instead, up to 20 times. All use the same radius R_t of the mixture, which assumes nothing about
    f, so that falling back costs no probability (Promise 2 of ``docs/promises.md``). ``rivals`` is
    how many other kernels there are in the mixture.
    """
    bound = options.norm_at(0)
    first = certified_norm(options, kernel, bound)
    own, each = _shares(options, kernel, len(wider) + rivals)
    ladder = [_hypothesis(options, kernel, first, norm_scales(options, kernel, first), own)]
    for rung in wider:
        ratio = _norm_ratio(options, kernel, rung)
        scales = ladder[0].norm_scales * ratio
        ladder.append(_hypothesis(options, rung, first * ratio, scales, each))
    last = ladder[-1]
    if np.isfinite(bound) and last.kernel.finite:
        ladder.append(replace(last, norm_bound=np.inf))
    elif not last.kernel.finite:
        larger = last.norm_bound * np.exp2(np.arange(1, DOUBLINGS + 1, dtype=np.float64))
        ladder += [replace(last, norm_bound=float(b)) for b in larger]
    return ladder


def watched(options: ConfidenceOptions, first: Hypothesis) -> list[Hypothesis]:
    """Neighbours of the first hypothesis: its kernel with one base kernel more.

    They are in the mixture for the alarm, and are no fallbacks: that one of them fits best does not
    mean that f has no other part. A base kernel that is in the kernel with a small weight counts as
    missing, too; it gets the largest one.
    """
    kernel, found = first.kernel, []
    if not options.watch_kernels or not len(kernel.active):
        return []
    missing = np.flatnonzero(kernel.eta < kernel.eta.max())
    for j in missing:
        eta = kernel.eta.copy()
        eta[j] = kernel.eta.max()
        found.append(
            replace(first, kernel=KernelSum(kernel.base, eta), share=WATCHED / len(missing))
        )
    return found


def rival_hypotheses(
    options: ConfidenceOptions, rivals: Sequence[KernelSum], share: float
) -> list[Hypothesis]:
    """Other kernels that f may have, in the mixture to tell when the own one does not fit.

    They are no fallbacks, and the radius grows by their number only: 2 log of it at most.
    """
    bounds = [certified_norm(options, rival, options.norm_at(0)) for rival in rivals]
    return [
        _hypothesis(options, rival, bound, norm_scales(options, rival, bound), share)
        for rival, bound in zip(rivals, bounds, strict=True)
    ]


def _shares(options: ConfidenceOptions, kernel: KernelSum, wider: int) -> tuple[float, float]:
    """Weights in the mixture of the first kernel and of each other one; the rest is `watched`."""
    watching = options.watch_kernels and (kernel.eta < kernel.eta.max(initial=0)).any()
    if not watching:
        return 1 / (1 + wider), 1 / (1 + wider)
    return (0.5, (0.5 - WATCHED) / wider) if wider else (1 - WATCHED, 0.0)


def _hypothesis(
    options: ConfidenceOptions,
    kernel: KernelSum,
    norm_bound: float,
    scales: Array,
    share: float,
) -> Hypothesis:
    beyond = misspecification_scales(options, kernel, scales)
    weight = options.misspecification_weight
    return Hypothesis(kernel, norm_bound, scales, beyond, weight, share)


def _count(kernel: KernelSum) -> str:
    p = kernel.base.p
    return f"all {p}" if len(kernel.active) == p else f"{len(kernel.active)} of {p}"


def _norm_ratio(options: ConfidenceOptions, kernel: KernelSum, full: KernelSum) -> float:
    """How much larger the norm bound is in the norm of ``full``."""
    if not len(kernel.active):
        return certified_norm(options, full, 1.0)
    if options.norm_of == "kernel":
        # For f in the space of the kernel itself; nothing is known of the norm outside of it.
        return float(np.sqrt(kernel.eta.max() / full.min_weight))
    return float(np.sqrt(kernel.min_weight / full.min_weight))
