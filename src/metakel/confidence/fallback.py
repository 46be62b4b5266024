"""What is assumed of f, from narrow hypotheses to wide ones, and the set that follows.

An alarm is given by `ConfidenceSequence`, once the set is empty, and by `Mixture`, once the values
contradict the past.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, log, sqrt

import numpy as np

from metakel._arrays import Array
from metakel.confidence.methods import (
    ConfidenceOptions,
    log_evidence,
    log_mixture,
    log_weights,
    misspecification_scales,
    norm_scales,
    regularizer_and_nu,
    squared_radius,
)
from metakel.confidence.set import (
    ROUNDING,
    Batch,
    ConfidenceSet,
    ObservationLog,
    Observations,
    Spectrum,
    closed_form_set,
    dual_set,
    interval_of,
    no_observations,
    smallest_squared_radius,
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
    """The values contradict what was assumed: a confidence set is empty, or the past does not fit.

    An empty confidence set has probability at most delta under the assumptions.

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
    """f lies in the space of a kernel, with at most this norm there."""

    kernel: KernelSum
    norm_bound: float  # in the norm of the kernel; inf where none is assumed
    norm_scales: Array  # (S,) scales of the mixture for this kernel
    scales: Array  # (S + W,) the same, and scales above the norm bound, for the alarm
    log_weights: Array  # (S + W,) logarithms of their weights
    share: float  # weight of the kernel in the mixture

    @classmethod
    def of(
        cls,
        options: ConfidenceOptions,
        kernel: KernelSum,
        norm_bound: float,
        own: Array,
        share: float,
    ) -> Hypothesis:
        """With the scales (S,) for this kernel, and those above the norm bound."""
        beyond = misspecification_scales(options, kernel, own)
        weights = log_weights(len(own), len(beyond), options.dual.misspecification_weight)
        return cls(kernel, norm_bound, own, np.concatenate([own, beyond]), weights, share)

    def __str__(self) -> str:
        norm = f"norm at most {self.norm_bound:.4g}" if np.isfinite(self.norm_bound) else "any norm"
        return f"{len(self.kernel.active)} of {self.kernel.base.p} base kernels, {norm}"


def certified_norm(options: ConfidenceOptions, kernel: KernelSum, norm_bound: float) -> float:
    """Bound of ||f|| in the norm of ``kernel``: B / sqrt(min weight) if B is about the truth."""
    if options.norm_of != "truth" or not len(kernel.active):
        return norm_bound
    return norm_certificate(norm_bound=norm_bound, smallest_weight=kernel.min_weight)


def everything(kernel: KernelSum) -> KernelSum:
    """Weight 1 on every base kernel, which keeps the norm bound B: no true weight exceeds 1."""
    return KernelSum.uniform(kernel.base, weight=1.0)


def wider_kernel(
    options: ConfidenceOptions, kernel: KernelSum, full: KernelSum | None
) -> KernelSum | None:
    """The kernel to fall back to; None where there is nothing to add."""
    if options.name != "dmm" or full is kernel:
        return None
    if full is None:
        # Small weights on all base kernels are an assumption, too, unless it is their own norm.
        small = options.norm_of == "all" and (kernel.eta < 1).any()
        narrow = small or len(kernel.active) < kernel.base.p
        return everything(kernel) if narrow else None
    if not len(as_kernel("full", full).active):
        raise InputError("full has no active base kernel; expected one that contains the kernel")
    return full


