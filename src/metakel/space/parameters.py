"""Named parameters: numbers, choices and fixed values, and how each maps to [-1, 1] and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import exp, floor, isfinite, log, nan
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import LARGEST, Array, is_number, shown
from metakel.errors import Hint, InputError
from metakel.space.configurations import (
    Values,
    distinct,
    index_of,
    listed,
    own_value,
    quantity,
    to_python,
)

# Numbers that were rounded in a table may exceed a range by this share of it,
RANGE_SLACK = 1e-9
# and miss the grid by this share of a step.
GRID_SLACK = 1e-6


class Parameter(ABC):
    """One named parameter, which takes ``width`` numeric columns."""

    kind: ClassVar[str]
    name: str

    @property
    def width(self) -> int:
        """How many numeric columns it takes."""
        return 1

    @abstractmethod
    def encode(self, values: Values, *, extrapolate: bool = False) -> Array:
        """(n, width) columns; values outside of the range are refused unless ``extrapolate``."""

    @abstractmethod
    def decode(self, columns: Array) -> list[Any]:
        """Plain Python values; the inverse of `encode`, rounded to what is possible."""

    @property
    def choices(self) -> tuple[Any, ...]:
        """Its values, where it has some and not a range."""
        return ()

    def parse(self, cell: Any) -> Any:
        """The value that some text or number stands for; a choice that is not known stays.

        ``0,93`` and ``49,4 °C`` are numbers, and ``thf`` is the choice ``THF``.
        """
        own = self.normalize(to_python(cell))
        same = next((v for v in self.choices if v == own or str(v) == str(own)), None)
        if same is not None or not isinstance(own, str):
            return own if same is None else same
        alike = [v for v in self.choices if isinstance(v, str) and _letters(v) == _letters(own)]
        return alike[0] if len(alike) == 1 else own

    def normalize(self, value: Any) -> Any:
        """The value in the one form that it has here; what is not possible stays as it is."""
        return own_value(self.choices, value)

    def place(self, values: Values) -> Array:
        """(n, width) columns of values that were used, also of those that it does not have."""
        return self.encode(values, extrapolate=True)

    def unlike(self, value: Any) -> str:
        """How a value that was used differs from those it has; empty where it does not."""
        try:
            self.encode([value])
        except InputError:
            return f"{self.name} is {shown(value)}, beside {self.describe()}"
        return ""

    def between(self, low: float, high: float) -> Parameter:
        """The same parameter with a narrower range."""
        raise InputError(
            f"a range from {low} to {high} of {self.name!r}, which is {self.describe()}; expected "
            "a number"
        )

    def nearest(self, columns: Array) -> Array:
        """(n, width) columns of the possible values next to these."""
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
        return InputError(f"parameter {self.name!r} is {shown(value)}; expected {expected}", *hints)


@dataclass(frozen=True)
class Float(Parameter):
    """A number in [low, high], on a log scale if ``log``, on the grid low + k step if ``step``.

    With ``digits``, suggestions are rounded to so many decimals, on a log scale to so many
    significant digits. Other values are still possible, so that it makes no other parameter.
    """

    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = None
    digits: int | None = field(default=None, compare=False)

    kind: ClassVar[str] = "float"

    def __post_init__(self) -> None:
        for name in ("low", "high", "log", "step"):
            object.__setattr__(self, name, to_python(getattr(self, name)))
        _check_range(self.name, self.low, self.high, self.log, self.step)
        whole = isinstance(self.digits, int) and not isinstance(self.digits, bool)
        if self.digits is not None and not (whole and 0 <= self.digits <= 15):
            raise InputError(
                f"parameter {self.name!r} has digits {self.digits!r}; expected a whole number from "
                "0 to 15"
            )

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {k: v for k, v in super().to_dict().items() if k != "digits" or v is not None}

    def parse(self, cell: Any) -> Any:
        """The number that people write, also with a decimal comma or a unit."""
        found = quantity(cell)
        if found is None:
            raise self._refuse(cell, self.describe())
        return self.normalize(found)

    def normalize(self, value: Any) -> Any:
        """A float."""
        return float(value) if is_number(value) else value

    def encode(self, values: Values, *, extrapolate: bool = False) -> Array:
        """Linear, or linear in the log, with low at -1 and high at 1."""
        numbers = self._numbers(values)
        wrong = numbers <= 0 if self.log else np.zeros(len(numbers), dtype=bool)
        if not extrapolate:
            slack = RANGE_SLACK * (self.high - self.low)
            wrong |= (numbers < self.low - slack) | (numbers > self.high + slack)
            if self.step is not None:
                wrong |= np.abs(numbers - self._on_grid(numbers)) > self._grid_slack
        if wrong.any():
            allow = Hint("allow other values", "extrapolate=True", "--extrapolate")
            hints = [] if extrapolate else [allow]
            raise self._refuse(float(numbers[wrong][0]), self.describe(), *hints)
        with np.errstate(over="ignore"):
            found = self.column(numbers)
        # Squares of what is farther away have no place in a kernel.
        self._check(values, np.abs(found[:, 0]) <= LARGEST, "a number nearer to its range")
        return found

    def column(self, numbers: Array) -> Array:
        """(n, 1) columns of numbers, whether they are possible or not."""
        low, high = self._ends
        scaled = (np.log(numbers) if self.log else numbers) - low
        return np.asarray((2 * scaled / (high - low) - 1)[:, None])

    def number(self, columns: Array) -> Array:
        """(n,) the numbers at columns (n, 1), not rounded; the inverse of `column`."""
        u = np.asarray(columns, dtype=np.float64)[:, 0]
        low, high = self._ends
        numbers = low + (u + 1) / 2 * (high - low)
        if self.log:  # not by numpy, which may round otherwise where there are more points
            numbers = np.array([exp(number) for number in numbers.tolist()])
        return np.asarray(numbers)

    def rounded(self, numbers: Array) -> Array:
        """(n,) the possible values next to numbers: on the grid, or with so many digits."""
        return np.clip(self._rounded(numbers), self.low, self._last)

    def grid(self, most: int) -> list[Any] | None:
        """All values of a parameter with a step, where they are at most so many."""
        count = 0 if self.step is None else floor((self.high - self.low) / self.step + 1e-9) + 1
        if self.step is None or count > most:
            return None
        return self.plain(self.rounded(self.low + self.step * np.arange(count, dtype=np.float64)))

    def plain(self, numbers: Array) -> list[Any]:
        """Possible values as Python's own."""
        return list(numbers.tolist())

    def decode(self, columns: Array) -> list[Any]:
        """-1 and 1 give the ends of the range exactly; with a step, of its grid."""
        return self.plain(self._decoded(columns))

    def _decoded(self, columns: Array) -> Array:
        """(n,) the values of `decode`."""
        u = np.asarray(columns, dtype=np.float64)[:, 0]
        numbers = self._rounded(self.number(columns))
        within = np.clip(numbers, self.low, self._last)
        return np.select([u == -1, u == 1, np.abs(u) <= 1], [self.low, self._last, within], numbers)

    def _rounded(self, numbers: Array) -> Array:
        if self.step is not None:
            return self._on_grid(numbers)
        if self.digits is None:
            return numbers
        form = f".{max(self.digits, 1)}g" if self.log else f".{self.digits}f"
        return np.array([float(format(number, form)) for number in numbers.tolist()])

    @cached_property
    def _last(self) -> float:
        """The largest value: high, or the last of the grid before it."""
        if self.step is None:
            return self.high
        last = self.low + floor((self.high - self.low) / self.step + GRID_SLACK) * self.step
        return self.high if abs(last - self.high) <= self._grid_slack else last

    @property
    def _grid_slack(self) -> float:
        """How far from the grid a rounded value may be."""
        ends = max(abs(self.low), abs(self.high))
        return max(GRID_SLACK * (self.step or 0), 4 * float(np.spacing(ends)))

    def _on_grid(self, numbers: Array) -> Array:
        assert self.step is not None
        return np.asarray(self.low + np.rint((numbers - self.low) / self.step) * self.step)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return (log(self.low), log(self.high)) if self.log else (self.low, self.high)

    def _numbers(self, values: Values) -> Array:
        """The values as floats; what is none is refused."""
        try:
            found = np.asarray(values)
        except ValueError:  # lists of several lengths among them
            found = np.empty(0, dtype=object)
        if found.ndim != 1 or found.dtype.kind not in "iuf":
            found = np.array([float(v) if is_number(v) else nan for v in listed(values)])
        numbers = found.astype(np.float64, copy=False)
        self._check(values, np.isfinite(numbers), "a finite number")
        return numbers

    def _check(self, values: Values, valid: NDArray[np.bool_], expected: str) -> None:
        if not valid.all():
            value = listed(values)[int(np.argmin(valid))]
            raise self._refuse(value, f"{expected} ({self.describe()})")

    def nearest(self, columns: Array) -> Array:
        """Rounded to the grid or to the digits, where there are any."""
        free = self.step is None and self.digits is None
        return columns if free else self.encode(self._decoded(columns))

    def sample(self, uniform: Array) -> Array:
        """Uniform on the numeric domain, rounded to the grid."""
        return self.nearest(np.asarray(2 * uniform - 1)[:, None])

    def describe(self) -> str:
        """Type, range and scale."""
        step = "" if self.step is None else f", step {self.step:g}"
        return f"{self.kind} in [{self.low:g}, {self.high:g}]{', log scale' * self.log}{step}"

    def between(self, low: float, high: float) -> Parameter:
        """The same parameter with a range within its own; a single value holds it."""
        if not self.low <= low <= high <= self.high:
            both = max(low, self.low), min(high, self.high)
            of_it = f"; of it, {both[0]:g} to {both[1]:g} is" if both[0] < both[1] else ""
            beyond = f"--fix '{self.name}=VALUE' --extrapolate holds one value beyond"
            raise InputError(
                f"a range from {low:g} to {high:g} of {self.name!r} ({beyond}, and learning with "
                f"--space gives another range); expected one within {self.low:g} to {self.high:g}, "
                f"which past tasks have{of_it}"
            )
        ends = self.parse(low), self.parse(high)
        return (
            Fixed(self.name, ends[0]) if low == high else replace(self, low=ends[0], high=ends[1])
        )


