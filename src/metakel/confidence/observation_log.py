"""The memory of a confidence sequence: the observations it was told, call by call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_values
from metakel.confidence.options import EXTREME, positive
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum


@dataclass(frozen=True, eq=False)
class Batch:
    """Observations told in one call.

    Parameters
    ----------
    X : (n, d0) array
    y : (n,) array
    noise_std : (n,) array
    """

    X: Array
    y: Array
    noise_std: Array


@dataclass(frozen=True, eq=False)
class ObservationLog:
    """All batches, in the order of the calls.

    Parameters
    ----------
    batches : tuple of Batch
    t : int
        How many observations they hold.
    """

    batches: tuple[Batch, ...] = ()
    t: int = 0

    def with_batch(self, batch: Batch) -> ObservationLog:
        """The memory after one more call."""
        return ObservationLog((*self.batches, batch), self.t + len(batch.y))

    @property
    def t_before_last(self) -> int:
        """How many observations there were before the last call."""
        return self.t - (len(self.batches[-1].y) if self.batches else 0)

    def checked(
        self, kernel: KernelSum, X: ArrayLike, y: ArrayLike, noise_std: float | ArrayLike
    ) -> Batch:
        """A batch that fits to the kernel and to what came before."""
        points = kernel.base.points(X)
        if self.batches and points.shape[1] != self.batches[0].X.shape[1]:
            raise ShapeError(
                f"tell: X has {points.shape[1]} inputs per point but earlier points have "
                f"{self.batches[0].X.shape[1]}"
            )
        values = as_values(y, len(points), "tell")
        noise = np.array(noise_std, dtype=np.float64)
        if noise.ndim == 0:
            noise = np.full(len(points), float(noise))
        if noise.shape != values.shape:
            raise ShapeError(
                f"tell: noise_std has shape {noise.shape}; expected one number or {values.shape}, "
                "one for every observation"
            )
        bad = noise[~((noise >= 1 / EXTREME) & (noise <= EXTREME))]
        if len(bad):
            positive("tell: noise_std", float(bad[0]))
        extreme = np.abs(values) > EXTREME * noise
        if extreme.any():
            raise InputError(
                f"tell: y holds {values[extreme][0]:g} where noise_std is {noise[extreme][0]:g}; "
                f"expected values up to {EXTREME:g} times the noise, whose squares a float can "
                "hold (a value that stands for a failure had better not be told)"
            )
        return Batch(points, values, noise)

    def to_list(self) -> list[dict[str, Any]]:
        """Exact JSON form."""
        return [
            {"X": b.X.tolist(), "y": b.y.tolist(), "noise_std": b.noise_std.tolist()}
            for b in self.batches
        ]

    @staticmethod
    def from_list(data: list[Mapping[str, Any]], kernel: KernelSum) -> ObservationLog:
        """Inverse of `to_list`."""
        told = ObservationLog()
        for entry in data:
            batch = told.checked(kernel, entry["X"], entry["y"], entry["noise_std"])
            told = told.with_batch(batch)
        return told