def first_stage(options: ConfidenceOptions, kernel: KernelSum, wider: KernelSum | None) -> int:
    """Index of the first of the `hypotheses`: that of ``kernel``, unless it is empty.

    The norm certificate holds for kernels that contain the true ones. That nothing stood out of
    the noise of the history does not make f zero, so an empty kernel certifies nothing, and all
    base kernels are assumed instead.
    """
    if len(kernel.active):
        return 0
    if wider is None or options.norm_of == "kernel":
        why = (
            f'method {options.name!r} and full=kernel have no other; use "dmm", or'
            if wider is None
            else 'norm_of="kernel" bounds no other norm; use norm_of="truth", or'
        )
        raise InputError(
            "the kernel has no active base kernel, so the only function in its space is 0; "
            f"{why} KernelSum.uniform(kernel.base, weight=1.0) for all of them"
        )
    some, p = len(wider.active), kernel.base.p
    count = f"all {p}" if some == p else f"{some} of {p}"
    warnings.warn(
        "the kernel has no active base kernel (nothing was learned), which does not make f zero; "
        f"{count} base kernels are used instead",
        stacklevel=3,
    )
    return 1


def hypotheses(
    options: ConfidenceOptions, kernel: KernelSum, wider: KernelSum | None
) -> tuple[list[Hypothesis], list[Hypothesis]]:
    """The first hypothesis and its fallbacks, and one hypothesis for every kernel of the mixture.

    Each fallback contains the one before it: the given kernel with its norm bound, then the wider
    one with its own, then that with any norm. Kernels without features fit everything with any
    norm, so their norm bound is doubled instead, up to 20 times. All use the same radius R_t of the
    mixture, which assumes nothing about f, so that falling back costs no probability (Theorem 11 of
    ``docs/theory.md``).

    In the mixture are the first kernel, the wider one, and neighbours: the first with one base
    kernel more (``watch_kernels``). A base kernel that is in it with a small weight counts as
    missing, too; it gets the largest one. Neighbours are there for the alarm, and are no fallbacks:
    that one of them fits best does not mean that f has no other part.
    """
    bound, eta = options.norm_at(0), kernel.eta
    first = certified_norm(options, kernel, bound)
    scales = norm_scales(options, kernel, first)
    watched = options.dual.watch_kernels & (eta < eta.max(initial=0))
    taken = WATCHED if watched.any() else 0.0  # by the neighbours
    own = 1 - taken if wider is None else 0.5
    ladder = [Hypothesis.of(options, kernel, first, scales, own)]
    if wider is not None:
        ratio = _norm_ratio(options, kernel, wider)
        ladder.append(Hypothesis.of(options, wider, first * ratio, scales * ratio, 0.5 - taken))
    members, share = list(ladder), WATCHED / max(int(watched.sum()), 1)
    for j in np.flatnonzero(watched):
        weights = np.where(np.arange(len(eta)) == j, eta.max(), eta)
        members.append(replace(ladder[0], kernel=KernelSum(kernel.base, weights), share=share))
    last = ladder[-1]
    if not last.kernel.finite:
        larger = last.norm_bound * np.exp2(np.arange(1, DOUBLINGS + 1, dtype=np.float64))
        ladder += [replace(last, norm_bound=float(b)) for b in larger]
    elif isfinite(bound):
        ladder.append(replace(last, norm_bound=inf))
    return ladder, members


def _norm_ratio(options: ConfidenceOptions, kernel: KernelSum, full: KernelSum) -> float:
    """How much larger the norm bound is in the norm of ``full``."""
    if options.norm_of == "all":  # whose weights are 1
        return 1 / float(np.sqrt(full.min_weight))
    if not len(kernel.active):
        return certified_norm(options, full, 1.0)
    if options.norm_of == "kernel":
        # For f in the space of the kernel itself; nothing is known of the norm outside of it.
        return float(np.sqrt(kernel.eta.max() / full.min_weight))
    return float(np.sqrt(kernel.min_weight / full.min_weight))


@dataclass(frozen=True, eq=False)
class BuiltSet:
    """The confidence set of one time."""

    set: ConfidenceSet
    empty: bool  # whether no function fits; the set is then enlarged until one does
    radius: float  # R_t in units of the noise, or nu_t for the closed forms
    alpha: float  # regulariser of the posterior mean, in units of the noise variance
    evidence: float = 0.0  # logarithm of the mixture over kernels and scales


