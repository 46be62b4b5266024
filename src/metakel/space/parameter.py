"""What a named parameter is: its way to the numeric domain [-1, 1] and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from metakel._arrays import Array
from metakel.errors import Hint, InputError


class Parameter(ABC):
    """One named parameter: ``width`` numeric columns."""

    kind: ClassVar[str]
    name: str

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numeric columns it takes."""

    @abstractmethod
    def encode(self, values: Sequence[Any], *, extrapolate: bool = False) -> Array:
        """(n, width) columns; values outside of the range are refused unless ``extrapolate``."""

    @abstractmethod
    def decode(self, columns: Array) -> list[Any]:
        """Plain Python values; the inverse of `encode`, rounded to what is possible."""

    def nearest(self, columns: Array) -> Array:
        """(n, width) columns in [-1, 1] that stand for a value, near to these."""
        return self.encode(self.decode(columns))

    @abstractmethod
    def sample(self, uniform: Array) -> Array:
        """(n, width) columns from uniform numbers (n,) in [0, 1)."""

    @abstractmethod
    def describe(self) -> str:
        """Its range in words."""

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {"type": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def _refuse(self, value: Any, expected: str, *hints: Hint) -> InputError:
        return InputError(f"parameter {self.name!r} is {value!r}; expected {expected}", *hints)


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's own and lists as tuples, as after a way through JSON."""
    if isinstance(value, (list, tuple)):
        return tuple(plain(entry) for entry in value)
    own = isinstance(value, np.generic) and value.dtype.kind in "biufUS"
    return value.item() if own else value


def storable(value: Any) -> bool:
    """Whether JSON gives it back."""
    if isinstance(value, tuple):
        return all(storable(entry) for entry in value)
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, (str, int))
