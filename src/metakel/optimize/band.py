r"""A confidence band around a learned mean, worked out only where somebody looks at it.

The band is a `ConfidenceSequence` about f minus the mean. Most values need no new set, which costs
an eigendecomposition. After s values a function f fits if :math:`\|f(X_s) - y_s\|^2 \le R_s^2` (in
units of the noise) and its norm is at most B. The radius never shrinks: a value multiplies every
term of the mixture behind it (`confidence.radius`) by at most 1. So while one function of the set
of time s leaves room for what came since,

.. math:: \sum_{s < i \le t} (f(x_i) - y_i)^2 \le R_s^2 - \|f(X_s) - y_s\|^2,

it is in the set of time t as well: no alarm, and nothing to compute.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from math import inf

import numpy as np

from metakel._arrays import Array
from metakel.confidence.sequence import ConfidenceSequence

# Rounding must not hide an alarm.
SHARE = 1 - 1e-6


class Band:
    """The same answers as a sequence that observes value by value, up to rounding.

    It catches up at the powers of 2, whose sets a sequence keeps, and observes the last value by
    itself, because a sequence keeps the set before it too. So what it answers does not depend on
    when it is asked. `observe` returns a new band.

    Parameters
    ----------
    sequence : ConfidenceSequence
        Of f minus the centre; in the sign to be maximised.
    centre : (n, d0) -> (n,)
        The learned mean.
    """

    def __init__(self, sequence: ConfidenceSequence, centre: Callable[[Array], Array]) -> None:
        self._sequence, self._centre = sequence, centre
        self._waiting: tuple[tuple[Array, float], ...] = ()
        self._room, self._alpha = 0.0, 1.0

    @property
    def delta(self) -> float:
        """Probability with which the band may fail."""
        return self._sequence.delta

    @property
    def alarm(self) -> str:
        """What was contradicted; empty as long as the values fit."""
        event = self._sequence.alarm
        return "" if event is None else event.reason

    def observe(self, x: Array, y: float) -> Band:
        """After one more value."""
        rest = float(y - self._centre(x[None])[0])
        after = copy(self)
        after.__dict__.pop("_caught_up", None)
        after._waiting = (*self._waiting, (x, rest))
        t = self._sequence.t + len(after._waiting)
        if self._room > 0:
            after._room = self._room - self._squared_residual(x, rest)
        return after._caught_up if after._room <= 0 or t & (t - 1) == 0 else after

    def interval(self, Z: Array) -> tuple[Array, Array]:
        """(n,) lower and upper bounds."""
        centre = self._centre(Z)
        lower, upper = self._caught_up._sequence.interval(Z)
        return lower + centre, upper + centre

    @cached_property
    def _caught_up(self) -> Band:
        if not self._waiting:
            return self
        after = copy(self)
        after._waiting, after._sequence = (), copy(self._sequence)
        for part in (self._waiting[:-1], self._waiting[-1:]):
            if part:
                points, values = zip(*part, strict=True)
                after._sequence.tell(np.array(points), np.array(values))
        after._room, after._alpha = after._largest_room()
        return after

    def _largest_room(self) -> tuple[float, float]:
        """What the ridge solution that leaves most leaves of R^2, and its regulariser."""
        sequence = self._sequence
        believed = sequence.hypothesis
        if believed is None:  # nothing is assumed any more that could be contradicted
            return inf, 1.0
        spectrum, alphas = sequence.current.spectrum, believed.norm_scales**-2.0
        norms = spectrum.squared_norms(alphas)
        residuals = spectrum.misfit(alphas) - alphas * norms
        fits = norms <= SHARE * believed.norm_bound**2
        room = np.where(fits, SHARE * sequence.radius**2 - residuals, -inf)
        best = int(np.argmax(room))
        return float(room[best]), float(alphas[best])

    def _squared_residual(self, x: Array, rest: float) -> float:
        sequence = self._sequence
        expected = sequence.current.mean(x[None], self._alpha)
        return float((rest - expected[0]) / sequence.options.noise_std) ** 2
