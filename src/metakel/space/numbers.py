"""Parameters that are numbers, on a plain or a log scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, floor, isfinite, log
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError
from metakel.space.parameter import Parameter, plain

# Rounding of a table's numbers may leave a range by this share of it.
RANGE_SLACK = 1e-9
# And its grid by this share of a step.
GRID_SLACK = 1e-6


@dataclass(frozen=True)
class Float(Parameter):
    """A number in [low, high], on a log scale if ``log``, on the grid low + k step if ``step``."""

    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    kind: ClassVar[str] = "float"

    def __post_init__(self) -> None:
        for name in ("low", "high", "log", "step"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        _check_range(self.name, self.low, self.high, self.log, self.step)

    @property
    def width(self) -> int:
        """One column."""
        return 1

    def encode(self, values: Sequence[Any], *, extrapolate: bool = False) -> Array:
        """Linear, or linear in the log, with low at -1 and high at 1."""
        numbers = self._numbers(values)
        slack = RANGE_SLACK * (self.high - self.low)
        beyond = (numbers < self.low - slack) | (numbers > self.high + slack)
        if self.log:
            beyond |= numbers <= 0
        if not extrapolate:
            beyond |= self._off_grid(numbers)
        if beyond.any() and (not extrapolate or (self.log and (numbers <= 0).any())):
            value = numbers[beyond][0]
            allow = Hint("allow other values", "extrapolate=True", "--extrapolate")
            raise self._refuse(float(value), self.describe(), *([] if extrapolate else [allow]))
        low, high = self._ends
        scaled = (np.log(numbers) if self.log else numbers) - low
        return (2 * scaled / (high - low) - 1)[:, None]

    def decode(self, columns: Array) -> list[Any]:
        """Ends of the range are met exactly; with a step, the last of its grid."""
        return [self._value(float(u)) for u in np.asarray(columns)[:, 0]]

    def _value(self, u: float) -> float:
        if u in (-1.0, 1.0):
            return float(self.low if u < 0 else self._last)
        low, high = self._ends
        number = low + (u + 1) / 2 * (high - low)
        number = exp(number) if self.log else number
        if self.step is not None:
            number = self.low + round((number - self.low) / self.step) * self.step
        return float(min(max(number, self.low), self._last) if -1 <= u <= 1 else number)

    @cached_property
    def _last(self) -> float:
        """The largest value: high, or the last of the grid before it."""
        if self.step is None:
            return self.high
        last = self.low + floor((self.high - self.low) / self.step + GRID_SLACK) * self.step
        return self.high if abs(last - self.high) <= self._grid_slack else last

    @property
    def _grid_slack(self) -> float:
        """How far from the grid rounding may leave a value."""
        ends = max(abs(self.low), abs(self.high))
        return max(GRID_SLACK * (self.step or 0), 4 * float(np.spacing(ends)))

    def _off_grid(self, numbers: Array) -> NDArray[np.bool_]:
        if self.step is None:
            return np.zeros(len(numbers), dtype=bool)
        grid = self.low + np.rint((numbers - self.low) / self.step) * self.step
        return np.asarray(np.abs(numbers - grid) > self._grid_slack)

    @property
    def _ends(self) -> tuple[float, float]:
        return (log(self.low), log(self.high)) if self.log else (self.low, self.high)

    def _numbers(self, values: Sequence[Any]) -> Array:
        """The values as floats; one by one, to name the culprit, only if something is wrong."""
        found = np.asarray(values)
        if found.ndim == 1 and found.dtype.kind in "iuf" and self._fine(found.astype(np.float64)):
            return found.astype(np.float64)
        return np.array([self._number(value) for value in values], dtype=np.float64)

    def _fine(self, numbers: Array) -> bool:
        return bool(np.isfinite(numbers).all())

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
            raise self._refuse(value, f"a finite number ({self.describe()})")
        return float(value)

    def nearest(self, columns: Array) -> Array:
        """Rounded to the grid, where there is one."""
        return columns if self.step is None else super().nearest(columns)

    def sample(self, uniform: Array) -> Array:
        """Uniform on the numeric domain, rounded to the grid."""
        return self.nearest(np.asarray(2 * uniform - 1)[:, None])

    def describe(self) -> str:
        """Type, range and scale."""
        step = "" if self.step is None else f", step {self.step:g}"
        return f"{self.kind} in [{self.low:g}, {self.high:g}]{', log scale' * self.log}{step}"


@dataclass(frozen=True)
class Integer(Float):
    """A whole number in [low, high], on a log scale if ``log``."""

    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = 1

    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(v is None or v != int(v) for v in (self.low, self.high, self.step)):
            raise InputError(f"parameter {self.name!r}: an integer has whole low, high and step")

    def decode(self, columns: Array) -> list[Any]:
        """Whole numbers of type int."""
        return [round(self._value(float(u))) for u in np.asarray(columns)[:, 0]]

    def _fine(self, numbers: Array) -> bool:
        return super()._fine(numbers) and bool((numbers == np.rint(numbers)).all())

    def _number(self, value: Any) -> float:
        number = super()._number(value)
        if number != round(number):
            raise self._refuse(value, f"a whole number ({self.describe()})")
        return number

    def describe(self) -> str:
        """Type, range and scale."""
        return super().describe().removesuffix(", step 1")


def _check_range(name: str, low: float, high: float, on_log: bool, step: float | None) -> None:
    if not isinstance(on_log, bool):
        raise InputError(f"parameter {name!r} has log {on_log!r}; expected True or False")
    if not (isfinite(low) and isfinite(high) and low < high):
        raise InputError(f"parameter {name!r} ranges over [{low}, {high}]; expected low < high")
    if on_log and low <= 0:
        raise InputError(f"parameter {name!r} starts at {low}; a log scale needs low > 0")
    if step is not None and not 0 < step <= high - low + GRID_SLACK * step:
        raise InputError(f"parameter {name!r} has step {step}; expected 0 < step <= high - low")
