"""Kernels that torch does not know, the user's own among them, asked through NumPy.

Gradients in x are those that the family itself gives. A user's own function has none: values work
as ever, and whoever asks for a gradient gets an error that says what to do instead.
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
        x1, x2 = (x.expand(*_batch_shape(x1, x2), *x.shape[-2:]) for x in (x1, x2))
        grams: Tensor = _Grams.apply(x1, x2, self.family)  # type: ignore[no-untyped-call]
        return iter(grams[..., 0, 0] if diag else grams)


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, family: FeatureFamily) -> Tensor:
        ctx.family, ctx.points, ctx.shape = family, _points(x), x.shape
        return _like(x, family.features(ctx.points)).reshape(*x.shape[:-1], family.dim)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator,unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        _refuse_without_slope(ctx.family)
        jacobian = _like(gradient, ctx.family.jacobian(ctx.points))  # (N, d, d0)
        rows = gradient.reshape(jacobian.shape[:-1])
        return torch.einsum("nd,ndi->ni", rows, jacobian).reshape(ctx.shape), None


class _Grams(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, family: GramFamily) -> Tensor:
        ctx.family, ctx.shapes = family, (x1.shape, x2.shape)
        ctx.batches = list(zip(_batches(x1), _batches(x2), strict=True))
        grams = np.stack([family.grams(X, Z) for X, Z in ctx.batches], axis=1)
        return _like(x1, grams).reshape(family.p, *x1.shape[:-1], x2.shape[-2])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator,unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        _refuse_without_slope(ctx.family)
        outer = gradient.double().cpu().numpy()
        outer = outer.reshape(ctx.family.p, len(ctx.batches), *outer.shape[-2:])
        # k(x, z) = k(z, x), so the slope in the second point is that in the first, turned around.
        first, second = (
            _like(
                gradient, np.stack([_pulled(ctx.family, pair, outer[:, b]) for b, pair in turned])
            )
            for turned, outer in (
                (list(enumerate(ctx.batches)), outer),
                ([(b, (Z, X)) for b, (X, Z) in enumerate(ctx.batches)], outer.swapaxes(-1, -2)),
            )
        )
        return first.reshape(ctx.shapes[0]), second.reshape(ctx.shapes[1]), None


def _pulled(family: GramFamily, pair: tuple[Array, Array], outer: Array) -> Array:
    """(n, d0) slope of sum_j <outer_j, k_j(X, Z)> in X."""
    slopes = family.gram_gradients(*pair)  # (p, n, k, d0)
    return np.asarray(np.einsum("jnk,jnki->ni", outer, slopes))


def _refuse_without_slope(family: Family) -> None:
    if isinstance(family, Custom):
        raise InputError(
            f"kernel {family.name!r} is your own NumPy function, so its slope in x is not known; "
            "use optimize_acqf_discrete over candidates, or optimize_acqf(..., "
            "options={'with_grad': False})"
        )


def _batch_shape(x1: Tensor, x2: Tensor) -> torch.Size:
    return torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # type: ignore[no-untyped-call,no-any-return,unused-ignore]


def _points(x: Tensor) -> Array:
    return np.asarray(x.detach().double().cpu().numpy().reshape(-1, x.shape[-1]))


def _batches(x: Tensor) -> Array:
    return np.asarray(x.detach().double().cpu().numpy().reshape(-1, *x.shape[-2:]))


def _like(x: Tensor, values: Array) -> Tensor:
    return torch.from_numpy(np.array(values)).to(x)
