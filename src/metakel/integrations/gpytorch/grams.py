"""Base kernels without feature maps, in torch: one Gram matrix after the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from metakel.integrations.gpytorch.bridge import NumpyGrams
from metakel.integrations.gpytorch.exact import Exact
from metakel.integrations.gpytorch.profiles import profile
from metakel.kernels.family import GramFamily
from metakel.kernels.stationary import Stationary


def torch_grams(family: GramFamily) -> torch.nn.Module:
    """The same kernels in torch; families it does not know are asked through NumPy."""
    return StationaryGrams(family) if isinstance(family, Stationary) else NumpyGrams(family)


class StationaryGrams(Exact):
    """Kernels of the distance over a lengthscale, exact."""

    def __init__(self, family: Stationary) -> None:
        super().__init__()
        self.shape = family.shape
        self.columns = family.columns
        self.vectors = [isinstance(scale, tuple) for scale in family.lengthscales]
        for j, scale in enumerate(family.lengthscales):
            self.keep(f"lengthscale{j}", scale)

    def forward(self, x1: Tensor, x2: Tensor, *, diag: bool) -> Iterator[Tensor]:
        """(..., n, k) matrices, or with ``diag`` (..., n) values for pairs of rows."""
        shared: dict[tuple[int, ...] | None, Tensor] = {}
        for j, columns in enumerate(self.columns):
            scale = self.get_buffer(f"lengthscale{j}").to(x1)
            if self.vectors[j]:
                squares = squared_distances(x1, x2, columns, scale, diag=diag)
            else:  # kernels that look at the same inputs share the distance before it is divided
                if columns not in shared:
                    one = torch.ones_like(scale)
                    shared[columns] = squared_distances(x1, x2, columns, one, diag=diag)
                squares = shared[columns] / scale**2
            yield profile(self.shape, squares)


def squared_distances(
    x1: Tensor, x2: Tensor, columns: tuple[int, ...] | None, scale: Tensor, *, diag: bool
) -> Tensor:
    """From differences, so that close points keep their digits."""
    if columns is not None:
        x1, x2 = x1[..., list(columns)], x2[..., list(columns)]
    left, right = x1 / scale, x2 / scale
    difference = left - right if diag else left[..., :, None, :] - right[..., None, :, :]
    return difference.square().sum(-1)
