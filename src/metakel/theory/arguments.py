"""What the numbers in the statements may be, by their names: one name means one thing in all."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import inf
from numbers import Real
from typing import Any, NamedTuple, ParamSpec, TypeVar

from metakel.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


class Allowed(NamedTuple):
    """A set of numbers, and how messages call it."""

    holds: Callable[[Any], bool]
    words: str

    def check(self, name: str, value: Any) -> None:
        """Refuse what is not in it."""
        if not (isinstance(value, int | float | Real) and self.holds(value)):
            raise InputError(f"{name} is {value!r}; expected {self.words}")


COUNT = Allowed(lambda x: x >= 1 and x % 1 == 0, "a whole number >= 1")
COUNT_OR_NONE = Allowed(lambda x: x >= 0 and x % 1 == 0, "a whole number >= 0")
PROBABILITY = Allowed(lambda x: 0 < x < 1, "a number between 0 and 1")
POSITIVE = Allowed(lambda x: 0 < x < inf, "a number > 0")
NOT_NEGATIVE = Allowed(lambda x: 0 <= x < inf, "a number >= 0")
# Bounds that may say nothing.
BOUND = Allowed(lambda x: x >= 0, "a number >= 0, or inf")

RANGES = {
    COUNT: "m p d d_max horizon total",
    COUNT_OR_NONE: "dim sparsity t",
    PROBABILITY: "delta beta",
    POSITIVE: "n kappa beta_min smallest_weight noise_var factor sup",
    NOT_NEGATIVE: "noise_std lam weight_sum smallest coherence phi_max",
    BOUND: "norm_bound norm recovery_error information_gain nu",
}
ALLOWED = {name: allowed for allowed, names in RANGES.items() for name in names.split()}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The statement, which refuses numbers for which it says nothing."""

    @wraps(function)
    def statement(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name in ALLOWED:
                ALLOWED[name].check(name, value)
        return function(*args, **kwargs)

    return statement