@dataclass(frozen=True, eq=False)
class SequenceState:
    """Observations, the hypothesis that is assumed after them, and the set that follows."""

    options: ConfidenceOptions
    hypotheses: Sequence[Hypothesis]  # from narrow to wide
    mixture: Sequence[Hypothesis]  # one for every kernel of the mixture
    observations: tuple[Observations, ...]  # the same data for every kernel of the mixture
    stage: int  # index of the hypothesis that is assumed; one past the last for none
    log: ObservationLog = field(default_factory=ObservationLog)

    @property
    def hypothesis(self) -> Hypothesis | None:
        """What is assumed of f; None if nothing that was tried fits the data."""
        return self.hypotheses[self.stage] if self.stage < len(self.hypotheses) else None

    def observed(self, batch: Batch, center: Array | float) -> SequenceState:
        """With one more batch; the sets are about f minus the centre."""
        rest = replace(batch, y=batch.y - center)
        observations = tuple(data.append(rest) for data in self.observations)
        return replace(self, observations=observations, log=self.log.with_batch(batch))

    @cached_property
    def now(self) -> BuiltSet:
        """The confidence set of the present time."""
        options, assumed = self.options, self.hypothesis
        if options.name != "dmm":
            return self._closed_form()
        own, evidence, parts = None, np.zeros(0), []
        for data, member in zip(self.observations, self.mixture, strict=True):
            if assumed is not None and data.kernel is assumed.kernel:
                own = data.spectrum()
                found = evidence = log_evidence(*own.eigen, member.scales)
            else:
                found = log_evidence(*data.eigen(float(member.scales.max())), member.scales)
            parts.append((found, member.log_weights, member.share))
        mixed = log_mixture(parts)
        radius = squared_radius(
            mixed, options.delta_deciding, t=self.log.t, noise_weight=options.dual.noise_weight
        )
        root = sqrt(max(radius, 0.0))
        if assumed is None or own is None:
            nothing = no_observations(self.hypotheses[-1].kernel).spectrum()
            free = dual_set(nothing, squared_radius=radius, norm_bound=inf, norm_scales=np.ones(1))
            return BuiltSet(free, False, root, 1.0, mixed)
        # The scale with the largest evidence among those that the norm bound allows.
        allowed = assumed.scales <= max(assumed.norm_bound, float(assumed.norm_scales.max()))
        scale = float(assumed.scales[allowed][int(np.argmax(evidence[allowed]))])
        # R_t bounds the distance of f from the values. That of a function within the slack of f is
        # larger by at most slack / noise_std for every value.
        if options.slack:
            radius = (root + options.slack * sqrt(self.log.precision)) ** 2
        return BuiltSet(*self._dual(assumed, own, radius), root, scale**-2.0, mixed)

    def _closed_form(self) -> BuiltSet:
        spectrum, bound = self.observations[0].spectrum(), self.hypotheses[0].norm_bound
        rho, nu = regularizer_and_nu(self.options, spectrum, t=self.log.t, norm_bound=bound)
        alpha = rho / self.options.noise_std**2
        return BuiltSet(closed_form_set(spectrum, alpha=alpha, nu=nu), False, nu, alpha)

    def _dual(
        self, assumed: Hypothesis, spectrum: Spectrum, radius: float
    ) -> tuple[ConfidenceSet, bool]:
        """The set, and whether it had to be enlarged because no function fits."""
        options, bound = self.options, assumed.norm_bound

        def smallest(bound: float) -> float:
            return smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=bound)

        if callable(options.norm_bound) and isfinite(bound):
            bound = bound * options.norm_at(self.log.t) / options.norm_at(0)
            free = smallest(inf)
            # A growing bound that the data contradict is doubled, as long as that can help.
            while free > 0 and smallest(bound) < 0:
                bound *= 2
        missing = smallest(bound)
        # Rounding may move a radius of 0.
        empty = missing < -ROUNDING * (1 + abs(radius) + spectrum.rest)
        if empty:
            radius = radius - missing + 2 * log(1 / options.delta_deciding)
        scales = assumed.norm_scales
        found = dual_set(spectrum, squared_radius=radius, norm_bound=bound, norm_scales=scales)
        return found, empty


