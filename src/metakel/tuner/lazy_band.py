r"""A confidence band that works out its set only where somebody asks, or an alarm is possible.

Most values need no set, which costs an eigendecomposition. After s values a function f fits if
:math:`\|f(X_s) - y_s\|^2 \le R_s^2` (in units of the noise) and its norm is at most B. The radius
never shrinks: a value multiplies every term of the mixture behind it (`confidence.mixture`) by at
most 1. So while one function of the set of time s leaves room for what came since,

.. math:: \sum_{s < i \le t} (f(x_i) - y_i)^2 \le R_s^2 - \|f(X_s) - y_s\|^2,

it is in the set of time t as well: no alarm, and nothing to work out.
"""

from __future__ import annotations

from math import inf

import numpy as np

from metakel._arrays import Array
from metakel.priors import ConfidenceBand
from metakel.priors.configurations import encode_configurations
from metakel.tuner.normalise import Configuration

# Rounding must not hide an alarm.
SHARE = 1 - 1e-6


class LazyBand:
    """The same answers as a band that is told value by value, up to rounding.

    It catches up at the powers of 2, whose sets a band keeps, and tells the last value by itself,
    because a band keeps the set before it too. So what it answers does not depend on when it is
    asked.
    """

    def __init__(self, band: ConfidenceBand) -> None:
        self._band = band
        self._waiting: list[tuple[Configuration, float]] = []
        self._room, self._alpha = 0.0, 1.0

    @property
    def alarm(self) -> str:
        """What was contradicted; empty as long as the values told fit."""
        event = self._band.sequence.alarm
        return "" if event is None else event.reason

    def tell(self, configuration: Configuration, value: float) -> None:
        """Take in one value."""
        self._waiting.append((configuration, value))
        t = self._band.sequence.t + len(self._waiting)
        self._room -= self._squared_residual(configuration, value) if self._room > 0 else 0
        if self._room <= 0 or t & (t - 1) == 0:
            self._catch_up()

    def interval(self, configurations: list[Configuration]) -> tuple[Array, Array]:
        """Bounds of the values of configurations."""
        self._catch_up()
        return self._band.interval(configurations)

    def _catch_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for part in (waiting[:-1], waiting[-1:]):
            if part:
                rows, values = zip(*part, strict=True)
                self._band.tell(list(rows), list(values))
        if waiting:
            self._room, self._alpha = self._largest_room()

    def _largest_room(self) -> tuple[float, float]:
        """What the ridge solution that leaves most leaves of R^2, and its regulariser."""
        sequence = self._band.sequence
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

    def _squared_residual(self, configuration: Configuration, value: float) -> float:
        band = self._band
        X = encode_configurations([configuration], band.space)
        seen = -value if band.minimize else value
        expected = band.calibration.centre(X) + band.sequence.current.mean(X, self._alpha)
        return float((seen - expected[0]) / band.sequence.options.noise_std) ** 2
