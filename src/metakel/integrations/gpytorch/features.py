"""Base kernels with feature maps, in torch; x is (..., n, d0), features are (..., n, d)."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, prod

import numpy as np
import torch
from torch import Tensor

from metakel.integrations.gpytorch.bridge import NumpyFeatures
from metakel.integrations.gpytorch.exact import Exact
from metakel.integrations.gpytorch.profiles import profile
from metakel.integrations.gpytorch.repeats import once
from metakel.kernels.family import FeatureFamily
from metakel.kernels.nystrom import Eigenfunctions, NystromFeatures
from metakel.kernels.products import Products
from metakel.kernels.random_fourier import Fourier


class WeightedFeatures(Exact):
    """Features of all families side by side, times the root of the weight of their kernel."""

    owner: Tensor

    def __init__(self, families: Sequence[FeatureFamily]) -> None:
        super().__init__()
        dims = [dim for family in families for dim in family.dims]
        self.p, self.dim = len(dims), sum(family.dim for family in families)
        self.keep("owner", np.repeat(np.arange(self.p), np.array(dims, dtype=np.intp)))
        self.families = torch.nn.ModuleList(torch_features(family) for family in families)

    def forward(self, x: Tensor, eta: Tensor) -> Tensor:
        """(..., n, d) features of (..., n, d0) points, for weights (..., p or more)."""
        features = once(self._side_by_side, x)
        return features * eta.index_select(-1, self.owner).sqrt().to(x).unsqueeze(-2)

    def _side_by_side(self, x: Tensor) -> Tensor:
        parts = [family(x) for family in self.families]
        return torch.cat([x.new_empty(*x.shape[:-1], 0), *parts], dim=-1)


def torch_features(family: FeatureFamily) -> torch.nn.Module:
    """The same features in torch; families it does not know are asked through NumPy."""
    if isinstance(family, Products):
        return ProductFeatures(family)
    if isinstance(family, Fourier):
        return FourierFeatures(family)
    if isinstance(family, Eigenfunctions):
        return PrincipalFeatures(family)
    return NumpyFeatures(family)


class ProductFeatures(Exact):
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
        # Factor q of kernel j in the table of all inputs and orders; order 0 is the constant 1.
        self.keep("factors", (inputs * (self.top + 1) + orders).T)
        self.keep("scales", np.sqrt(family.sup))  # |u| <= 1 is attained, so k_j <= c_j^2

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, p) features."""
        values = legendre(x, self.top) if self.basis == "legendre" else cosines(x, self.top)
        table = values.flatten(-2)  # (..., n, d0 (top + 1))
        factors = (table.index_select(-1, rows) for rows in self.factors)
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


class FourierFeatures(Exact):
    """Pairs cos w'x, sin w'x."""

    frequencies: Tensor

    def __init__(self, family: Fourier) -> None:
        super().__init__()
        self.keep("frequencies", family.frequencies)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, 2p) features, cosine and sine in turn."""
        phase = x @ self.frequencies.to(x).mT
        return torch.stack([phase.cos(), phase.sin()], dim=-1).flatten(-2)


class Landmarks(Exact):
    """The shared Matern-5/2 kernel of past tasks against the landmarks of a prior."""

    lengthscales: Tensor
    scaled: Tensor

    def __init__(self, basis: NystromFeatures) -> None:
        super().__init__()
        self.signal = float(basis.shared.signal)
        self.keep("lengthscales", basis.shared.lengthscales)
        self.keep("scaled", basis.landmarks / basis.shared.lengthscales)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, r) values, in double precision: what follows multiplies rounding by 1000."""
        left = x.double() / self.lengthscales
        squares = left.square().sum(-1, keepdim=True) + self.scaled.square().sum(-1)
        return self.signal * profile("matern52", squares - 2 * left @ self.scaled.mT)


class PrincipalFeatures(Exact):
    r"""Principal functions :math:`c_j + \psi(x)^\top u_j` of past tasks."""

    pull: Tensor
    constants: Tensor

    def __init__(self, family: Eigenfunctions) -> None:
        super().__init__()
        self.landmarks = Landmarks(family.basis)
        self.keep("pull", family.basis.inverse.T @ family.directions)  # (r, p)
        self.keep("constants", family.constants)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, p) features."""
        values: Tensor = self.landmarks(x) @ self.pull + self.constants
        return values.to(x)
