"""Decisions by the posterior mean plus a fixed number of standard deviations (Eqs. 3 and 11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from metakel._arrays import Array, is_number
from metakel.confidence.observations import Batch, Observations, Spectrum
from metakel.confidence.set import ConfidenceSet, closed_form_set
from metakel.errors import InputError

# A number, or one for every step t = 1, 2, ... as the paper's nu_t.
Schedule = float | Callable[[int], float]


def checked_schedule(name: str, schedule: Schedule | None) -> Schedule | None:
    """A schedule, of which a number is checked at once and a function whenever it is called."""
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
        The noise of an observation that has no other; ``noise_var`` is meant for it.
    """

    observations: Observations
    t: int
    nu: Schedule
    noise_var: Schedule
    noise_std: float

    def observe(self, batch: Batch) -> FixedNu:
        """With the observations of one more call."""
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
