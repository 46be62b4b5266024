"""Base kernels in torch: values and gradients in x are those that the NumPy family gives.

So there is one form of every kernel. A user's own function has no gradient: its values work, and a
request for its gradient raises an error that says what to do instead. Values have first derivatives
only, which is what optimizers of acquisition functions ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.kernels.base import Family, FeatureFamily, GramFamily
from metakel.kernels.custom import Custom


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


class Float64Buffers(torch.nn.Module):
    """A module whose double-precision buffers stay double when it is moved to another precision.

    A kernel is made before its model knows the precision of the data. It may pass through single
    precision on the way to double, and lost digits do not come back. So only the device follows a
    move, and computations cast to the precision of the points.
    """

    def add_buffer(self, name: str, values: Any) -> None:
        """Register a copy of an array as a buffer."""
        self.register_buffer(name, torch.from_numpy(np.array(values)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            moved = self._buffers[name]
            if buffer is not None and moved is not None and buffer.dtype == torch.float64:
                self._buffers[name] = buffer.to(moved.device)
        return self


class WeightedFeatures(Float64Buffers):
    """Features of all families side by side, each times the root of its kernel's weight."""

    owner: Tensor

    def __init__(self, families: Sequence[FeatureFamily]) -> None:
        super().__init__()
        dims = [dim for family in families for dim in family.dims]
        self.p, self.dim = len(dims), sum(family.dim for family in families)
        self.add_buffer("owner", np.repeat(np.arange(self.p), np.array(dims, dtype=np.intp)))
        self.families = torch.nn.ModuleList(NumpyFeatures(family) for family in families)

    def forward(self, x: Tensor, eta: Tensor) -> Tensor:
        """(..., n, d) features of (..., n, d0) points, for weights (..., p or more)."""
        features = evaluate_distinct(self._side_by_side, x)
        return features * eta.index_select(-1, self.owner).sqrt().to(x).unsqueeze(-2)

    def _side_by_side(self, x: Tensor) -> Tensor:
        parts = [family(x) for family in self.families]
        return torch.cat([x.new_empty(*x.shape[:-1], 0), *parts], dim=-1)


def evaluate_distinct(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)`` (..., n, d), evaluated once for points that all batches (..., n, d0) share.

    BoTorch joins the observations to every candidate: with 500 candidates the features of a prior
    would cost 100 times as much. Points with gradients are all evaluated, because equal points may
    come from different tensors.
    """
    if x.dim() < 3 or not x.numel() or (x.requires_grad and torch.is_grad_enabled()):
        return function(x)
    first = x[(0,) * (x.dim() - 2)]
    shared = (x == first).flatten(0, -3).all(dim=0).all(dim=-1)  # (n,)
    if not shared.any():
        return function(x)
    own = function(x[..., ~shared, :])
    values = own.new_empty(*x.shape[:-1], own.shape[-1])
    values[..., shared, :] = function(first[shared])
    values[..., ~shared, :] = own
    return values
