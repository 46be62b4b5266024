"""Learned numbers as buffers that keep all their digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor


class Exact(torch.nn.Module):
    """A module whose double precision buffers stay double, whatever precision it is moved to.

    A kernel is made before its model knows the precision of the data, so it may pass through
    single precision on the way to double, and digits cut once do not come back. Only the device
    follows a move; computations cast to the precision of the points.
    """

    def keep(self, name: str, values: Any) -> None:
        """Register an array as a buffer: numbers in double precision, indices as they are."""
        array = np.array(values)  # a copy: arrays of frozen objects are read-only
        self.register_buffer(name, torch.from_numpy(array))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {
            name: buffer
            for name, buffer in self._buffers.items()
            if buffer is not None and buffer.dtype == torch.float64
        }
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in exact.items():
            moved = self._buffers[name]
            assert moved is not None
            self._buffers[name] = buffer.to(moved.device)
        return self
