"""What is believed of the function: a confidence sequence, or the posterior with a fixed factor."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log, sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array, is_number
from metakel.confidence.fallback import Alarm
from metakel.confidence.observations import Batch, ObservationLog, Observations
from metakel.confidence.sequence import ConfidenceSequence
from metakel.confidence.set import ConfidenceSet, closed_form_set
from metakel.confidence.spectrum import Spectrum
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum
from metakel.search import Domain, Finite

# A number, or one for every step t = 1, 2, ... as the paper's nu_t.
Schedule = float | Callable[[int], float]


def checked_schedule(name: str, schedule: Schedule | None) -> Schedule | None:
    """A schedule, of which a number is checked at once and a function whenever it is asked."""
    if schedule is None or callable(schedule):
        return schedule
    return at_step(name, schedule, 1)


def at_step(name: str, schedule: Schedule, t: int) -> float:
    """The value of a schedule at step ``t``, checked."""
    value: Any = schedule(t) if callable(schedule) else schedule
    if not (is_number(value) and 0 < value < inf):
        raise InputError(f"{name} is {value!r} at step {t}; expected a positive number")
    return float(value)


@dataclass(frozen=True, eq=False)
class FixedNu:
    """Posterior mean plus nu posterior standard deviations (Eqs. 3 and 11).

    Parameters
    ----------
    observations : Observations
        Whitened with their noise.
    t : int
        How many there are.
    nu, noise_var : Schedule
    noise_std : float
        The noise of an observation that says nothing else; ``noise_var`` is meant for it.
    """

    observations: Observations
    t: int
    nu: Schedule
    noise_var: Schedule
    noise_std: float

    def told(self, batch: Batch) -> FixedNu:
        """With the observations of one more batch."""
        observations = self.observations.append(batch)
        return replace(self, observations=observations, t=self.t + len(batch.y))

    @cached_property
    def current(self) -> ConfidenceSet:
        """The interval mean +- nu std, in the form of a confidence set."""
        noise_var = at_step("noise_var", self.noise_var, self.t + 1)
        return closed_form_set(
            self.observations.spectrum(),
            alpha=noise_var / self.noise_std**2,
            nu=at_step("nu", self.nu, self.t + 1),
        )

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet."""
        if not len(pending):
            return self.current.spectrum
        noise = np.full(len(pending), self.noise_std)
        return self.observations.append(Batch(pending, np.zeros(len(pending)), noise)).spectrum()


def present_set(sequence: ConfidenceSequence) -> ConfidenceSet:
    """The set that a sequence believes in; where it believes in nothing, one that still explores.

    Nothing fits when the noise is larger than was said. The upper bounds are infinite then and of
    no use for a choice, so the posterior with the largest scale of the mixture stands in.
    """
    if sequence.hypothesis is not None:
        return sequence.current
    scale = sequence.largest_norm_scale
    spectrum = sequence.spectrum(np.zeros((0, 1)))
    nu = scale * sqrt(2 * log(1 / sequence.delta_deciding))
    return closed_form_set(spectrum, alpha=scale**-2.0, nu=nu)


class Belief:
    """Upper bounds to choose by, and confidence bounds to report; they differ for a fixed nu.

    Everything is in the sign to be maximised.

    Parameters
    ----------
    domain : Domain
    sequence : ConfidenceSequence or None
    fixed : FixedNu or None
        At least one of the two is there; ``fixed`` chooses where both are.
    """

    def __init__(
        self, domain: Domain, sequence: ConfidenceSequence | None, fixed: FixedNu | None
    ) -> None:
        self.domain, self.sequence, self.fixed = domain, sequence, fixed

    @property
    def confident(self) -> ConfidenceSequence:
        """The confidence sequence; an error where there is none."""
        if self.sequence is None:
            raise InputError("a fixed nu alone promises nothing; give a norm_bound for confidence")
        return self.sequence

    def tell(self, batch: Batch) -> Alarm | None:
        """Take in observations, all or on an error none; the `Alarm` they rang, to be raised."""
        fixed = None if self.fixed is None else self.fixed.told(batch)
        alarm = None
        if self.sequence is not None:
            try:
                self.sequence.tell(batch.X, batch.y, batch.noise_std)
            except Alarm as rung:  # which it raises after taking the observations in
                alarm = rung
        self.fixed = fixed
        return alarm

    def copied(self) -> Belief:
        """One that is told by itself; what both were told is never changed, and shared."""
        return Belief(self.domain, copy(self.sequence), self.fixed)

    def assumed(self, kernel: KernelSum) -> str:
        """What is assumed of the function at present, when all began with ``kernel``."""
        if self.sequence is None or self.fixed is not None:
            return f"{len(kernel.active)} of {kernel.base.p} base kernels"
        believed = self.sequence.hypothesis
        return "nothing assumed (check noise_std)" if believed is None else str(believed)

    def replay(self, sequence: ConfidenceSequence | None, told: ObservationLog) -> None:
        """Go on from a sequence that was told all of this already."""
        if sequence is not None and sequence.t != told.t:
            raise InputError(
                f"the log tells {told.t} observations but the confidence sequence took in "
                f"{sequence.t}; expected the same"
            )
        self.sequence = sequence
        if self.fixed is not None:
            for batch in told.batches:
                self.fixed = self.fixed.told(batch)

    @property
    def present(self) -> ConfidenceSet:
        """The set to choose by."""
        return present_set(self.confident) if self.fixed is None else self.fixed.current

    def spectrum(self, pending: Array) -> Spectrum:
        """Observations, and points ``pending`` (q, d0) whose values are not known yet."""
        if not len(pending):
            return self.present.spectrum
        chooser = self.confident if self.fixed is None else self.fixed
        return chooser.spectrum(pending)

    @property
    def ceiling(self) -> Array | None:
        """(N,) upper bounds at the points of a finite domain, over all times together."""
        return self.confident.interval()[1] if isinstance(self.domain, Finite) else None

    def at_told(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean, lower and upper bounds (n,) at points of the domain."""
        if self.sequence is None:
            present = self.present
            return present.mean(X, float(present.alphas[0])), *present.interval(X, refine=False)
        mean = self.sequence.mean(X)
        if not isinstance(self.domain, Finite):
            return mean, *self.sequence.interval(X, refine=False)
        lower, upper = self.sequence.interval()
        rows = self.domain.index(X)
        return mean, lower[rows], upper[rows]
