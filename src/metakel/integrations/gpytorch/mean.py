"""The learned mean as a GPyTorch mean."""

from __future__ import annotations

import gpytorch  # type: ignore[import-untyped]
from torch import Tensor

from metakel.errors import InputError
from metakel.integrations.gpytorch.exact import Exact
from metakel.integrations.gpytorch.features import Landmarks
from metakel.integrations.gpytorch.repeats import once
from metakel.priors import Prior
from metakel.priors.calibration import Calibration


class GPyTorchMean(Exact, gpytorch.means.Mean):  # type: ignore[misc]
    """What a typical task has at a point: level + scale m(x).

    It goes with ``GPyTorchKernel(prior.kernel)``: both take numeric points
    (``prior.space.encode(...)``) and speak of the output in its own units, with the sign that is
    maximised, so outputs that are minimised are negated before they are told. Without a common
    shape, or where held-out tasks say that it does not help (`Prior.helps`), it is the level alone.

    Parameters
    ----------
    learned : Prior, or the calibration of one
        ``prior.calibration`` has the mean (and the kernel) that ``prior.norm_bound`` is about.
    """

    level: Tensor
    pull: Tensor

    def __init__(self, learned: Prior | Calibration) -> None:
        if not isinstance(learned, Prior | Calibration):
            raise InputError(
                f"GPyTorchMean was given a {type(learned).__name__}, which has no mean; expected a "
                "Prior, as learn_prior gives, or its calibration. What learn_kernel gives goes "
                "with gpytorch.means.ZeroMean() and GPyTorchKernel(learned.kernel)"
            )
        super().__init__()
        shape = learned.task_gp
        if isinstance(learned, Prior) and not learned.helps:
            shape = None
        self.keep("level", learned.model.level)
        self.landmarks = None if shape is None else Landmarks(shape.basis)
        if shape is not None:
            self.keep("pull", learned.model.scale * (shape.basis.inverse.T @ shape.mu))

    def forward(self, x: Tensor) -> Tensor:
        """(..., n) values, differentiable in x."""
        values: Tensor = self.level.expand(x.shape[:-1])
        if self.landmarks is not None:
            values = values + once(self._common_shape, x)[..., 0]
        return values.to(x)

    def _common_shape(self, x: Tensor) -> Tensor:
        assert self.landmarks is not None
        shape: Tensor = self.landmarks(x) @ self.pull[:, None]
        return shape
