"""Averages over Gaussian processes and scales: weights by evidence, predictions and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.factor import (
    SMALLEST_VARIANCE,
    CrossPosterior,
    Factor,
    Prediction,
    PredictionGradient,
)
from metakel.gp.processes import LevelAndScale

UCB_WIDTH = 1.5
# Every so many runs, from this one on, an upper bound is wider: past tasks may have taught a model
# to be too sure of what it has not tried on this one, and then nothing near its best point tells.
WIDE_EVERY, WIDE_FROM = 4, 12
ROOT_TWO_PI = 2.5066282746310002
TINY = 1e-300
# Weights of the variances of function and noise in expected improvement. Processes learned from
# other tasks are too sure of themselves; a factor between 1 and 2 of the standard deviation serves
# all tables alike.
VARIANCE_WEIGHTS = (1.5**2, 1.0)
# Below this improvement, in units of the scale, expected improvement is numerically flat.
FLAT = 1e-8
NEGLIGIBLE = 1e-2
SHORTLIST = 128
# Of a drawn function: points at which it is drawn, and noise in units of the largest variance.
MOST_ANCHORS = 800
JITTER = 1e-9


@dataclass(frozen=True, eq=False)
class MixtureWeights:
    """Posterior weights of processes and scales: ``weights`` (processes, g) sums to 1."""

    weights: Array
    scale: LevelAndScale
    log_evidence: float = 0.0

    @cached_property
    def members(self) -> Array:
        """(processes,) posterior weight of each process."""
        return np.asarray(self.weights.sum(axis=1))

    @cached_property
    def scales(self) -> Array:
        """(processes,) mean scale of each process, times its weight."""
        return np.asarray(self.weights @ self.scale.scales)

    @property
    def scale_shares(self) -> Array:
        """(g,) posterior weight of each scale."""
        return np.asarray(self.weights.sum(axis=0))

    def without_negligible(
        self, share: float = NEGLIGIBLE
    ) -> tuple[MixtureWeights, NDArray[np.bool_]]:
        """Without the processes whose weights are below this share of the largest; which stay."""
        largest = self.weights.max(axis=1)
        left: NDArray[np.bool_] = largest > share * largest.max()
        return self if left.all() else MixtureWeights(self.weights[left], self.scale), left


def mixture_weights(
    log_likelihoods: Sequence[Array] | Array, start: Sequence[float] | Array, scale: LevelAndScale
) -> MixtureWeights:
    """Evidence of processes and scales together, from their start weights."""
    joint = np.asarray(log_likelihoods) + scale.log_weights
    joint += np.log(start)[:, None]
    top = joint.max()
    joint -= top
    weights = np.exp(joint, out=joint)
    total = weights.sum()
    weights /= total
    return MixtureWeights(weights, scale, float(top + np.log(total)))


def expected_improvement(
    prediction: Prediction,
    mix: MixtureWeights,
    best: float,
    variance_weights: tuple[float, float] = VARIANCE_WEIGHTS,
) -> Array:
    """(N,) expected improvement over ``best``; see `VARIANCE_WEIGHTS` for the last argument."""
    kept = np.where(mix.weights > NEGLIGIBLE * mix.weights.max(), mix.weights, 0.0)
    scales = np.tile(mix.scale.scales, (len(kept), 1))
    return _improvement(prediction, kept, scales, best, variance_weights)


def largest_improvement(
    prediction: Prediction,
    mix: MixtureWeights,
    best: float,
    variance_weights: tuple[float, float] = VARIANCE_WEIGHTS,
) -> Array:
    """`expected_improvement` of a shortlist; -inf where another candidate is better.

    On it are those with the largest improvement at the mean scale of each process. The average over
    the whole grid of scales then has to be computed for these only.
    """
    n = prediction.offset.shape[1]
    if n <= 2 * SHORTLIST:
        return expected_improvement(prediction, mix, best, variance_weights)
    members = mix.members[:, None]
    scales = mix.scales[:, None] / np.maximum(members, TINY)
    kept = np.where(members > NEGLIGIBLE, members, 0.0)
    rough = _improvement(prediction, kept, scales, best, variance_weights)
    chosen = np.argpartition(-rough, SHORTLIST)[:SHORTLIST]
    scores = np.full(n, -np.inf)
    scores[chosen] = expected_improvement(prediction.at(chosen), mix, best, variance_weights)
    return scores


def _improvement(
    prediction: Prediction,
    weights: Array,
    scales: Array,
    best: float,
    variance_weights: tuple[float, float],
) -> Array:
    """(N,) improvement averaged over processes and scales with ``weights`` (processes, scales)."""
    from scipy.special import ndtr

    total: Array = np.zeros(prediction.offset.shape[1])
    sds = np.sqrt(
        variance_weights[0] * prediction.variance + variance_weights[1] * prediction.noise[:, None]
    )  # (processes, N)
    offsets, slopes = (prediction.offset - best) / sds, prediction.slope / sds
    for offset, slope, sd, shares, grid in zip(offsets, slopes, sds, weights, scales, strict=True):
        kept = shares > 0
        if not kept.any():
            continue
        z = offset / grid[kept][:, None]
        z += slope  # (scales, N)
        gain = np.exp(-0.5 * z * z)
        gain /= ROOT_TWO_PI
        z *= ndtr(z)
        gain += z
        total += sd * ((shares[kept] * grid[kept]) @ gain)
    return total


def improvement_gradient(
    found: PredictionGradient,
    mix: MixtureWeights,
    best: float,
    variance_weights: tuple[float, float] = VARIANCE_WEIGHTS,
) -> tuple[Array, Array]:
    """`expected_improvement` (n,) with its derivative (n, d0)."""
    from scipy.special import ndtr

    p = found.value
    kept = np.where(mix.weights > NEGLIGIBLE * mix.weights.max(), mix.weights, 0.0)
    scales = mix.scale.scales
    sd = np.sqrt(
        variance_weights[0] * p.variance + variance_weights[1] * p.noise[:, None]
    )  # (processes, n)
    z = ((p.offset - best)[:, None] / scales[:, None] + p.slope[:, None]) / sd[:, None]
    chance, density = ndtr(z), np.exp(-0.5 * z * z) / ROOT_TWO_PI  # (processes, scales, n)
    d_sd = variance_weights[0] * found.variance / (2 * sd)[:, :, None]
    slope = _average(np.einsum("pg,pgn->pn", kept, chance), found.offset)
    slope += _average(np.einsum("pg,pgn->pn", kept * scales, chance), found.slope)
    slope += _average(np.einsum("pg,pgn->pn", kept * scales, density), d_sd)
    return expected_improvement(p, mix, best, variance_weights), slope


def _average(weights: Array, slopes: Array) -> Array:
    """(n, d0) sum over processes of slopes (processes, n, d0) with weights (processes, n)."""
    return np.asarray(np.einsum("pn,pnd->nd", weights, slopes))


def ucb_width(runs: int) -> float:
    r"""Standard deviations in the upper bound that chooses the next of so many runs.

    1.5, and :math:`2 \sqrt{\log t}` after every fourth run t from the twelfth on. It grows as the
    width of GP-UCB does, so that a search leaves the best point of a model that is wrong.
    """
    wide = runs >= WIDE_FROM and runs % WIDE_EVERY == 0
    return 2 * sqrt(log(runs)) if wide else UCB_WIDTH


def upper_bound(prediction: Prediction, mix: MixtureWeights, width: float = UCB_WIDTH) -> Array:
    """(N,) mean plus ``width`` standard deviations, averaged over processes and scales."""
    heights = np.sqrt(prediction.variance)
    heights *= width
    heights += prediction.slope
    bound = mix.scales @ heights
    bound += mix.members @ prediction.offset
    return np.asarray(bound)


def upper_bound_gradient(
    found: PredictionGradient, mix: MixtureWeights, width: float = UCB_WIDTH
) -> tuple[Array, Array]:
    """`upper_bound` (n,) with its derivative (n, d0)."""
    variance = found.value.variance
    rate = np.where(variance > SMALLEST_VARIANCE, width / (2 * np.sqrt(variance)), 0.0)
    slopes = found.slope + rate[:, :, None] * found.variance
    slope = np.einsum("p,pnd->nd", mix.members, found.offset)
    slope += np.einsum("p,pnd->nd", mix.scales, slopes)
    return upper_bound(found.value, mix, width), slope


def predict(prediction: Prediction, mix: MixtureWeights) -> tuple[Array, Array]:
    """(N,) mean and standard deviation of the mixture over processes and scales."""
    offset, slope, scales = prediction.offset, prediction.slope, mix.scale.scales
    shares, sums = mix.members, mix.scales
    mean = shares @ offset + sums @ slope
    usual = sums / np.maximum(shares, TINY)  # (processes,)
    around = (mix.weights * (scales - usual[:, None]) ** 2).sum(axis=1)
    spread = shares @ (offset + usual[:, None] * slope - mean) ** 2
    spread += around @ slope**2
    spread += (mix.weights @ mix.scale.squares) @ prediction.variance
    return mean, np.sqrt(spread)


def drawn_function(
    factor: Factor, mix: MixtureWeights, rng: np.random.Generator
) -> Callable[[Array], Array]:
    """Thompson sampling: a function (n, d0) -> (n,) drawn from the posterior of the mixture.

    One process and one scale are drawn by their weights, then the function jointly at the points of
    the first call, those at which a search begins. Elsewhere it is what the process expects given
    these values, so that all calls are of one function.
    """
    shares = mix.weights.ravel() / mix.weights.sum()
    process, s = divmod(int(rng.choice(len(shares), p=shares)), mix.weights.shape[1])
    chosen = np.arange(len(mix.weights)) == process
    posterior, scale = factor.elsewhere(chosen), float(mix.scale.scales[s])
    drawn: list[tuple[Array, Array]] = []

    def values(Z: Array) -> Array:
        if not drawn:
            anchors = Z[:MOST_ANCHORS]
            drawn.append((anchors, _draw_weights(posterior, anchors, rng)))
        anchors, weights = drawn[0]
        found = posterior.at(Z)
        deviation = posterior.covariance(Z, anchors) @ weights
        return np.asarray(found.offset[0] + scale * (found.slope[0] + deviation))

    return values


def _draw_weights(posterior: CrossPosterior, anchors: Array, rng: np.random.Generator) -> Array:
    """(m,) weights of the covariances with anchors (m, d0), of a draw at these."""
    from scipy.linalg import cholesky, solve_triangular

    K = posterior.covariance(anchors, anchors)
    K[np.diag_indices_from(K)] += JITTER * max(float(K.diagonal().max()), 1e-300)
    for _ in range(6):
        try:
            L = cholesky(K, lower=True)
            break
        except np.linalg.LinAlgError:
            K[np.diag_indices_from(K)] += 1e-6 * float(K.diagonal().max())
    return np.asarray(solve_triangular(L, rng.standard_normal(len(K)), lower=True, trans="T"))
