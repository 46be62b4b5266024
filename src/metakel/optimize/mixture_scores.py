"""Weights, predictions and scores of a mixture of Gaussian processes over a grid of scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.incremental import (
    SMALLEST_VARIANCE,
    IncrementalGP,
    Prediction,
    PredictionGradient,
)
from metakel.gp.success import Runs, SuccessChance
from metakel.gp.task_gp import TaskModel
from metakel.optimize.model import ROOT_TWO_PI, TRAIL, UCB_WIDTH, Chance, Model, Score

# Weights of the variances of function and noise in expected improvement. Processes learned from
# other tasks are too sure of themselves; a factor between 1 and 2 of the standard deviation serves
# all tables alike.
VARIANCE_WEIGHTS = (1.5**2, 1.0)
# Below this improvement, in units of the scale, expected improvement is numerically flat.
FLAT = 1e-8
NEGLIGIBLE = 1e-2


@dataclass(frozen=True, eq=False)
class MixtureWeights:
    """Posterior weights of processes and scales: ``weights`` (processes, g) sums to 1."""

    weights: Array
    scale: TaskModel
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
    log_likelihoods: Sequence[Array] | Array, start: Sequence[float] | Array, scale: TaskModel
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


def shortlist(
    prediction: Prediction,
    mix: MixtureWeights,
    best: float,
    count: int,
    variance_weights: tuple[float, float] = VARIANCE_WEIGHTS,
) -> NDArray[np.intp]:
    """The ``count`` candidates with the largest improvement at the mean scale of each process.

    The average over the whole grid of scales then has to be computed for these only.
    """
    members = mix.members[:, None]
    scales = mix.scales[:, None] / np.maximum(members, 1e-300)
    kept = np.where(members > NEGLIGIBLE, members, 0.0)
    rough = _improvement(prediction, kept, scales, best, variance_weights)
    return np.argpartition(-rough, count)[:count]


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


SHORTLIST = 128
TINY = 1e-300
# Processes of a smaller weight do not show in a sum with the others.
ROUNDING = 1e-9


class MixtureScores(Model):
    """What follows from the processes as they are; `MixtureModel` conditions them."""

    _gp: IncrementalGP
    _start: tuple[float, ...]  # weights before any value
    _task: TaskModel
    _success: SuccessChance | None
    _observed: Array
    _t: int
    _mean: bool  # whether the mean of the first process varies
    _Z: Array | None  # start points
    _failing: Array | None  # chances there
    _kept: dict[str, Any]  # scores and predictions there
    _mix: MixtureWeights | None
    _without_fantasies: Self | None
    _decides: Self | None
    variance_weights: ClassVar[tuple[float, float]] = VARIANCE_WEIGHTS  # in expected improvement

    @property
    def mix(self) -> MixtureWeights:
        """Posterior weights of processes and scales."""
        if self._mix is None:
            self._mix = mixture_weights(self._gp.log_likelihoods, self._start, self._task)
        return self._mix

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """(n,) means and standard deviations of the objective; fantasies shrink the latter."""
        if Z is self._Z:
            if "prediction" not in self._kept:
                self._kept["prediction"] = self._predict(Z)
            mean, sd = self._kept["prediction"]
            return mean.copy(), sd.copy()
        return self._predict(Z)

    def _predict(self, Z: Array) -> tuple[Array, Array]:
        found = self._at(Z)
        if self._without_fantasies is not None:
            found = replace(self._without_fantasies._at(Z), variance=found.variance)
        return predict(found, self.mix)

    def first_score(self) -> Score | None:
        """Before any value: the top of the mean; without one, the centre of the space."""
        if self._t or self._without_fantasies is not None:
            return None
        if not self._mean:
            return Score(
                lambda Z: -np.einsum("nd,nd->n", Z, Z),
                lambda Z: (-np.einsum("nd,nd->n", Z, Z), -2 * Z),
            )

        def gradient(Z: Array) -> tuple[Array, Array]:
            found = self._gp.elsewhere(first).gradient(Z)
            return found.value.slope[0], found.slope[0]

        first = np.arange(len(self._start)) == 0
        return self._weighed(Score(lambda Z: self._at(Z, first).slope[0], gradient), 1.0)

    def _weighed(self, score: Score, unit: float) -> Score:
        """The score plus so many units of the log chance that a run gives a value."""
        success, slopes = self._success, score.gradient
        if success is None:
            return score
        failed = self._observed[:0] if self.outcomes is None else self.outcomes.failed
        runs = Runs(self._observed, failed)

        def values(Z: Array) -> Array:
            known = self._failing if Z is self._Z else None
            return score.values(Z) + unit * success.log_chance(Z, runs, known)

        if slopes is None:
            return Score(values)

        def gradient(Z: Array) -> tuple[Array, Array]:
            value, slope = slopes(Z)
            more, its_slope = success.log_chance_gradient(Z, runs)
            return value + unit * more, slope + unit * its_slope

        return Score(values, gradient)

    def upper_bound(self) -> Score:
        """Mean plus 1.5 standard deviations, averaged over processes and scales."""
        mix, kept = self.mix.without_negligible(ROUNDING)

        def values(Z: Array) -> Array:
            if Z is not self._Z:
                return upper_bound(self._at(Z, kept), mix)
            if "bound" not in self._kept:
                self._kept["bound"] = upper_bound(self._at(Z, kept), mix)
            return np.asarray(self._kept["bound"])

        score = Score(
            values, lambda Z: upper_bound_gradient(self._gp.elsewhere(kept).gradient(Z), mix)
        )
        return self._weighed(score, self._task.scale)

    def expected_improvement(self, best: float, chance: Chance | None = None) -> Score:
        """Of the value to be seen, averaged, times the chance that a point is feasible.

        Its logarithm, which is easier to climb. Where no improvement is to be expected at any start
        point: the upper bound.
        """
        mix, kept = self.mix.without_negligible()
        at_start = None if self._Z is None else self._improvement_at_start(self._Z, best, chance)
        # Feasible points may have little to offer, and still more than infeasible ones.
        least = FLAT * self._task.scale if chance is None else 0.0
        if at_start is not None and at_start.max() <= least:
            return self._cautious_bound(chance)
        logs_at_start = None if at_start is None else _log(at_start)

        def values(Z: Array) -> Array:
            if logs_at_start is not None and Z is self._Z:
                return logs_at_start
            gain = expected_improvement(self._at(Z, kept), mix, best, self.variance_weights)
            return _log(gain if chance is None else gain * chance(Z))

        def gradient(Z: Array) -> tuple[Array, Array]:
            found = self._gp.elsewhere(kept).gradient(Z)
            gain, slope = improvement_gradient(found, mix, best, self.variance_weights)
            return _log(gain), slope / np.maximum(gain, TINY)[:, None]

        return self._weighed(Score(values, gradient if chance is None else None), 1.0)

    def _improvement_at_start(self, Z: Array, best: float, chance: Chance | None) -> Array:
        """(N,) at the start points; -inf where another is certainly better."""
        prediction, mix, variance_weights = self._gp.prediction, self.mix, self.variance_weights
        if chance is not None:
            return expected_improvement(prediction, mix, best, variance_weights) * chance(Z)
        # Where runs may fail, points of less improvement may be the better choice.
        if len(Z) <= 2 * SHORTLIST or self._success is not None:
            return expected_improvement(prediction, mix, best, variance_weights)
        chosen = shortlist(prediction, mix, best, SHORTLIST, variance_weights)
        scores = np.full(len(Z), -np.inf)
        scores[chosen] = expected_improvement(prediction.at(chosen), mix, best, variance_weights)
        return scores

    def _cautious_bound(self, chance: Chance | None) -> Score:
        """The upper bound; a chance cannot weigh it, as it may be negative, so it is added."""
        bound = self.upper_bound()
        if chance is None:
            return bound
        scale = self._task.scale
        return Score(lambda Z: bound.values(Z) + scale * _log(chance(Z)))

    def _at(self, Z: Array, kept: NDArray[np.bool_] | None = None) -> Prediction:
        """Of all processes, or of those kept."""
        if Z is self._Z:
            return self._gp.prediction if kept is None else self._gp.prediction.of(kept)
        elsewhere = self._gp.elsewhere(kept)
        return elsewhere.at_observed() if self._are_observed(Z) else elsewhere.at(Z)

    def _are_observed(self, Z: Array) -> bool:
        """Whether they are all observed points, in order, and so many that it matters."""
        alone = self._without_fantasies is None and self._decides is None
        return alone and len(Z) > TRAIL and np.array_equal(Z, self._observed)


def _log(values: Array) -> Array:
    """Of numbers that may be 0; -inf stays."""
    return np.where(values < 0, -np.inf, np.log(np.maximum(values, TINY)))
