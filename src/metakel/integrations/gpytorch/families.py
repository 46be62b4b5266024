"""Base kernels in torch, or evaluated by NumPy where torch has no form of them.

Gradients in x are those that the family gives. A user's own function has none: its values work,
and a request for its gradient raises an error that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import pi, prod, sqrt
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.kernels.base import Family, FeatureFamily, GramFamily
from metakel.kernels.custom import Custom
from metakel.kernels.nystrom import Eigenfunctions, NystromFeatures
from metakel.kernels.products import Products
from metakel.kernels.random_fourier import Fourier
from metakel.kernels.stationary import Stationary


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


# The square root has infinite slope at 0. Squared distances below this count as 0, with slope 0.
COINCIDENT = 1e-30


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
        self.families = torch.nn.ModuleList(torch_features(family) for family in families)

    def forward(self, x: Tensor, eta: Tensor) -> Tensor:
        """(..., n, d) features of (..., n, d0) points, for weights (..., p or more)."""
        features = evaluate_distinct(self._side_by_side, x)
        return features * eta.index_select(-1, self.owner).sqrt().to(x).unsqueeze(-2)

    def _side_by_side(self, x: Tensor) -> Tensor:
        parts = [family(x) for family in self.families]
        return torch.cat([x.new_empty(*x.shape[:-1], 0), *parts], dim=-1)


def torch_features(family: FeatureFamily) -> torch.nn.Module:
    """The features of a family in torch, evaluated by NumPy where torch has no form of them."""
    if isinstance(family, Products):
        return ProductFeatures(family)
    if isinstance(family, Fourier):
        return FourierFeatures(family)
    if isinstance(family, Eigenfunctions):
        return EigenfunctionFeatures(family)
    return NumpyFeatures(family)


def torch_grams(family: GramFamily) -> torch.nn.Module:
    """The Gram matrices of a family in torch, by NumPy where torch has no form of them."""
    return StationaryGrams(family) if isinstance(family, Stationary) else NumpyGrams(family)


class ProductFeatures(Float64Buffers):
    r"""Products :math:`c_j \prod_i u_{a_{ji}}(x_i)` of Legendre polynomials or cosines."""

    factors: Tensor
    scales: Tensor

    def __init__(self, family: Products) -> None:
        super().__init__()
        self.basis = family.basis
        self.top = int(family.orders.max())
        count = max(1, int((family.orders > 0).sum(axis=1).max()))
        inputs = np.argsort(family.orders == 0, axis=1, kind="stable")[:, :count]
        orders = np.take_along_axis(family.orders, inputs, axis=1)
        # Row q: factor q of every kernel, as a column of the table of all inputs and orders.
        # Kernels with fewer factors are filled up with order 0, the constant 1.
        self.add_buffer("factors", (inputs * (self.top + 1) + orders).T)
        self.add_buffer("scales", np.sqrt(family.sup))  # |u| <= 1 is attained, so sup k_j = c_j^2

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, p) features."""
        values = legendre(x, self.top) if self.basis == "legendre" else cosines(x, self.top)
        table = values.flatten(-2)  # (..., n, d0 (top + 1))
        factors = (table.index_select(-1, columns) for columns in self.factors)
        return prod(factors, start=self.scales.to(x))


def legendre(x: Tensor, top: int) -> Tensor:
    """(..., top + 1) Legendre polynomials, by the recurrence of `metakel.kernels.products`."""
    rows = [torch.ones_like(x), x]
    for k in range(1, top):
        step = x * rows[k]
        rows.append(step + k / (k + 1) * (step - rows[k - 1]))
    return torch.stack(rows[: top + 1], dim=-1)


def cosines(x: Tensor, top: int) -> Tensor:
    """(..., top + 1) values cos(pi k x)."""
    return torch.cos(pi * x[..., None] * torch.arange(top + 1).to(x))


