"""Weights, predictions and scores of a mixture of Gaussian processes over a grid of scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.incremental import (
    SMALLEST_VARIANCE,
    IncrementalGP,
    Prediction,
    PredictionGradient,
    log_likelihoods,
)
from metakel.gp.success import Runs, SuccessChance
from metakel.gp.task_gp import TaskModel
from metakel.optimize.model import ROOT_TWO_PI, TRAIL, UCB_WIDTH, Chance, Model, Score

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


SHORTLIST = 128
TINY = 1e-300
# Processes of a smaller weight do not show in a sum with the others.
ROUNDING = 1e-9


class MixtureScores(Model):
    """What follows from the processes as they are; `MixtureModel` conditions them."""

    _families: list[list[IncrementalGP]]  # those of a family differ in their noise only
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

    @property
    def mix(self) -> MixtureWeights:
        """Posterior weights of processes and scales."""
        if self._mix is None:
            processes = [p for family in self._families for p in family]
            self._mix = mixture_weights(log_likelihoods(processes), self._start, self._task)
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
            means = self._without_fantasies._at(Z)
            pairs = zip(means, found, strict=True)
            found = [replace(mean, variance=ahead.variance) for mean, ahead in pairs]
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
            process = self._families[0][0]
            found = process.gradient_at(process.process.prepare(Z), Z)
            return found.value.slope, found.slope

        return self._weighed(Score(lambda Z: self._at(Z)[0].slope, gradient), 1.0)

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

        score = Score(values, lambda Z: upper_bound_gradient(self._gradients(Z, kept), mix))
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
            gain = expected_improvement(self._at(Z, kept), mix, best)
            return _log(gain if chance is None else gain * chance(Z))

        def gradient(Z: Array) -> tuple[Array, Array]:
            gain, slope = improvement_gradient(self._gradients(Z, kept), mix, best)
            return _log(gain), slope / np.maximum(gain, TINY)[:, None]

        return self._weighed(Score(values, gradient if chance is None else None), 1.0)

    def _improvement_at_start(self, Z: Array, best: float, chance: Chance | None) -> Array:
        """(N,) at the start points; -inf where another is certainly better."""
        predictions = [p.prediction for family in self._families for p in family]
        if chance is not None:
            return expected_improvement(predictions, self.mix, best) * chance(Z)
        # Where runs may fail, points of less improvement may be the better choice.
        if len(Z) <= 2 * SHORTLIST or self._success is not None:
            return expected_improvement(predictions, self.mix, best)
        chosen = shortlist(predictions, self.mix, best, SHORTLIST)
        scores = np.full(len(Z), -np.inf)
        scores[chosen] = expected_improvement([p[chosen] for p in predictions], self.mix, best)
        return scores

    def _cautious_bound(self, chance: Chance | None) -> Score:
        """The upper bound; a chance cannot weigh it, as it may be negative, so it is added."""
        bound = self.upper_bound()
        if chance is None:
            return bound
        scale = self._task.scale
        return Score(lambda Z: bound.values(Z) + scale * _log(chance(Z)))

    def _at(self, Z: Array, kept: NDArray[np.bool_] | None = None) -> list[Prediction]:
        """Of all processes, or of those kept."""
        here, observed = Z is self._Z, self._are_observed(Z)
        found = []
        for chosen in self._chosen(kept):
            if here:
                found += [process.prediction for process in chosen]
                continue
            seen = chosen[0].seen if observed else None
            points = chosen[0].process.prepare(Z) if seen is None else seen
            K = chosen[0].covariance(points)
            found += [process.at(points, K) for process in chosen]
        return found

    def _are_observed(self, Z: Array) -> bool:
        """Whether they are all observed points, in order, and so many that it matters."""
        alone = self._without_fantasies is None and self._decides is None
        return alone and len(Z) > TRAIL and np.array_equal(Z, self._observed)

    def _gradients(
        self, Z: Array, kept: NDArray[np.bool_] | None = None
    ) -> list[PredictionGradient]:
        found = []
        for chosen in self._chosen(kept):
            points = chosen[0].process.prepare(Z)
            found += chosen[0].gradients_at(points, Z, chosen)
        return found

    def _chosen(self, kept: NDArray[np.bool_] | None) -> list[list[IncrementalGP]]:
        if kept is None:
            return self._families
        flags = iter(kept.tolist())
        families = [[p for p in family if next(flags)] for family in self._families]
        return [family for family in families if family]


def _log(values: Array) -> Array:
    """Of numbers that may be 0; -inf stays."""
    return np.where(values < 0, -np.inf, np.log(np.maximum(values, TINY)))