@dataclass(frozen=True, eq=False)
class Intersection:
    """What is kept of earlier sets, which hold at all times together.

    On a finite domain that is fixed in advance the intersection is exact. At arbitrary points all
    past sets would have to be kept, so it is over a few of them; any choice of times is valid.
    """

    points: Array | None  # (n, d0) the finite domain
    remember: int  # at most how many past sets are kept
    # Largest lower and smallest upper bound so far at ``points``, (n,) each.
    running: tuple[Array, Array] | None = None
    # (time, is it a milestone, set): of the previous call, and of the first to reach a power of 2.
    past: tuple[tuple[int, bool, ConfidenceSet], ...] = ()

    def keeping(self, log: ObservationLog, past: ConfidenceSet) -> Intersection:
        """With the set after all observations of the log."""
        before = log.t - len(log.batches[-1].y)  # observations before the last call
        milestone = log.t.bit_length() > before.bit_length()
        entries = (*(entry for entry in self.past if entry[1]), (log.t, milestone, past))
        return replace(self, past=entries[-self.remember :] if self.remember else ())

    def forgetting(self) -> Intersection:
        """Without earlier sets, because an assumption behind them failed."""
        return replace(self, running=None, past=())

    def narrowed(self, now: ConfidenceSet) -> tuple[Intersection, bool]:
        """With the present set at ``points``; False if no value is left at one of them."""
        if self.points is None:
            return self, True
        lower, upper = now.interval(self.points, refine=False)
        if self.running is not None:
            lower = np.maximum(lower, self.running[0])
            upper = np.minimum(upper, self.running[1])
        agreed = not (lower > upper + ROUNDING * (1 + np.abs(lower) + np.abs(upper))).any()
        running = np.minimum(lower, upper), np.maximum(lower, upper)
        return replace(self, running=running), agreed

    def interval(self, Z: Array, now: ConfidenceSet, *, refine: bool) -> tuple[Array, Array]:
        """Bounds (n,) at any points ``Z``: the present set and the kept ones, of one kernel."""
        return interval_of([*(entry[2] for entry in self.past), now], Z, refine=refine)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a sequence knows at one time: its state, the sets that are kept, and its alarms."""

    state: SequenceState
    kept: Intersection
    alarms: tuple[AlarmEvent, ...] = ()

    def after(self, batch: Batch, center: Array | float) -> Knowledge:
        """With one more batch, and with an alarm where no function fits."""
        options, earlier, alarms = self.state.options, self.kept, self.alarms
        state = self.state.observed(batch, center)
        if options.name != "dmm" or callable(options.norm_bound):
            earlier = earlier.forgetting()  # closed forms and a growing B are not intersected
        elif self.state.log.t:
            earlier = earlier.keeping(self.state.log, self.state.now.set)
        kept, agreed = earlier.narrowed(state.now.set)
        while (state.now.empty or not agreed) and state.hypothesis is not None:
            reason = f"{state.hypothesis} does not fit;"
            if options.on_alarm == "ignore":
                kept, _ = earlier.forgetting().narrowed(state.now.set)
                return Knowledge(
                    state, kept, alarms or (AlarmEvent(state.log.t, f"{reason} ignored"),)
                )
            state = replace(state, stage=state.stage + 1)
            reason += f" assumed from here on: {state.hypothesis or 'nothing (check noise_std)'}"
            alarms = (*alarms, AlarmEvent(state.log.t, reason))
            kept, agreed = earlier.forgetting().narrowed(state.now.set)
        return Knowledge(state, kept, alarms)
