"""Base kernels that torch has no form of, the user's own among them, evaluated by NumPy.

Gradients in x are those that the family gives. A user's own function has none: its values work,
and a request for its gradient raises an error that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.kernels.custom import Custom
from metakel.kernels.family import Family, FeatureFamily, GramFamily


class NumpyFeatures(torch.nn.Module):
    """Features of any family."""

    def __init__(self, family: FeatureFamily) -> None:
        super().__init__()
        self.family = family

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, d) features."""
        features: Tensor = _Features.apply(x, self.family)  # type: ignore[no-untyped-call]
        return features


class NumpyGrams(torch.nn.Module):
    """Gram matrices of any family."""

    def __init__(self, family: GramFamily) -> None:
        super().__init__()
        self.family = family

    def forward(self, x1: Tensor, x2: Tensor, *, diag: bool) -> Iterator[Tensor]:
        """(..., n, k) matrices, or with ``diag`` (..., n) values for pairs of rows."""
        if diag:  # every pair of rows is a batch of its own
            x1, x2 = x1[..., None, :], x2[..., None, :]
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # type: ignore[no-untyped-call,unused-ignore]
        x1, x2 = (x.expand(*batch_shape, *x.shape[-2:]) for x in (x1, x2))
        grams: Tensor = _Grams.apply(x1, x2, self.family)  # type: ignore[no-untyped-call]
        return iter(grams[..., 0, 0] if diag else grams)


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, family: FeatureFamily) -> Tensor:
        ctx.family, ctx.shape = family, x.shape
        ctx.points = _to_numpy(x).reshape(-1, x.shape[-1])
        return _to_torch(family.features(ctx.points), x).reshape(*x.shape[:-1], family.dim)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator,unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        _check_differentiable(ctx.family)
        jacobian = _to_torch(ctx.family.jacobian(ctx.points), gradient)  # (N, d, d0)
        rows = gradient.reshape(jacobian.shape[:-1])
        return torch.einsum("nd,ndi->ni", rows, jacobian).reshape(ctx.shape), None


class _Grams(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, family: GramFamily) -> Tensor:
        ctx.family, ctx.shapes = family, (x1.shape, x2.shape)
        left, right = (_to_numpy(x).reshape(-1, *x.shape[-2:]) for x in (x1, x2))
        ctx.batches = list(zip(left, right, strict=True))
        grams = np.stack([family.grams(X, Z) for X, Z in ctx.batches], axis=1)
        return _to_torch(grams, x1).reshape(family.p, *x1.shape[:-1], x2.shape[-2])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator,unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        family = ctx.family
        _check_differentiable(family)
        outer = _to_numpy(gradient)
        outer = outer.reshape(family.p, len(ctx.batches), *outer.shape[-2:]).swapaxes(0, 1)
        pairs = list(zip(ctx.batches, outer, strict=True))
        first = np.stack([_pull_back(family, X, Z, K) for (X, Z), K in pairs])
        # k(x, z) = k(z, x): the slope in the second point is that in the first, transposed.
        second = np.stack([_pull_back(family, Z, X, K.swapaxes(1, 2)) for (X, Z), K in pairs])
        one, other = ctx.shapes
        return (
            _to_torch(first, gradient).reshape(one),
            _to_torch(second, gradient).reshape(other),
            None,
        )


def _pull_back(family: GramFamily, X: Array, Z: Array, outer: Array) -> Array:
    """(n, d0) gradient of sum_j <outer_j, k_j(X, Z)> in X."""
    slopes = family.gram_gradients(X, Z)  # (p, n, k, d0)
    return np.asarray(np.einsum("jnk,jnki->ni", outer, slopes))


def _check_differentiable(family: Family) -> None:
    if isinstance(family, Custom):
        raise InputError(
            f"kernel {family.name!r} is your own NumPy function, so its gradient in x is "
            "unknown; use optimize_acqf_discrete over candidates, or optimize_acqf(..., "
            "options={'with_grad': False})"
        )


def _to_numpy(x: Tensor) -> Array:
    return np.asarray(x.detach().double().cpu().numpy())


def _to_torch(values: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(np.array(values)).to(like)
