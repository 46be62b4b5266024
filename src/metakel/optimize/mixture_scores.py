"""Which candidate to try next: a score averaged over beliefs and scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.incremental import Prediction
from metakel.gp.task_scale import TaskModel

# Fitted beliefs are too sure of themselves; a factor between 1 and 2 serves all tables alike.
INFLATION = 1.5
UCB_WIDTH = 1.5
# Below this improvement, in units of the scale, expected improvement is numerically flat.
FLAT = 1e-8
NEGLIGIBLE = 1e-2
ROOT_TWO_PI = 2.5066282746310002


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posterior weights of beliefs and scales: ``weights`` (beliefs, 15) sums to 1."""

    weights: Array
    model: TaskModel

    @property
    def members(self) -> Array:
        """(beliefs,) posterior weight of each belief."""
        return np.asarray(self.weights.sum(axis=1))

    def weighty(self) -> tuple[Mixture, NDArray[np.bool_]]:
        """Without the beliefs that no score takes into account, and which are left."""
        left = self.weights.max(axis=1) > NEGLIGIBLE * self.weights.max()
        return Mixture(self.weights[left], self.model), left


def mixture(
    log_likelihoods: Sequence[Array], start: Sequence[float] | Array, model: TaskModel
) -> Mixture:
    """Evidence of beliefs and scales together, from their start weights."""
    joint = np.array(log_likelihoods) + model.log_weights + np.log(np.asarray(start))[:, None]
    weights = np.exp(joint - joint.max())
    return Mixture(weights / weights.sum(), model)


def expected_improvement(terms: Sequence[Prediction], mix: Mixture, best: float) -> Array:
    """(N,) expected improvement over ``best`` of the value to be seen, noise included."""
    kept = np.where(mix.weights > NEGLIGIBLE * mix.weights.max(), mix.weights, 0.0)
    return _improvement(terms, kept, np.tile(mix.model.scales, (len(terms), 1)), best)


def shortlist(
    terms: Sequence[Prediction], mix: Mixture, best: float, count: int
) -> NDArray[np.intp]:
    """The ``count`` candidates with the largest improvement at the mean scale of each belief.

    The average over the whole grid of scales then has to be computed for these only.
    """
    members = mix.members[:, None]
    scales = (mix.weights @ mix.model.scales)[:, None] / np.maximum(members, 1e-300)
    rough = _improvement(terms, np.where(members > NEGLIGIBLE, members, 0.0), scales, best)
    return np.argpartition(-rough, count)[:count]


def _improvement(terms: Sequence[Prediction], weights: Array, scales: Array, best: float) -> Array:
    """(N,) improvement averaged over beliefs and scales with ``weights`` (beliefs, scales)."""
    from scipy.special import ndtr

    total = np.zeros_like(terms[0].base)
    for term, shares, grid in zip(terms, weights, scales, strict=True):
        sd = np.sqrt(INFLATION**2 * term.variance + term.noise)
        kept = shares > 0
        if not kept.any():
            continue
        z = ((term.base - best) / sd) / grid[kept][:, None]
        z += term.tilt / sd  # (scales, N)
        gain = np.exp(-0.5 * z * z)
        gain /= ROOT_TWO_PI
        z *= ndtr(z)
        gain += z
        total += sd * ((shares[kept] * grid[kept]) @ gain)
    return total


def upper_bound(terms: Sequence[Prediction], mix: Mixture, width: float = UCB_WIDTH) -> Array:
    """(N,) mean plus ``width`` standard deviations, averaged over beliefs and scales."""
    total = np.zeros_like(terms[0].base)
    for term, share, scale in zip(terms, mix.members, mix.weights @ mix.model.scales, strict=True):
        total += share * term.base + scale * (term.tilt + width * np.sqrt(term.variance))
    return total


def predict(terms: Sequence[Prediction], mix: Mixture) -> tuple[Array, Array]:
    """(N,) mean and standard deviation of the mixture over beliefs and scales."""
    means = [term.base + np.outer(mix.model.scales, term.tilt) for term in terms]  # (15, N) each
    first = sum(w @ mean for w, mean in zip(mix.weights, means, strict=True))
    spread = np.zeros_like(terms[0].base)
    for term, weights, mean in zip(terms, mix.weights, means, strict=True):
        spread += weights @ (mean - first) ** 2 + (weights @ mix.model.scales**2) * term.variance
    return np.asarray(first), np.sqrt(spread)
