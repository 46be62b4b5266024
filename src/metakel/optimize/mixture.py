"""Beliefs over candidates, weighed by evidence, and the score that decides among them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.gp.incremental import Belief, Prediction
from metakel.gp.task_gp import Shape, TaskGP
from metakel.gp.task_scale import TaskModel
from metakel.optimize.mixture_scores import (
    FLAT,
    Mixture,
    expected_improvement,
    mixture,
    predict,
    shortlist,
    upper_bound,
)

if TYPE_CHECKING:
    from metakel.priors.prior import Prior

SHORTLIST = 128
SMALLEST_CHANCE = 1e-300


class GPMixture:
    """Beliefs over candidates, and the score of each candidate; larger values are better."""

    def __init__(self, prior: Prior, Z: Array, acquisition: str) -> None:
        shapes, self._start = prior.beliefs
        self._families = _families(shapes, prior.model, Z)
        self._model, self._acquisition = prior.model, acquisition
        self._Z = Z
        self._shaped = bool(self._beliefs[0].terms.tilt.any())
        self._learned = np.array([isinstance(shape, TaskGP) for shape in shapes])
        self.values: list[float] = []
        self._counted: list[float] = []
        self._supposing = False
        self._mix: Mixture | None = None  # until the next value

    @property
    def _beliefs(self) -> list[Belief]:
        return [belief for family in self._families for belief in family]

    @property
    def trust(self) -> float:
        """Posterior weight of what was learned, however noisy the task, against the cold start."""
        return float(self.mix.members[self._learned].sum())

    @property
    def best(self) -> float:
        """The value to improve on: the best that counts, or of all told where none does."""
        return max(self._counted or self.values)

    @property
    def mix(self) -> Mixture:
        """Posterior weights of beliefs and scales."""
        if self._mix is None:
            likelihoods = [belief.log_likelihoods for belief in self._beliefs]
            self._mix = mixture(likelihoods, self._start, self._model)
        return self._mix

    def tell(self, x: Array, y: float, candidate: int | None, *, counts: bool = True) -> None:
        """Take in one value; one that does not count as an achievement informs all the same."""
        for family in self._families:
            looked = family[0].look(x, candidate)
            for belief in family:
                belief.take(looked, y, candidate)
        self.values.append(y)
        self._mix = None
        if counts:
            self._counted.append(y)

    def fork(self) -> GPMixture:
        """A copy to be told what if; of use until this one is told again."""
        fork = copy(self)
        fork._families = [[belief.fork() for belief in family] for family in self._families]
        fork.values, fork._counted = list(self.values), list(self._counted)
        return fork

    def supposing(self, X: Array) -> GPMixture:
        """A copy that keeps away from points (k, d0) whose values are not known.

        Every belief takes them as its own prediction, one standard deviation for the worse; the
        weights of beliefs and scales are those of the values told. It is told none itself.
        """
        ahead = copy(self)
        ahead._families, ahead._supposing = [], True
        for family in self._families:
            looked = family[0].look_at(X)
            ahead._families.append([belief.supposing(looked) for belief in family])
        return ahead

    def best_candidate(self, closed: NDArray[np.bool_]) -> int:
        """The open candidate with the largest score."""
        return int(np.argmax(np.where(closed, -np.inf, self.scores(closed))))

    def scores(self, closed: NDArray[np.bool_], chance: Array | None = None) -> Array:
        """(N,) of the candidates; -inf where another is certainly better.

        ``chance`` (N,) that each would count.
        """
        terms = [belief.terms for belief in self._beliefs]
        if not self.values and not self._supposing:
            return self._first(terms[0].tilt, self._Z)
        short = len(closed) <= 2 * SHORTLIST
        if chance is not None or self._acquisition != "ei" or short or not self.values:
            return self._score(terms, self.mix, chance)
        mix, best = self.mix, self.best
        chosen = shortlist(terms, mix, best, SHORTLIST)
        gains = expected_improvement([term[chosen] for term in terms], mix, best)
        if gains[~closed[chosen]].max(initial=0.0) <= FLAT * self._model.scale:
            return upper_bound(terms, mix)
        scores = np.full(len(closed), -np.inf)
        scores[chosen] = gains
        return scores

    def scores_at(self, Z: Array, chance: Array | None = None) -> Array:
        """(k,) of other points."""
        if not self.values and not self._supposing:
            return self._first(self._terms_at(Z)[0].tilt, Z)
        if self._acquisition != "ei" and chance is None:
            return self._score(self._terms_at(Z), self.mix, chance)  # all have a say in a bound
        mix, weighty = self.mix.weighty()
        return self._score(self._terms_at(Z, weighty), mix, chance)

    def _first(self, tilt: Array, Z: Array) -> Array:
        """Before any value: the top of the common shape; without one, the centre of the space."""
        return tilt if self._shaped else -np.einsum("nd,nd->n", Z, Z)

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at any points."""
        return predict(self._terms_at(Z), self.mix)

    def _terms_at(self, Z: Array, weighty: NDArray[np.bool_] | None = None) -> list[Prediction]:
        """Of all beliefs, or of the weighty ones."""
        wanted = iter([True] * len(self._beliefs) if weighty is None else weighty.tolist())
        terms = []
        for family in self._families:
            chosen = [belief for belief in family if next(wanted)]
            if chosen:
                points = chosen[0].shape.prepare(Z)
                K = chosen[0].covariance(points)
                terms += [belief.at_prepared(points, K) for belief in chosen]
        return terms

    def _score(self, terms: list[Prediction], mix: Mixture, chance: Array | None) -> Array:
        if chance is not None and not self._counted:
            return chance  # first find anything that counts
        # A chance can weigh an improvement, which is 0 at worst, but not an upper bound.
        if self.values and (self._acquisition == "ei" or chance is not None):
            gain = expected_improvement(terms, mix, self.best)
            gain = gain if chance is None else gain * chance
            if gain.max() > FLAT * self._model.scale:
                return gain
        bound = upper_bound(terms, mix)
        if chance is None:
            return bound
        return bound + self._model.scale * np.log(np.maximum(chance, SMALLEST_CHANCE))


def _families(shapes: Sequence[Shape], model: TaskModel, Z: Array) -> list[list[Belief]]:
    """Beliefs in the order of their shapes; those that differ in the noise only share the rest."""
    families: list[list[Belief]] = []
    for shape in shapes:
        kin = families[-1][0] if families else None
        if kin and isinstance(shape, TaskGP) and isinstance(kin.shape, TaskGP):
            families[-1].append(kin.with_shape(shape))
        else:
            families.append([Belief(shape, model, Z)])
    return families
