"""Scores averaged over several Gaussian processes and a grid of scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.incremental import SMALLEST_VARIANCE, Prediction, PredictionGradient
from metakel.gp.task_gp import TaskModel
from metakel.optimize.model import ROOT_TWO_PI, UCB_WIDTH

# Fitted processes are too sure of themselves; a factor between 1 and 2 serves all tables alike.
INFLATION = 1.5
# Below this improvement, in units of the scale, expected improvement is numerically flat.
FLAT = 1e-8
NEGLIGIBLE = 1e-2


@dataclass(frozen=True, eq=False)
class MixtureWeights:
    """Posterior weights of processes and scales: ``weights`` (processes, g) sums to 1."""

    weights: Array
    scale: TaskModel
    log_evidence: float = 0.0

    @property
    def members(self) -> Array:
        """(processes,) posterior weight of each process."""
        return np.asarray(self.weights.sum(axis=1))

    def without_negligible(
        self, share: float = NEGLIGIBLE
    ) -> tuple[MixtureWeights, NDArray[np.bool_]]:
        """Without the processes whose weights are below this share of the largest; which stay."""
        left = self.weights.max(axis=1) > share * self.weights.max()
        return MixtureWeights(self.weights[left], self.scale), left


def mixture_weights(
    log_likelihoods: Sequence[Array] | Array, start: Sequence[float] | Array, scale: TaskModel
) -> MixtureWeights:
    """Evidence of processes and scales together, from their start weights."""
    joint = np.asarray(log_likelihoods) + scale.log_weights + np.log(start)[:, None]
    top = joint.max()
    joint -= top
    weights = np.exp(joint, out=joint)
    total = weights.sum()
    weights /= total
    return MixtureWeights(weights, scale, float(top + np.log(total)))


def expected_improvement(
    predictions: Sequence[Prediction], mix: MixtureWeights, best: float
) -> Array:
    """(N,) expected improvement over ``best`` of the value to be seen, noise included."""
    kept = np.where(mix.weights > NEGLIGIBLE * mix.weights.max(), mix.weights, 0.0)
    return _improvement(predictions, kept, np.tile(mix.scale.scales, (len(predictions), 1)), best)


def shortlist(
    predictions: Sequence[Prediction], mix: MixtureWeights, best: float, count: int
) -> NDArray[np.intp]:
    """The ``count`` candidates with the largest improvement at the mean scale of each process.

    The average over the whole grid of scales then has to be computed for these only.
    """
    members = mix.members[:, None]
    scales = (mix.weights @ mix.scale.scales)[:, None] / np.maximum(members, 1e-300)
    rough = _improvement(predictions, np.where(members > NEGLIGIBLE, members, 0.0), scales, best)
    return np.argpartition(-rough, count)[:count]


def _improvement(
    predictions: Sequence[Prediction], weights: Array, scales: Array, best: float
) -> Array:
    """(N,) improvement averaged over processes and scales with ``weights`` (processes, scales)."""
    from scipy.special import ndtr

    total = np.zeros_like(predictions[0].offset)
    for prediction, shares, grid in zip(predictions, weights, scales, strict=True):
        kept = shares > 0
        if not kept.any():
            continue
        sd = np.sqrt(INFLATION**2 * prediction.variance + prediction.noise)
        z = ((prediction.offset - best) / sd) / grid[kept][:, None]
        z += prediction.slope / sd  # (scales, N)
        gain = np.exp(-0.5 * z * z)
        gain /= ROOT_TWO_PI
        z *= ndtr(z)
        gain += z
        total += sd * ((shares[kept] * grid[kept]) @ gain)
    return total


def improvement_gradient(
    found: Sequence[PredictionGradient], mix: MixtureWeights, best: float
) -> tuple[Array, Array]:
    """`expected_improvement` (n,) with its derivative (n, d0)."""
    from scipy.special import ndtr

    value = expected_improvement([g.value for g in found], mix, best)
    slope = np.zeros_like(found[0].offset)
    cutoff = NEGLIGIBLE * mix.weights.max()
    for g, shares in zip(found, mix.weights, strict=True):
        kept = shares > cutoff
        if not kept.any():
            continue
        grid, w = mix.scale.scales[kept], shares[kept]
        sd = np.sqrt(INFLATION**2 * g.value.variance + g.value.noise)
        z = ((g.value.offset - best) / grid[:, None] + g.value.slope) / sd  # (scales, n)
        chance, density = ndtr(z), np.exp(-0.5 * z * z) / ROOT_TWO_PI
        d_sd = INFLATION**2 * g.variance / (2 * sd)[:, None]
        slope += (w @ chance)[:, None] * g.offset
        slope += ((w * grid) @ chance)[:, None] * g.slope
        slope += ((w * grid) @ density)[:, None] * d_sd
    return value, slope


def upper_bound(
    predictions: Sequence[Prediction], mix: MixtureWeights, width: float = UCB_WIDTH
) -> Array:
    """(N,) mean plus ``width`` standard deviations, averaged over processes and scales."""
    total = np.zeros_like(predictions[0].offset)
    scales = mix.weights @ mix.scale.scales
    for p, share, scale in zip(predictions, mix.members, scales, strict=True):
        total += share * p.offset + scale * (p.slope + width * np.sqrt(p.variance))
    return total


def upper_bound_gradient(
    found: Sequence[PredictionGradient], mix: MixtureWeights, width: float = UCB_WIDTH
) -> tuple[Array, Array]:
    """`upper_bound` (n,) with its derivative (n, d0)."""
    slope = np.zeros_like(found[0].offset)
    scales = mix.weights @ mix.scale.scales
    for g, share, scale in zip(found, mix.members, scales, strict=True):
        sd = np.sqrt(g.value.variance)
        rate = np.where(g.value.variance > SMALLEST_VARIANCE, width / (2 * sd), 0.0)
        slope += share * g.offset + scale * (g.slope + rate[:, None] * g.variance)
    return upper_bound([g.value for g in found], mix, width), slope


def predict(predictions: Sequence[Prediction], mix: MixtureWeights) -> tuple[Array, Array]:
    """(N,) mean and standard deviation of the mixture over processes and scales."""
    scales = mix.scale.scales
    first = np.zeros_like(predictions[0].offset)
    for p, weights in zip(predictions, mix.weights, strict=True):
        first += weights.sum() * p.offset + (weights @ scales) * p.slope
    spread = np.zeros_like(first)
    for p, weights in zip(predictions, mix.weights, strict=True):
        share = weights.sum()
        if share == 0.0:
            continue
        scale = float(weights @ scales) / share
        spread += share * (p.offset + scale * p.slope - first) ** 2
        spread += (weights @ (scales - scale) ** 2) * p.slope**2
        spread += (weights @ scales**2) * p.variance
    return first, np.sqrt(spread)
