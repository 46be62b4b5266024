"""Beliefs over candidates, weighed by evidence, and the score that decides among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metakel.prior.acquisition import (
    FLAT,
    Mixture,
    expected_improvement,
    mixture,
    predict,
    shortlist,
    upper_bound,
)
from metakel.prior.belief import Belief, Terms
from metakel.tasks import Array

if TYPE_CHECKING:
    from metakel.prior.prior import Prior

SHORTLIST = 128


class Decider:
    """Beliefs over candidates, and the score of each candidate; larger values are better."""

    def __init__(self, prior: Prior, Z: Array, acquisition: str) -> None:
        shapes, self._start = prior.beliefs
        self._beliefs = [Belief(shape, prior.model, Z) for shape in shapes]
        self._model, self._acquisition = prior.model, acquisition
        self._Z = Z
        self._shaped = bool(self._beliefs[0].terms.tilt.any())
        self.values: list[float] = []

    @property
    def mix(self) -> Mixture:
        """Posterior weights of beliefs and scales."""
        likelihoods = [belief.log_likelihoods for belief in self._beliefs]
        return mixture(likelihoods, self._start, self._model)

    def tell(self, x: Array, y: float, candidate: int | None) -> None:
        """Take in one value."""
        for belief in self._beliefs:
            belief.tell(x, y, candidate)
        self.values.append(y)

    def best_candidate(self, closed: NDArray[np.bool_]) -> int:
        """The open candidate with the largest score."""
        return int(np.argmax(np.where(closed, -np.inf, self.scores(closed))))

    def scores(self, closed: NDArray[np.bool_]) -> Array:
        """(N,) of the candidates; -inf where another is certainly better."""
        terms = [belief.terms for belief in self._beliefs]
        if not self.values:
            return self._first(terms[0].tilt, self._Z)
        if self._acquisition != "ei" or len(closed) <= 2 * SHORTLIST:
            return self._score(terms)
        mix, best = self.mix, max(self.values)
        chosen = shortlist(terms, mix, best, SHORTLIST)
        gains = expected_improvement([term[chosen] for term in terms], mix, best)
        if gains[~closed[chosen]].max(initial=0.0) <= FLAT * self._model.scale:
            return upper_bound(terms, mix)
        scores = np.full(len(closed), -np.inf)
        scores[chosen] = gains
        return scores

    def scores_at(self, Z: Array) -> Array:
        """(k,) of other points."""
        terms = [belief.at(Z) for belief in self._beliefs]
        return self._score(terms) if self.values else self._first(terms[0].tilt, Z)

    def _first(self, tilt: Array, Z: Array) -> Array:
        """Before any value: the top of the common shape; without one, the centre of the space."""
        return tilt if self._shaped else -np.einsum("nd,nd->n", Z, Z)

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at any points."""
        return predict([belief.at(Z) for belief in self._beliefs], self.mix)

    def _score(self, terms: list[Terms]) -> Array:
        mix = self.mix
        if self._acquisition == "ei":
            gain = expected_improvement(terms, mix, max(self.values))
            if gain.max() > FLAT * self._model.scale:
                return gain
        return upper_bound(terms, mix)
