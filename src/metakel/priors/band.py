"""Confidence bands around the learned mean, for named configurations."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf
from typing import Any

import numpy as np

from metakel._arrays import Array, as_values
from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError
from metakel.priors.calibration import Calibration
from metakel.priors.configurations import encode_configurations
from metakel.space import Space


class ConfidenceBand:
    """Anytime intervals for a new task: a `ConfidenceSequence` about f minus the learned mean.

    They hold for all configurations and all times together with probability 1 - delta if the
    new task is exchangeable with the recorded ones, if the norms that past tasks needed at their
    recorded points are those of the functions, and if the noise is sub-Gaussian of size
    ``noise_std``. Half of delta is spent on the norm bound.
    """

    def __init__(
        self,
        calibration: Calibration,
        space: Space,
        *,
        minimize: bool,
        delta: float,
        noise_std: float | None,
        limits: tuple[float, float] = (-inf, inf),
    ) -> None:
        bound = calibration.norm_bound(delta / 2)
        if isinf(bound):
            raise InputError(
                f"{len(calibration.norms)} held-out tasks cannot vouch for a norm bound at delta = "
                f"{delta}; expected delta >= {2 / (len(calibration.norms) + 1):.3g}"
            )
        self.calibration, self.space, self.minimize = calibration, space, minimize
        self.limits = limits
        kernel = calibration.kernel
        self.sequence = ConfidenceSequence(
            kernel,
            noise_std=calibration.noise_std if noise_std is None else noise_std,
            norm_bound=bound,
            delta=delta,
            delta_learning=delta / 2,
            norm_of="kernel",
            full=kernel,
        )

    def tell(self, configurations: Any, values: Sequence[float]) -> None:
        """Take in measured values."""
        X = encode_configurations(configurations, self.space)
        y = as_values(values, len(X), "tell")
        self.sequence.tell(X, (-y if self.minimize else y) - self.calibration.centre(X))

    def interval(self, configurations: Any) -> tuple[Array, Array]:
        """Lower and upper ends, in units of the output and within its limits."""
        X = encode_configurations(configurations, self.space)
        centre = self.calibration.centre(X)
        lower, upper = (end + centre for end in self.sequence.interval(X))
        ends = (-upper, -lower) if self.minimize else (lower, upper)
        return np.clip(ends[0], *self.limits), np.clip(ends[1], *self.limits)

    def __repr__(self) -> str:
        sequence = self.sequence
        return (
            f"ConfidenceBand(t={sequence.t}, delta={sequence.delta:g}, "
            f"norm_bound={self.calibration.norm_bound(sequence.delta / 2):.4g})"
        )