@dataclass(frozen=True)
class Integer(Float):
    """A whole number in [low, high], on a log scale if ``log``."""

    step: float | None = 1

    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(v is None or v != int(v) for v in (self.low, self.high, self.step)):
            raise InputError(f"parameter {self.name!r}: an integer has whole low, high and step")

    def normalize(self, value: Any) -> Any:
        """A whole number of type int."""
        if not is_number(value):
            return value
        return int(value) if isfinite(value) and value == value // 1 else float(value)

    def plain(self, numbers: Array) -> list[Any]:
        """Whole numbers of type int."""
        return [round(number) for number in numbers.tolist()]

    def _numbers(self, values: Values) -> Array:
        numbers = super()._numbers(values)
        self._check(values, numbers == np.rint(numbers), "a whole number")
        return numbers

    def place(self, values: Values) -> Array:
        """Also of numbers that are not whole."""
        return Float(self.name, self.low, self.high, self.log).place(values)

    def describe(self) -> str:
        return super().describe().removesuffix(", step 1")


@dataclass(frozen=True)
class _Choice(Parameter):
    """One of several values."""

    name: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        found = tuple(to_python(value) for value in self.values)
        for value in found:
            try:
                hash(value)
            except TypeError:
                raise InputError(
                    f"parameter {self.name!r} has the value {shown(value)}; expected numbers, "
                    "text, true and false, or lists of them: name each, and look it up by its name"
                ) from None
        if len(found) < 2 or len(set(found)) < len(found):
            raise InputError(
                f"parameter {self.name!r} has values {found}; expected two or more, all distinct"
            )
        object.__setattr__(self, "values", found)

    @property
    def choices(self) -> tuple[Any, ...]:
        return self.values

    @property
    @abstractmethod
    def _places(self) -> Array:
        """(k, width) the columns of every value."""

    @abstractmethod
    def _place_of(self, value: Any) -> Array:
        """(width,) columns of a value that is none of these."""

    def _indices(self, values: Values) -> tuple[list[Any], list[int | None], NDArray[np.intp]]:
        """Distinct values, the index of each among the choices, and (n,) which each value is."""
        found, codes = distinct(values)
        return found, [index_of(self.values, value) for value in found], codes

    def encode(self, values: Values, *, extrapolate: bool = False) -> Array:
        """(n, width) columns; values that are no choices are refused."""
        found, indices, codes = self._indices(values)
        if None in indices:
            # As they are written in Python, so that 'True' and True can be told apart.
            known = ", ".join(map(repr, self.values))
            raise self._refuse(found[indices.index(None)], f"one of {known}")
        return np.asarray(self._places[np.array(indices, dtype=np.intp)[codes]])

    def place(self, values: Values) -> Array:
        found, indices, codes = self._indices(values)
        known, pairs = self._places, zip(found, indices, strict=True)
        places = [self._place_of(value) if i is None else known[i] for value, i in pairs]
        return np.array(places).reshape(len(found), self.width)[codes]

    def sample(self, uniform: Array) -> Array:
        """Every value with the same probability."""
        return np.asarray(self._places[np.floor(uniform * len(self.values)).astype(np.intp)])


