"""Checks of the arguments of all statements, by name: a name means the same everywhere."""

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
    """A set of numbers, and its description in messages."""

    holds: Callable[[Any], bool]
    words: str

    def check(self, name: str, value: Any) -> None:
        """Raise if the value is not in the set."""
        if not (isinstance(value, int | float | Real) and self.holds(value)):
            raise InputError(f"{name} is {value!r}; expected {self.words}")


COUNT = Allowed(lambda x: x >= 1 and x % 1 == 0, "a whole number >= 1")
COUNT_OR_NONE = Allowed(lambda x: x >= 0 and x % 1 == 0, "a whole number >= 0")
PROBABILITY = Allowed(lambda x: 0 < x < 1, "a number between 0 and 1")
POSITIVE = Allowed(lambda x: 0 < x < inf, "a number > 0")
NOT_NEGATIVE = Allowed(lambda x: 0 <= x < inf, "a number >= 0")
# Bounds may be infinite.
BOUND = Allowed(lambda x: x >= 0, "a number >= 0, or inf")

RANGES = {
    COUNT: "m p d d_max horizon total models total_dim",
    COUNT_OR_NONE: "dim sparsity t",
    PROBABILITY: "delta beta weight",
    POSITIVE: "n kappa beta_min smallest_weight noise_var factor sup lam_ratio scale",
    NOT_NEGATIVE: "noise_std lam weight_sum smallest coherence phi_max radius phi_norm trace",
    BOUND: "norm_bound norm recovery_error information_gain nu",
}
ALLOWED = {name: allowed for allowed, names in RANGES.items() for name in names.split()}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: check the keyword arguments of a statement by their names."""

    @wraps(function)
    def statement(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name in ALLOWED:
                ALLOWED[name].check(name, value)
        return function(*args, **kwargs)

    return statement
