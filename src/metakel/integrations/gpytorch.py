"""The learned kernel and the learned mean as GPyTorch modules, for GPyTorch and BoTorch models.

Values and gradients in x are those that the NumPy families give, so there is one form of every
kernel. A user's own function has no gradient: its values work, and a request for its gradient
raises an error that says what to do instead. Values have first derivatives only, which is what
optimizers of acquisition functions ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

try:
    import gpytorch  # type: ignore[import-untyped]
except ImportError:
    raise ImportError(
        "GPyTorch kernels need torch and gpytorch: pip install torch gpytorch"
    ) from None
import torch
from gpytorch.models.exact_prediction_strategies import (  # type: ignore[import-untyped]
    DefaultPredictionStrategy,
    LinearPredictionStrategy,
)
from linear_operator import LinearOperator  # type: ignore[import-untyped]
from linear_operator.operators import (  # type: ignore[import-untyped]
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch import Tensor
from torch.autograd.function import once_differentiable

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum
from metakel.kernels.base import DOMAIN_SLACK, Family, FeatureFamily, GramFamily
from metakel.kernels.custom import Custom
from metakel.kernels.nystrom import Eigenfunctions
from metakel.kernels.sum import as_kernel
from metakel.priors import Prior
from metakel.priors.confidence import Calibration

__all__ = ["GPyTorchKernel", "GPyTorchMean"]

# Points are moved back into the domain over this many rounding errors of 1, or as far as NumPy
# kernels allow; points farther outside are a mistake.
ROUNDINGS = 32


def features_of(family: FeatureFamily, x: Tensor) -> Tensor:
    """(..., n, d) features."""
    features: Tensor = _Features.apply(x, family)  # type: ignore[no-untyped-call]
    return features


def grams_of(family: GramFamily, x1: Tensor, x2: Tensor, *, diag: bool) -> Iterator[Tensor]:
    """(..., n, k) Gram matrices, or with ``diag`` (..., n) values for pairs of rows."""
    if diag:  # every pair of rows is a batch of its own
        x1, x2 = x1[..., None, :], x2[..., None, :]
    batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # type: ignore[no-untyped-call,unused-ignore]
    x1, x2 = (x.expand(*batch_shape, *x.shape[-2:]) for x in (x1, x2))
    grams: Tensor = _Grams.apply(x1, x2, family)  # type: ignore[no-untyped-call]
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
        self.families = tuple(families)

    def forward(self, x: Tensor, eta: Tensor) -> Tensor:
        """(..., n, d) features of (..., n, d0) points, for weights (..., p or more)."""
        features = evaluate_distinct(self._side_by_side, x)
        return features * eta.index_select(-1, self.owner).sqrt().to(x).unsqueeze(-2)

    def _side_by_side(self, x: Tensor) -> Tensor:
        parts = [features_of(family, x) for family in self.families]
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


class GPyTorchMean(Float64Buffers, gpytorch.means.Mean):  # type: ignore[misc]
    """The mean that `learn_prior` found: level + scale m(x), the value of a typical task at x.

    Use it together with ``GPyTorchKernel(prior.kernel)``. Points are encoded configurations
    (``prior.space.encode(...)``). Values are in the units of the output, larger is better: negate
    an output that is minimised. The mean is the level alone where the tasks have no common shape,
    or where it does not help on held-out tasks (`Prior.helps`).

    Parameters
    ----------
    learned : Prior, or the calibration of one
        ``prior.calibration`` has the mean (and the kernel) that ``prior.norm_bound`` refers to.
    """

    level: Tensor
    scale: Tensor

    def __init__(self, learned: Prior | Calibration) -> None:
        if not isinstance(learned, Prior | Calibration):
            raise InputError(
                f"GPyTorchMean was given a {type(learned).__name__}, which has no mean; expected a "
                "Prior, as learn_prior returns, or its calibration. For the result of learn_kernel "
                "use gpytorch.means.ZeroMean() and GPyTorchKernel(learned.kernel)"
            )
        super().__init__()
        shape = learned.task_gp
        if isinstance(learned, Prior) and not learned.helps:
            shape = None
        self.add_buffer("level", learned.model.level)
        self.add_buffer("scale", learned.model.scale)
        self.common_shape: Eigenfunctions | None = None
        if shape is not None:
            mean = shape.mu[:, None]
            self.common_shape = Eigenfunctions(shape.basis, np.zeros(1), mean, ("common",))

    def forward(self, x: Tensor) -> Tensor:
        """(..., n) values, differentiable in x."""
        values: Tensor = self.level.expand(x.shape[:-1])
        if self.common_shape is not None:
            common = evaluate_distinct(partial(features_of, self.common_shape), x)
            values = values + self.scale * common[..., 0]
        return values.to(x)


class GPyTorchKernel(Float64Buffers, gpytorch.kernels.Kernel):  # type: ignore[misc]
    r"""The kernel :math:`k = \sum_j \eta_j k_j` (Eqs. 5 and 9) for GPyTorch and BoTorch models.

    It takes batches of points in double or single precision, and is differentiable in them. The
    weights are the buffer ``eta``, not parameters: fitting a model does not change them, and a
    model without other parameters cannot be fitted. Wrap the kernel in a
    ``gpytorch.kernels.ScaleKernel`` to fit one common factor.

    GPyTorch conditions in feature space, as `metakel.posterior` does, if every active kernel has a
    feature map and there are at most as many features as observations.

    Parameters
    ----------
    kernel : KernelSum
        Such as ``learned.kernel`` or ``prior.kernel``.
    batch_shape : torch.Size, optional
        One copy of the weights for every batch.
    active_dims : sequence of int, optional
        Columns of the points that the kernel uses; all by default.
    """

    has_lengthscale = False
    eta: Tensor

    def __init__(
        self,
        kernel: KernelSum,
        *,
        batch_shape: torch.Size | None = None,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        kernel = as_kernel("kernel", kernel)
        dims = None if active_dims is None else tuple(active_dims)
        super().__init__(batch_shape=batch_shape, active_dims=dims)
        active = kernel.base.select(kernel.active.tolist())
        mapped = [f for f in active.families if isinstance(f, FeatureFamily)]
        self.unmapped = tuple(f for f in active.families if isinstance(f, GramFamily))
        self.d0 = kernel.d0
        self.domains = frozenset(f.domain for f in active.families if f.domain is not None)
        # Kernels with a feature map first: the order in which `forward` takes their weights.
        order = sorted(kernel.active.tolist(), key=lambda j: kernel.base.dims[j] is None)
        copies = () if batch_shape is None else tuple(batch_shape)
        self.add_buffer("eta", np.tile(kernel.eta[order], (*copies, 1)))
        self.mapped = WeightedFeatures(mapped)
        self._probe = torch.empty(0)  # a tensor that goes wherever the module is moved

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Tensor | LinearOperator:
        """Covariances (..., n, k), or with ``diag`` (..., n); see `gpytorch.kernels.Kernel`."""
        eta = self.eta
        if last_dim_is_batch:
            x1, x2 = (x.transpose(-1, -2).unsqueeze(-1) for x in (x1, x2))
            eta = eta.unsqueeze(-2)
        same = x1 is x2 or _equal_constants(x1, x2)
        x1 = self._checked(x1)
        x2 = x1 if same else self._checked(x2)
        left = self.mapped(x1, eta)
        right = left if same else self.mapped(x2, eta)
        if diag:
            covariance = (left * right).sum(-1)
        elif self._in_feature_space:
            return RootLinearOperator(left) if same else MatmulLinearOperator(left, right.mT)
        else:
            covariance = left @ right.mT
        matrices = (K for family in self.unmapped for K in grams_of(family, x1, x2, diag=diag))
        for j, K in enumerate(matrices, start=self.mapped.p):
            weight = eta[..., j, None].to(K)
            covariance = covariance + (weight if diag else weight[..., None]) * K
        return covariance

    @property
    def _in_feature_space(self) -> bool:
        """Whether every active kernel has a feature map."""
        return self.mapped.dim > 0 and not self.unmapped

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any
    ) -> DefaultPredictionStrategy:
        """Condition in feature space if there are at most as many features as observations."""
        few = self._in_feature_space and self.mapped.dim <= train_labels.shape[-1]
        strategy = LinearPredictionStrategy if few else DefaultPredictionStrategy
        return strategy(train_inputs, train_prior_dist, train_labels, likelihood)

    @property
    def dtype(self) -> torch.dtype:
        """The precision that the module was moved to."""
        found = {self._probe.dtype, *(parameter.dtype for parameter in self.parameters())}
        if len(found) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple dtypes: {found}.")
        return self._probe.dtype

    @property
    def device(self) -> torch.device:
        """Where the module was moved to."""
        return self._probe.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._probe = fn(self._probe)
        return super()._apply(fn, recurse)

    def _checked(self, x: Tensor) -> Tensor:
        """Points with the right number of inputs, moved into the domain over rounding errors."""
        if self.d0 is not None and x.shape[-1] != self.d0:
            raise ShapeError(
                f"kernel: x has shape {tuple(x.shape)}, which is {x.shape[-1]} inputs per point; "
                f"expected (..., n, {self.d0})"
            )
        slack = max(DOMAIN_SLACK, ROUNDINGS * torch.finfo(x.dtype).eps)
        for low, high in self.domains if x.numel() else ():
            least, most = x.aminmax()
            if not (least >= low - slack and most <= high + slack):
                raise InputError(
                    f"kernel: x ranges over [{least:.6g}, {most:.6g}]; the domain of the base "
                    f"kernels is [{low:g}, {high:g}] (rescale the inputs, and the bounds of "
                    "optimize_acqf)"
                )
            x = x.clamp(low, high)
        return x


def _equal_constants(x1: Tensor, x2: Tensor) -> bool:
    """Whether one tensor can replace the other; with gradients they are distinct."""
    fixed = not (x1.requires_grad or x2.requires_grad)
    return fixed and x1.shape == x2.shape and torch.equal(x1, x2)
