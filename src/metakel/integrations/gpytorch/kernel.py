"""The learned kernel and the learned mean as GPyTorch modules."""

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
from metakel.integrations.gpytorch.families import (
    Float64Buffers,
    NumpyFeatures,
    NumpyGrams,
    WeightedFeatures,
    evaluate_distinct,
)
from metakel.kernels import KernelSum
from metakel.kernels.base import DOMAIN_SLACK, FeatureFamily, GramFamily
from metakel.kernels.nystrom import Eigenfunctions
from metakel.kernels.sum import as_kernel
from metakel.priors import Prior
from metakel.priors.confidence import Calibration


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
        self.common_shape = None
        if shape is not None:
            common = Eigenfunctions(shape.basis, np.zeros(1), shape.mu[:, None], ("common",))
            self.common_shape = NumpyFeatures(common)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n) values, differentiable in x."""
        values: Tensor = self.level.expand(x.shape[:-1])
        if self.common_shape is not None:
            values = values + self.scale * evaluate_distinct(self.common_shape, x)[..., 0]
        return values.to(x)


# Points are moved back into the domain over this many rounding errors of 1, or as far as NumPy
# kernels allow; points farther outside are a mistake.
ROUNDINGS = 32


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
        unmapped = [f for f in active.families if isinstance(f, GramFamily)]
        self.d0 = kernel.d0
        self.domains = frozenset(f.domain for f in active.families if f.domain is not None)
        # Kernels with a feature map first: the order in which `forward` takes their weights.
        order = sorted(kernel.active.tolist(), key=lambda j: kernel.base.dims[j] is None)
        copies = () if batch_shape is None else tuple(batch_shape)
        self.add_buffer("eta", np.tile(kernel.eta[order], (*copies, 1)))
        self.mapped = WeightedFeatures(mapped)
        self.unmapped = torch.nn.ModuleList(NumpyGrams(family) for family in unmapped)
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
        """Whether every active kernel has a feature map."""
        return self.mapped.dim > 0 and not len(self.unmapped)

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
