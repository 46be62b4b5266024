"""The learned kernel as a GPyTorch kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import gpytorch  # type: ignore[import-untyped]
import numpy as np
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

from metakel.errors import InputError, ShapeError
from metakel.integrations.gpytorch.exact import Exact
from metakel.integrations.gpytorch.features import WeightedFeatures
from metakel.integrations.gpytorch.grams import torch_grams
from metakel.kernels import KernelSum
from metakel.kernels.base import DOMAIN_SLACK
from metakel.kernels.family import FeatureFamily, GramFamily
from metakel.kernels.sum import as_kernel

# Leaving the domain by this many roundings of 1, or as far as NumPy kernels allow, is put right;
# more is a mistake.
ROUNDINGS = 32


class GPyTorchKernel(Exact, gpytorch.kernels.Kernel):  # type: ignore[misc]
    r"""The kernel :math:`k = \sum_j \eta_j k_j` (Eqs. 5 and 9) for GPyTorch and BoTorch models.

    Points may come in batches, in double or single precision, and have gradients. The weights are
    the buffer ``eta``, not parameters: fitting a model does not change them, and a model that has
    no other parameters cannot be fitted at all. Wrap the kernel in a
    ``gpytorch.kernels.ScaleKernel`` to fit one factor for all of them.

    Where every active kernel has a feature map and there are no more features than observations,
    GPyTorch conditions in feature space, as `metakel.posterior` does.

    Parameters
    ----------
    kernel : KernelSum
        As in ``learned.kernel`` or ``prior.kernel``.
    batch_shape : torch.Size, optional
        One copy of the weights for every batch.
    active_dims : sequence of int, optional
        Which inputs of a point the kernel gets; all of them by default.
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
        unmapped = [f for f in active.families if isinstance(f, GramFamily)]
        self.d0 = kernel.d0
        self.domains = frozenset(f.domain for f in active.families if f.domain is not None)
        # Kernels with a feature map first: the order in which `forward` takes their weights.
        order = sorted(kernel.active.tolist(), key=lambda j: kernel.base.dims[j] is None)
        copies = () if batch_shape is None else tuple(batch_shape)
        self.keep("eta", np.tile(kernel.eta[order], (*copies, 1)))
        self.mapped = WeightedFeatures(mapped)
        self.unmapped = torch.nn.ModuleList(torch_grams(family) for family in unmapped)
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
        matrices = (K for family in self.unmapped for K in family(x1, x2, diag=diag))
        for j, K in enumerate(matrices, start=self.mapped.p):
            weight = eta[..., j, None].to(K)
            covariance = covariance + (weight if diag else weight[..., None]) * K
        return covariance

    @property
    def _in_feature_space(self) -> bool:
        return self.mapped.dim > 0 and not len(self.unmapped)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any
    ) -> DefaultPredictionStrategy:
        """Condition in feature space where that is the smaller one."""
        features_are_few = self.mapped.dim <= train_labels.shape[-1]
        strategy = (
            LinearPredictionStrategy
            if self._in_feature_space and features_are_few
            else DefaultPredictionStrategy
        )
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
        """Points with the right number of inputs, inside of the domain up to rounding."""
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
                    f"kernel: x ranges over [{least:.6g}, {most:.6g}]; the base kernels live on "
                    f"[{low:g}, {high:g}] (rescale the inputs, and the bounds of optimize_acqf)"
                )
            x = x.clamp(low, high)
        return x


def _equal_constants(x1: Tensor, x2: Tensor) -> bool:
    """Whether two tensors can stand for each other; with gradients each has its own."""
    fixed = not (x1.requires_grad or x2.requires_grad)
    return fixed and x1.shape == x2.shape and torch.equal(x1, x2)