@dataclass(frozen=True)
class Ordinal(_Choice):
    """One of several values with an order, evenly spaced."""

    kind: ClassVar[str] = "ordinal"

    @property
    def _places(self) -> Array:
        return (2 * np.arange(len(self.values)) / (len(self.values) - 1) - 1)[:, None]

    def _place_of(self, value: Any) -> Array:
        """Numbers between those of its ranks lie between them, anything else in the middle."""
        if not is_number(value) or not all(map(is_number, self.values)):
            return np.zeros(1)
        numbers = np.array(self.values, dtype=np.float64)
        order = np.argsort(numbers)
        return np.array([np.interp(float(value), numbers[order], self._places[order, 0])])

    def decode(self, columns: Array) -> list[Any]:
        """The nearest rank."""
        last = len(self.values) - 1
        ranks = np.clip(np.rint((np.asarray(columns)[:, 0] + 1) / 2 * last), 0, last)
        return [self.values[int(i)] for i in ranks]

    def describe(self) -> str:
        return "ordinal " + " < ".join(map(str, self.values))


@dataclass(frozen=True)
class Categorical(_Choice):
    """One of several values without an order: one column of 0 and 1 for each."""

    kind: ClassVar[str] = "categorical"

    @property
    def width(self) -> int:
        return len(self.values)

    @property
    def _places(self) -> Array:
        return np.eye(self.width)

    def _place_of(self, value: Any) -> Array:
        """A new choice is as much like each of the others: at the same distance from all."""
        if type(value) not in set(map(type, self.values)) or not _is_text(value):
            known = ", ".join(map(repr, self.values))
            raise self._refuse(value, f"another choice like {known}")
        return np.full(self.width, 1 / self.width)

    def unlike(self, value: Any) -> str:
        """Also how to ask for a new choice, which is never suggested."""
        text = super().unlike(value)
        how = f"--fix '{self.name}={value}' --extrapolate asks for it"
        return text and f"{text}, and is not suggested ({how})"

    def decode(self, columns: Array) -> list[Any]:
        """The value with the largest column."""
        return [self.values[int(i)] for i in np.argmax(columns, axis=1)]

    def describe(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Fixed(Parameter):
    """A parameter with one value; it takes no numeric column."""

    name: str
    value: Any

    kind: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", to_python(self.value))

    @property
    def choices(self) -> tuple[Any, ...]:
        """Its only value."""
        return (self.value,)

    @property
    def width(self) -> int:
        return 0

    def encode(self, values: Values, *, extrapolate: bool = False) -> Array:
        """No column; other values than its own are refused unless ``extrapolate``."""
        for value in () if extrapolate else distinct(values)[0]:
            if index_of((self.value,), value) is None:
                ignore = Hint("ignore it", "extrapolate=True", "--extrapolate")
                raise self._refuse(value, f"fixed at {self.value!r}", ignore)
        return np.empty((len(values), 0))

    def decode(self, columns: Array) -> list[Any]:
        return [self.value] * len(columns)

    def sample(self, uniform: Array) -> Array:
        return np.empty((len(uniform), 0))

    def describe(self) -> str:
        return f"fixed at {self.value}"


def _letters(text: str) -> str:
    """A text without what differs when people type it again: case and spaces."""
    return " ".join(text.split()).casefold()


def _is_text(value: Any) -> bool:
    """Whether a text, if it is one, can be stored."""
    try:
        return not isinstance(value, str) or bool(value.encode())
    except UnicodeEncodeError:  # half a character
        return False


def _check_range(name: str, low: float, high: float, on_log: bool, step: float | None) -> None:
    if not isinstance(name, str):
        raise InputError(f"a parameter is called {shown(name)}; expected text")
    if not isinstance(on_log, bool):
        raise InputError(f"parameter {name!r} has log {on_log!r}; expected True or False")
    if not (all(is_number(v) and isfinite(v) for v in (low, high)) and low < high):
        found = f"[{shown(low)}, {shown(high)}]"
        raise InputError(f"parameter {name!r} ranges over {found}; expected numbers low < high")
    if on_log and low <= 0:
        raise InputError(f"parameter {name!r} starts at {low}; a log scale needs low > 0")
    if step is not None and not 0 < step <= high - low + GRID_SLACK * step:
        raise InputError(f"parameter {name!r} has step {step}; expected 0 < step <= high - low")


KINDS: dict[str, type[Parameter]] = {
    cls.kind: cls for cls in (Float, Integer, Ordinal, Categorical, Fixed)
}


def parameter_of(entry: dict[str, Any]) -> Parameter:
    """Inverse of `Parameter.to_dict`."""
    kind, name = entry.pop("type", None), entry.get("name")
    if not isinstance(name, str):
        raise InputError(f"a parameter has the name {name!r}; expected text")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        raise InputError(f"parameter {name!r} has type {kind!r}; known are {known}")
    if not isinstance(entry.get("values", []), (list, tuple)):
        raise InputError(f"parameter {name!r} has values {entry['values']!r}; expected a list")
    try:
        return KINDS[kind](**entry)
    except TypeError as error:
        raise InputError(f"parameter {name!r} of type {kind}: {error}") from None


def from_distribution(name: str, distribution: Any) -> Parameter:
    """A parameter from a distribution of Optuna."""
    d, kind = distribution, type(distribution).__name__
    if kind == "CategoricalDistribution":
        return Fixed(name, d.choices[0]) if d.single() else Categorical(name, tuple(d.choices))
    if kind not in ("FloatDistribution", "IntDistribution"):
        raise InputError(f"parameter {name!r} has the unknown distribution {kind}")
    number = Float if kind == "FloatDistribution" else Integer
    return Fixed(name, d.low) if d.single() else number(name, d.low, d.high, d.log, d.step)
