"""One past task (Eq. 4)."""

from __future__ import annotations

from dataclasses import dataclass

from metakel._arrays import Array, as_points, as_values
from metakel.errors import InputError


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
    lacks : tuple of int
        Numeric columns of parameters that the task did not record: unknown, and the same in all of
        its runs. They are 0 in ``X``, whatever is given there.
    """

    X: Array
    y: Array
    name: str = "task"
    lacks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        X = as_points(self.X, self.name)
        if X.shape[0] == 0:
            raise InputError(f"{self.name} is empty; expected at least one observation")
        y = as_values(self.y, X.shape[0], self.name)
        lacks = tuple(sorted({int(i) for i in self.lacks}))
        if lacks and not (lacks[0] >= 0 and lacks[-1] < X.shape[1] and len(lacks) < X.shape[1]):
            raise InputError(
                f"{self.name} lacks the columns {lacks}; expected some of 0 to {X.shape[1] - 1}, "
                "and not all"
            )
        if lacks:
            X = X.copy()
            X[:, list(lacks)] = 0.0
        X.setflags(write=False)
        y.setflags(write=False)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "lacks", lacks)

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
