"""The learned mean as a GPyTorch mean."""

from __future__ import annotations

import gpytorch  # type: ignore[import-untyped]
from torch import Tensor

from metakel.errors import InputError
from metakel.integrations.gpytorch.families import (
    Float64Buffers,
    NystromFunctions,
    evaluate_distinct,
)
from metakel.priors import Prior
from metakel.priors.calibration import Calibration


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
            self.common_shape = NystromFunctions(shape.basis, shape.mu[:, None])

    def forward(self, x: Tensor) -> Tensor:
        """(..., n) values, differentiable in x."""
        values: Tensor = self.level.expand(x.shape[:-1])
        if self.common_shape is not None:
            values = values + self.scale * evaluate_distinct(self.common_shape, x)[..., 0]
        return values.to(x)
