"""Numbers and facts from a file, checked where they enter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from sys import float_info
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.priors.prior import PriorInfo

TINY = float_info.min  # what is above 0


def number(name: str, value: Any, low: float = -inf, below: float = inf) -> float:
    """A finite number with low <= value < below."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < below:
        raise InputError(f"{name} is {value!r}; expected a number in [{low:g}, {below:g})")
    return float(value)


def numbers(
    name: str, values: Any, shape: Sequence[int | None], low: float = -inf, below: float = inf
) -> Array:
    """Finite numbers in [low, below) of this shape, where None is any size."""
    found = np.array(values, dtype=np.float64)
    fits = found.ndim == len(shape) and all(
        size in (None, there) for size, there in zip(shape, found.shape, strict=True)
    )
    if not fits:
        raise InputError(f"{name} has shape {found.shape}; expected {tuple(shape)}")
    wrong = ~(np.isfinite(found) & (found >= low) & (found < below))
    if wrong.any():
        raise InputError(
            f"{name} holds {found[wrong][0]}; expected numbers in [{low:g}, {below:g})"
        )
    return found


def read_facts(data: Mapping[str, Any]) -> PriorInfo:
    """Where a prior comes from; every field of its type."""
    found: dict[str, Any] = dict(data)
    for kind, names in (
        (list, ("tasks", "constant", "notes")),
        (str, ("output", "lam")),
        (int, ("runs", "winsorized")),
        (bool, ("minimize", "mean")),
    ):
        for name in set(names) & set(found):  # some have a default
            value = found[name]
            if not isinstance(value, kind):
                raise InputError(f"{name} is {value!r}; expected {kind.__name__}")
            if isinstance(value, list):
                found[name] = tuple(map(str, value))
    return PriorInfo(**found)
