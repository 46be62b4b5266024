"""How a model sees an output: larger is better, and perhaps as a logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metakel._arrays import Array, as_number


@dataclass(frozen=True)
class OutputScale:
    """From values as users measure them to values as a model takes them in, and back.

    Parameters
    ----------
    minimize : bool
        Whether smaller is better.
    floor : float
        If it is positive, a model takes in logarithms, and smaller values count as this one. 0 for
        the values themselves.
    """

    minimize: bool = False
    floor: float = 0.0

    def __post_init__(self) -> None:
        as_number("floor of a logarithm", self.floor, 0)

    @property
    def log(self) -> bool:
        """Whether a model takes in logarithms."""
        return self.floor > 0

    @property
    def _sign(self) -> float:
        return -1.0 if self.minimize else 1.0

    def to_model(self, values: Any) -> Array:
        """As a model takes them in: larger is better."""
        found = np.asarray(values, dtype=np.float64)
        return self._sign * (np.log(np.maximum(found, self.floor)) if self.log else found)

    def from_model(self, values: Any) -> Array:
        """As users measure them."""
        found = self._sign * np.asarray(values, dtype=np.float64)
        if not self.log:
            return found
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(found))

    def value(self, value: float) -> float:
        """`from_model` of one value."""
        return float(self.from_model(value)) + 0.0  # and no -0

    def interval(self, lower: Any, upper: Any) -> tuple[Array, Array]:
        """Ends as users measure them, from those of a model."""
        low, high = self.from_model(lower), self.from_model(upper)
        return (high, low) if self.minimize else (low, high)

    def range(self, low: float, high: float) -> tuple[float, float]:
        """The range of the output as that of a model; a logarithm of 0 is no end."""
        if not self.log:
            return (-high, -low) if self.minimize else (low, high)
        with np.errstate(divide="ignore"):
            lower, upper = float(np.log(max(low, 0.0))), float(np.log(high))
        return (-upper, -lower) if self.minimize else (lower, upper)

    def noise(self, values: Any, noise_std: Any) -> Array:
        """The noise of observed values, as a model takes it in."""
        found = np.asarray(noise_std, dtype=np.float64)
        return found / np.maximum(values, self.floor) if self.log else found

    def deviation(self, mean: Any, sd: Any) -> Array:
        """The standard deviation about a mean of the model, to first order."""
        return np.asarray(sd * self.from_model(mean) if self.log else sd)

    def difference(self, best: float, gain: float) -> float:
        """How much better than ``best`` a value is that a model sees better by ``gain``."""
        if not self.log or not np.isfinite(gain):
            return gain
        return abs(self.value(best + gain) - self.value(best))
