"""Limits: what is bounded, and how sure one must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Literal

import numpy as np

from metakel._arrays import Array, as_number, is_number
from metakel.confidence.radius import Centre
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum

OBJECTIVE = "objective"  # what the first output is called beside the names of the others
# A bound that equals a limit up to rounding is not trusted.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Range:
    """Values that are allowed, between ``low`` and ``high``."""

    low: float = -inf
    high: float = inf

    @classmethod
    def of(cls, where: str, at_least: float | None, at_most: float | None) -> Range:
        """From the two ends, of which one may be None."""
        for name, end in (("at_least", at_least), ("at_most", at_most)):
            if end is not None and not (is_number(end) and isfinite(end)):
                raise InputError(f"{where}: {name} is {end!r}; expected a finite number")
        low = -inf if at_least is None else float(at_least)
        high = inf if at_most is None else float(at_most)
        if not low < high:
            raise InputError(f"{where}: at_least={low:g} is not below at_most={high:g}")
        return cls(low, high)

    @property
    def bounded(self) -> bool:
        """Whether it forbids anything."""
        return isfinite(self.low) or isfinite(self.high)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low)

    def margin(self, lower: Array, upper: Array) -> Array:
        """(n,) how far inside values between these bounds are at least; negative for outside."""
        return self._room(lower, upper, ROUNDING)

    def hope(self, lower: Array, upper: Array) -> Array:
        """(n,) how far inside values between these bounds are at most; negative for outside."""
        return self._room(upper, lower, 0.0)

    def misses_below(self, lower: Array, upper: Array) -> bool:
        """Whether the first of these bounds is closer to the low end than to the high one."""
        if not (isfinite(self.low) and isfinite(self.high)):
            return isfinite(self.low)
        return bool(lower[0] - self.low <= self.high - upper[0])

    def _room(self, above: Array, below: Array, rounding: float) -> Array:
        room = np.full(len(above), inf)
        if isfinite(self.low):
            room = above - self.low - rounding * (1 + abs(self.low))
        if isfinite(self.high):
            room = np.minimum(room, self.high - below - rounding * (1 + abs(self.high)))
        return room

    def to_list(self) -> list[float | None]:
        """Exact JSON form."""
        return [end if isfinite(end) else None for end in (self.low, self.high)]

    @classmethod
    def from_list(cls, ends: Sequence[float | None]) -> Range:
        """Inverse of `to_list`."""
        return cls.of("stored range", *ends)

    def __str__(self) -> str:
        if isfinite(self.low) and isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        return f"at least {self.low:g}" if isfinite(self.low) else f"at most {self.high:g}"


@dataclass(frozen=True, eq=False)
class Limit:
    """A measured output that must stay within limits at every point that is tried.

    What is promised is the value without noise; a measurement beyond the limit is no violation.

    Parameters
    ----------
    kernel : KernelSum
        Of the output; often learned from past tasks, like that of the objective.
    noise_std : float
        Noise of a measurement.
    norm_bound : float or None
        See `ConfidenceSequence`. A function is refused: it is not valid from the first point on.
    at_least, at_most : float, optional
        The limits; one of them, or both.
    centre, slack, norm_of, full
        See `ConfidenceSequence`.
    delta : float, optional
        Probability with which the bounds of this output may fail. By default, what is left of the
        optimizer's delta is shared equally.
    delta_learning : float
        What learning this kernel has spent.
    """

    kernel: KernelSum
    noise_std: float
    norm_bound: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    centre: Centre | None = None
    slack: float = 0.0
    norm_of: Literal["truth", "kernel"] = "truth"
    full: KernelSum | None = None
    delta: float | None = None
    delta_learning: float = 0.0

    def __post_init__(self) -> None:
        if not self.range.bounded:
            raise InputError("a Limit needs at_least, at_most or both; found neither")
        refuse_growing(self.norm_bound)

    @property
    def range(self) -> Range:
        """Values that are allowed."""
        return Range.of("Limit", self.at_least, self.at_most)

    def sequence_options(self, share: float) -> dict[str, Any]:
        """Arguments of its confidence sequence, which gets ``share`` of delta for deciding."""
        return {
            "noise_std": self.noise_std,
            "norm_bound": self.norm_bound,
            "centre": self.centre,
            "slack": self.slack,
            "norm_of": self.norm_of,
            "full": self.full,
            "delta": share + self.delta_learning,
            "delta_learning": self.delta_learning,
        }


def refuse_growing(norm_bound: Any) -> None:
    """A norm bound that grows with time holds only later, too late for a limit."""
    if callable(norm_bound):
        raise InputError(
            "norm_bound is a function, which holds only once it has passed the norm of f; with "
            "limits expected a number, or None"
        )


def shares(
    delta: float, spent: float, limits: Mapping[str, Limit]
) -> tuple[float, dict[str, float]]:
    """What the objective and every limit get of delta, after ``spent`` was spent on other things.

    All of it together is delta: the parts of the limits that carry their own, and of the rest an
    equal part for the objective and every other limit.
    """
    delta = as_number("delta", delta)
    given = {name: limit.delta for name, limit in limits.items() if limit.delta is not None}
    for name, value in given.items():
        if not (is_number(value) and 0 < value < 1):
            raise InputError(f"limit {name!r}: delta is {value!r}; expected 0 < delta < 1")
    learning = sum(limit.delta_learning for limit in limits.values())
    left = delta - spent - learning - sum(given.values())
    if not 0 < left < 1:
        raise InputError(
            f"delta is {delta:g}, of which learning and the start have spent {spent + learning:g} "
            f"and limits with a delta of their own take {sum(given.values()):g}; nothing is left "
            "for the bounds. Give a larger delta"
        )
    part = left / (1 + len(limits) - len(given))
    return part, {name: given.get(name, part) for name in limits}
