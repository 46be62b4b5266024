"""Parameters that are one of several values, with an order or without, or of only one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metakel._arrays import Array
from metakel.errors import Hint, InputError
from metakel.space.parameter import Parameter, plain


@dataclass(frozen=True)
class Ordinal(Parameter):
    """One of several values with an order; neighbours are alike."""

    name: str
    values: tuple[Any, ...]

    kind: ClassVar[str] = "ordinal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _check_values(self.name, self.values))

    @property
    def width(self) -> int:
        """One column."""
        return 1

    def encode(self, values: Sequence[Any], *, extrapolate: bool = False) -> Array:
        """Ranks, evenly spaced in [-1, 1]."""
        ranks = np.array([_index(self, value) for value in values], dtype=np.float64)
        return (2 * ranks / (len(self.values) - 1) - 1)[:, None]

    def decode(self, columns: Array) -> list[Any]:
        """The nearest rank."""
        last = len(self.values) - 1
        ranks = np.clip(np.rint((np.asarray(columns)[:, 0] + 1) / 2 * last), 0, last)
        return [self.values[int(i)] for i in ranks]

    def sample(self, uniform: Array) -> Array:
        """Every value alike."""
        count = len(self.values)
        return (2 * np.floor(uniform * count) / (count - 1) - 1)[:, None]

    def describe(self) -> str:
        """The values in order."""
        return "ordinal " + " < ".join(map(str, self.values))


@dataclass(frozen=True)
class Categorical(Parameter):
    """One of several values without an order: one column of 0 and 1 for each."""

    name: str
    values: tuple[Any, ...]

    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _check_values(self.name, self.values))

    @property
    def width(self) -> int:
        """One column per value."""
        return len(self.values)

    def encode(self, values: Sequence[Any], *, extrapolate: bool = False) -> Array:
        """1 in the column of the value, 0 elsewhere."""
        return np.eye(self.width)[[_index(self, value) for value in values]]

    def decode(self, columns: Array) -> list[Any]:
        """The value with the largest column."""
        return [self.values[int(i)] for i in np.argmax(columns, axis=1)]

    def sample(self, uniform: Array) -> Array:
        """Every value alike."""
        return np.eye(self.width)[np.floor(uniform * self.width).astype(np.intp)]

    def describe(self) -> str:
        """The values."""
        return "one of " + ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Fixed(Parameter):
    """A parameter with one value: carried along, without a numeric column."""

    name: str
    value: Any

    kind: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", plain(self.value))

    @property
    def width(self) -> int:
        """No column."""
        return 0

    def encode(self, values: Sequence[Any], *, extrapolate: bool = False) -> Array:
        """Checks that the value is the only one."""
        for value in () if extrapolate else values:
            if place_among((self.value,), value) is None:
                allow = Hint("ignore it", "extrapolate=True", "--extrapolate")
                raise self._refuse(value, f"fixed at {self.value!r}", allow)
        return np.empty((len(values), 0))

    def decode(self, columns: Array) -> list[Any]:
        """Always the same."""
        return [self.value] * len(columns)

    def sample(self, uniform: Array) -> Array:
        """Nothing to draw."""
        return np.empty((len(uniform), 0))

    def describe(self) -> str:
        """The value."""
        return f"fixed at {self.value}"


def _check_values(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    found = tuple(plain(value) for value in values)
    if len(found) < 2 or len(set(found)) < len(found):
        raise InputError(
            f"parameter {name!r} has values {found}; expected two or more, all distinct"
        )
    return found


def place_among(values: Sequence[Any], value: Any) -> int | None:
    """Which of the values is meant; None if it is none of them.

    True is also what a file may call ``True``, ``true`` or ``TRUE``, and the other way round.
    """
    try:
        return values.index(value)
    except (ValueError, TypeError):
        found = [i for i, known in enumerate(values) if _equal(value, known)]
    truth = _truth(value)
    if not found and truth is not None:
        alike = [i for i, known in enumerate(values) if _truth(known) is truth]
        found = alike if len({values[i] for i in alike}) == 1 else []
    return found[0] if found else None


def own_value(values: Sequence[Any], value: Any) -> Any:
    """The value as the choices have it, so that equal ones are written alike."""
    place = place_among(values, value)
    return value if place is None else values[place]


def _index(parameter: Ordinal | Categorical, value: Any) -> int:
    found = place_among(parameter.values, value)
    if found is None:
        # As they are written in Python, so that 'True' and True can be told apart.
        known = ", ".join(map(repr, parameter.values))
        raise InputError(f"parameter {parameter.name!r} is {value!r}; expected one of {known}")
    return found


def _equal(value: Any, known: Any) -> bool:
    """Lists are what becomes of tuples in JSON; what has no truth, like pandas' NA, is not."""
    try:
        return bool(plain(value) == known)
    except (TypeError, ValueError):
        return False


def _truth(value: Any) -> bool | None:
    """True or false, or a text that says so; None for anything else."""
    word = plain(value)
    if isinstance(word, str):
        return {"true": True, "false": False}.get(word.strip().lower())
    return word if isinstance(word, bool) else None
