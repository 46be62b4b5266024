"""Thompson sampling: a function drawn from the posterior of a mixture, whose top is tried next."""

from __future__ import annotations

import numpy as np

from metakel._arrays import Array
from metakel.gp.averages import MixtureWeights
from metakel.gp.factor import CrossPosterior, Factor
from metakel.optimize.model import Score

MOST_ANCHORS = 800
JITTER = 1e-9  # of the largest variance


def drawn_function(factor: Factor, mix: MixtureWeights, rng: np.random.Generator) -> Score:
    """A function from one process and one scale, drawn by their posterior weights.

    It is drawn jointly at the points of the first call, those at which a search begins. Elsewhere
    it is what the process expects given these values, so that all calls are of one function.
    """
    shares = mix.weights.ravel() / mix.weights.sum()
    process, s = divmod(int(rng.choice(len(shares), p=shares)), mix.weights.shape[1])
    chosen = np.arange(len(mix.weights)) == process
    posterior, scale = factor.elsewhere(chosen), float(mix.scale.scales[s])
    drawn: list[tuple[Array, Array]] = []

    def values(Z: Array) -> Array:
        if not drawn:
            anchors = Z[:MOST_ANCHORS]
            drawn.append((anchors, _weights(posterior, anchors, rng)))
        anchors, weights = drawn[0]
        found = posterior.at(Z)
        deviation = posterior.covariance(Z, anchors) @ weights
        return np.asarray(found.offset[0] + scale * (found.slope[0] + deviation))

    return Score(values)


def _weights(posterior: CrossPosterior, anchors: Array, rng: np.random.Generator) -> Array:
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
