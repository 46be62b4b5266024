"""From numbers to places on paper, and the numbers worth writing there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np


@dataclass(frozen=True)
class Scale:
    """Numbers in [low, high] to places in [start, end], by their logarithm if ``log``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        if not self.log:
            return _round_steps(self.low, self.high)
        first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
        if last - first < 1:
            return [self.low, self.high]
        step = max(1, ceil((last - first) / 4))
        return [10.0**k for k in range(first, last + 1, step)]


def _round_steps(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def span(
    *values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[float, float]:
    """Range of all finite numbers, with a little room; never empty."""
    joined = np.concatenate([np.asarray(v, dtype=np.float64).ravel() for v in values])
    finite = joined[np.isfinite(joined)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return low - room, high + room


def number(value: float) -> str:
    """As short as it can be read."""
    if value == 0 or abs(value) < 1e-12:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    mantissa, _, power = f"{value:.2g}".partition("e")
    sign = "" if mantissa == "1" else f"{mantissa}·"
    return f"{sign}10{str(int(power)).translate(_RAISED)}" if power else mantissa


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
