"""Base kernels in torch; points are (..., n, d0), features are (..., n, d)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import pi, prod, sqrt
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from metakel.integrations.gpytorch.numpy_families import NumpyFeatures, NumpyGrams
from metakel.kernels.family import FeatureFamily, GramFamily
from metakel.kernels.nystrom import Eigenfunctions, NystromFeatures
from metakel.kernels.products import Products
from metakel.kernels.random_fourier import Fourier
from metakel.kernels.stationary import Stationary

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
    """(..., top + 1) Legendre polynomials, by the recurrence of `metakel.kernels.univariate`."""
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