class FourierFeatures(Float64Buffers):
    """Pairs cos w'x, sin w'x."""

    frequencies: Tensor

    def __init__(self, family: Fourier) -> None:
        super().__init__()
        self.add_buffer("frequencies", family.frequencies)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, 2p) features, cosine and sine alternating."""
        phase = x @ self.frequencies.to(x).mT
        return torch.stack([phase.cos(), phase.sin()], dim=-1).flatten(-2)


class EigenfunctionFeatures(Float64Buffers):
    r"""Principal functions :math:`c_j + \psi(x)^\top u_j` of past tasks."""

    constants: Tensor

    def __init__(self, family: Eigenfunctions) -> None:
        super().__init__()
        self.functions = NystromFunctions(family.basis, family.directions)
        self.add_buffer("constants", family.constants)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, p) features."""
        values: Tensor = self.functions(x) + self.constants
        return values.to(x)


class NystromFunctions(Float64Buffers):
    r"""Functions :math:`\psi(x)^\top u_j` of the Nystrom features psi of a Matern-5/2 kernel."""

    lengthscales: Tensor
    landmarks: Tensor
    coefficients: Tensor

    def __init__(self, basis: NystromFeatures, directions: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.signal = float(basis.shared.signal)
        self.add_buffer("lengthscales", basis.shared.lengthscales)
        self.add_buffer("landmarks", basis.landmarks / basis.shared.lengthscales)
        self.add_buffer("coefficients", basis.inverse.T @ directions)  # (r, p)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, p) values, in double precision: the coefficients amplify rounding by 1000."""
        left, right = x.double() / self.lengthscales, self.landmarks
        squares = left.square().sum(-1, keepdim=True) + right.square().sum(-1)
        K = self.signal * radial("matern52", squares - 2 * left @ right.mT)
        return K @ self.coefficients


class StationaryGrams(Float64Buffers):
    """Kernels of the distance over a lengthscale, exact."""

    def __init__(self, family: Stationary) -> None:
        super().__init__()
        self.shape = family.shape
        self.columns = family.columns
        self.vectors = [isinstance(scale, tuple) for scale in family.lengthscales]
        for j, scale in enumerate(family.lengthscales):
            self.add_buffer(f"lengthscale{j}", scale)

    def forward(self, x1: Tensor, x2: Tensor, *, diag: bool) -> Iterator[Tensor]:
        """(..., n, k) matrices, or with ``diag`` (..., n) values for pairs of rows."""
        shared: dict[tuple[int, ...] | None, Tensor] = {}
        for j, columns in enumerate(self.columns):
            scale = self.get_buffer(f"lengthscale{j}").to(x1)
            if self.vectors[j]:
                squares = squared_distances(x1, x2, columns, scale, diag=diag)
            else:  # kernels of the same inputs share the distance before it is divided
                if columns not in shared:
                    one = torch.ones_like(scale)
                    shared[columns] = squared_distances(x1, x2, columns, one, diag=diag)
                squares = shared[columns] / scale**2
            yield radial(self.shape, squares)


def squared_distances(
    x1: Tensor, x2: Tensor, columns: tuple[int, ...] | None, scale: Tensor, *, diag: bool
) -> Tensor:
    """Sums of squared differences, which are accurate for close points."""
    if columns is not None:
        x1, x2 = x1[..., list(columns)], x2[..., list(columns)]
    left, right = x1 / scale, x2 / scale
    difference = left - right if diag else left[..., :, None, :] - right[..., None, :, :]
    return difference.square().sum(-1)


def radial(shape: str, squares: Tensor) -> Tensor:
    """Squared exponential or Matern kernel of squared scaled distances, elementwise."""
    if shape == "se":
        return torch.exp(-squares / 2)
    r = squares.clamp_min(COINCIDENT).sqrt()
    if shape == "matern12":
        return torch.exp(-r)
    if shape == "matern32":
        s = sqrt(3) * r
        return (1 + s) * torch.exp(-s)
    s = sqrt(5) * r
    return (1 + s + s * s / 3) * torch.exp(-s)


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
