"""What pictures are made of, whoever draws them: styles by role, axes with ticks, marks.

Colours are those of Okabe and Ito, which all readers can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Style:
    """How everything with one role looks.

    Parameters
    ----------
    name : str
        The role.
    colour, on_dark : str
        On white, and on a dark page.
    line : "-", "--" or ":"
    """

    name: str
    colour: str
    on_dark: str = ""
    line: str = "-"

    @property
    def look(self) -> dict[str, Any]:
        """Options of matplotlib's lines."""
        return {"color": self.colour, "linestyle": self.line}


LEARNED = Style("learned", "#0072b2", "#6cb8ea")  # with what past tasks teach
COLD = Style("cold", "#d55e00", "#ff9d5c")  # without it: a cold start, or all base kernels
SPREAD = Style("spread", "#56b4e9", "#3a86b8")  # what sets tasks apart
RANDOM = Style("random", "#777777", "#98a2ae", ":")
TRUTH = Style("truth", "#222222", "#e6e9ee", "--")  # the function itself, or the oracle
OBSERVED = Style("observed", "#444c56", "#b4bdc8")
CHOSEN = Style("chosen", "#c2338a", "#f08bc4")  # where to look next
CERTIFICATE = Style("certificate", "#e69f00", "#f0b93a", "--")
ALARM = Style("alarm", "#c11e2f", "#ff7b83", "--")
REFERENCE = Style("reference", "#888888", "#7d8793")  # a diagonal, a threshold
ROLES = (
    *(LEARNED, COLD, SPREAD, RANDOM, TRUTH, OBSERVED),
    *(CHOSEN, CERTIFICATE, ALARM, REFERENCE),
)
# For curves that have no role of their own.
SERIES = tuple(
    Style(f"series-{i}", colour)
    for i, colour in enumerate(
        ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0c000", "#222222"]
    )
)
BAND_OPACITY = 0.17


@dataclass(frozen=True)
class Axis:
    """Numbers from ``low`` to ``high`` along one side of a picture, by logarithm if ``log``.

    Parameters
    ----------
    label : str
    low, high : float
    log : bool
    categories : tuple of str
        Names that stand for the numbers 0, 1, ...; see `Axis.of`.
    """

    label: str
    low: float
    high: float
    log: bool = False
    categories: tuple[str, ...] = ()

    @classmethod
    def covering(cls, label: str, *values: ArrayLike) -> Axis:
        """All finite numbers among the values, with a little room; never empty."""
        joined = np.concatenate([np.asarray(v, dtype=np.float64).ravel() for v in values])
        finite = joined[np.isfinite(joined)]
        if not finite.size:
            return cls(label, 0.0, 1.0)
        low, high = float(finite.min()), float(finite.max())
        room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
        return cls(label, low - room, high + room)

    @classmethod
    def of(cls, label: str, categories: Sequence[str]) -> Axis:
        """Names side by side."""
        return cls(label, -0.5, len(categories) - 0.5, categories=tuple(categories))

    def fraction(self, value: float) -> float:
        """Where a number is between the ends, 0 to 1; numbers beyond an end are put there."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        return (at - low) / (high - low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers within the range, or the categories, each with its text."""
        if self.categories:
            return [(float(i), name) for i, name in enumerate(self.categories)]
        return [(value, number(value)) for value in self._round_numbers()]

    def _round_numbers(self) -> list[float]:
        if not self.log:
            return _round_steps(self.low, self.high)
        first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
        if last - first < 1:
            return [self.low, self.high]
        step = max(1, ceil((last - first) / 4))
        return [10.0**k for k in range(first, last + 1, step)]


def number(value: float) -> str:
    """A number as short as it can be read."""
    if value == 0 or abs(value) < 1e-12:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"
    mantissa, _, power = f"{value:.2g}".partition("e")
    sign = "" if mantissa == "1" else f"{mantissa}·"
    return f"{sign}10{str(int(power)).translate(_RAISED)}" if power else mantissa


def short(value: Any) -> str:
    """The value of a parameter as people read it."""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _round_steps(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
