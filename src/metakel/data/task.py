"""One past task (Eq. 4), and which columns can be given (Proposition 29)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metakel._arrays import Array, as_numbers, as_points, as_values
from metakel.errors import InputError, ShapeError

if TYPE_CHECKING:
    from metakel.data.history import History


@dataclass(frozen=True, eq=False)
class Task:
    """One past task: where it was observed and what was seen there.

    Parameters
    ----------
    X : (n, d0) array
        A vector is read as n points of one input.
    y : (n,) array
        Or a column (n, 1).
    name : str
        How messages and reports call it.
    noise_std : (n,) array, optional
        Standard deviation of the noise of each value, nan where it is not known.
    failed : (k, d0) array, optional
        Where it was tried and no value came out.
    """

    X: Array
    y: Array
    name: str = "task"
    failed: Array | None = None
    noise_std: Array | None = None

    def __post_init__(self) -> None:
        X = as_points(self.X, self.name)
        if X.shape[0] == 0:
            raise InputError(f"{self.name} is empty; expected at least one observation")
        y = as_values(self.y, X.shape[0], self.name)
        failed = np.empty((0, X.shape[1])) if self.failed is None else self.failed
        failed = as_numbers(f"{self.name}: failed", failed, (None, X.shape[1]))
        if self.noise_std is not None:
            object.__setattr__(self, "noise_std", _noise_levels(self.noise_std, y, self.name))
        for points in (X, failed):
            points.setflags(write=False)
        y.setflags(write=False)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "failed", failed)

    @property
    def n(self) -> int:
        """How many observations the task holds."""
        return len(self.X)

    @property
    def d0(self) -> int:
        """How many inputs a point has."""
        return int(self.X.shape[1])

    def __repr__(self) -> str:
        return f"Task({self.name!r}, n={self.n}, d0={self.d0})"


def check_given(history: History, names: Sequence[str], columns: Container[str]) -> None:
    """Refuse given columns that are no parameters, and columns that are constant in every task.

    Such a column multiplies every kernel of a task by one number, which its coefficients
    absorb, so no history tells how it matters (Proposition 29).
    """
    if isinstance(names, str):
        raise InputError(f"given is {names!r}; expected a list of columns, [{names!r}]")
    space = history.space
    if not names or space is None:
        return
    for name in names:
        if name not in space.names and name not in columns:
            known = ", ".join(map(repr, space.names))
            raise InputError(f"there is no column {name!r} to be given; parameters are {known}")
        own = space.columns.get(name, slice(0))
        if not any(np.ptp(task.X[:, own], axis=0).any() for task in history):
            raise InputError(
                f"{name!r} is constant in every task, so it describes tasks and cannot be given: "
                "no history tells how it matters"
            )
    if set(space.names) <= set(names):
        raise InputError("every parameter is given; nothing is left to choose")


def _noise_levels(noise_std: Array, y: Array, name: str) -> Array:
    found = np.array(noise_std, dtype=np.float64)
    if found.shape != y.shape:
        raise ShapeError(f"{name}: noise_std has shape {found.shape}; expected {y.shape}")
    wrong = (found < 0) | np.isinf(found)
    if wrong.any():
        raise InputError(f"{name}: noise_std holds {found[wrong][0]}; expected numbers >= 0 or nan")
    found.setflags(write=False)
    return found
