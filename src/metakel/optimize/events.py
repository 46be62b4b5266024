"""What happened to an optimizer, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError

Kind = Literal["asked", "told", "forgotten"]


@dataclass(frozen=True, eq=False)
class Event:
    """One call that changed the optimizer.

    Parameters
    ----------
    kind : "asked", "told" or "forgotten"
    X : (n, d0) array
        The points of the call.
    y : (n,) array or None
        What was observed there, for "told".
    noise_std : (n,) array or None
        The noise of these observations, for "told".
    """

    kind: Kind
    X: Array
    y: Array | None = None
    noise_std: Array | None = None

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        kept = {"X": self.X, "y": self.y, "noise_std": self.noise_std}
        arrays = {name: array.tolist() for name, array in kept.items() if array is not None}
        return {"kind": self.kind, **arrays}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Event:
        """Inverse of `to_dict`."""
        kind = data["kind"]
        if kind not in get_args(Kind):
            raise InputError(
                f"stored event is of kind {kind!r}; known: {', '.join(get_args(Kind))}"
            )
        names = ("X", "y", "noise_std") if kind == "told" else ("X",)
        return Event(kind, **{name: np.array(data[name], dtype=np.float64) for name in names})


@dataclass(frozen=True, eq=False)
class Best:
    """The best point that was told.

    Parameters
    ----------
    x : (d0,) array
        Where: the told point that is certain to be at least as good as any other is certain to be,
        that is with the largest lower bound (the smallest upper bound when minimising).
    value : float
        An estimate of the function there, without the noise: the posterior mean, or the bound
        next to it where the mean lies outside of the bounds (which know all earlier times too).
    lower, upper : float
        Confidence bounds of the function there.
    """

    x: Array
    value: float
    lower: float
    upper: float
