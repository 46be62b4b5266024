r"""How well f must fit the data: the mixture martingale.

With whitened observations, :math:`\exp((\|f(X) - y\|^2 - \|g(X) - y\|^2)/2)` is a
supermartingale for every fixed g, under any way of choosing the points. Its average over
g ~ N(0, c K), and over scales c and kernels, is one too. By Ville's inequality, with probability
1 - delta and for all t together,

.. math:: \|f(X_t) - y_t\|^2 \le R_t^2 = 2\log\tfrac1\delta
          - 2\log\sum_i w_i \exp(-\tfrac12 y'(I + c_i K)^{-1} y - \tfrac12\log\det(I + c_i K)).

The weights and scales are fixed before the first observation; nothing else is asked of them.
"""

from __future__ import annotations

from math import ceil, log

import numpy as np

from metakel._arrays import Array

# Scales of the mixture below the norm bound, a factor 2 apart.
SCALES = 8


def scales_below(norm_bound: float) -> Array:
    """(8,) guesses of the norm of f: B, B/2, ..., B/128."""
    return norm_bound * np.exp2(-np.arange(SCALES, dtype=np.float64))


def scales_between(low: float, high: float) -> Array:
    """Guesses of the norm of f from ``low`` to ``high``, at most a factor 2 apart."""
    return np.geomspace(low, high, 1 + max(1, ceil(log(high / low, 2))))


def log_evidence(values: Array, squared_targets: Array, rest: float, norm_scales: Array) -> Array:
    """(S,) exponents of the mixture, one per scale c = norm_scale^2.

    Parameters
    ----------
    values, squared_targets : (r,) arrays
        Eigenvalues of K and the squared coordinates of y in its eigenvectors.
    rest : float
        Squared norm of what is left of y.
    norm_scales : (S,) array
    """
    grown = norm_scales[:, None] ** 2 * values  # (S, r)
    fit = rest + (squared_targets / (1 + grown)).sum(axis=1)
    return np.asarray(-0.5 * fit - 0.5 * np.log1p(grown).sum(axis=1))


def log_weights(guesses: int, watched: int, share: float) -> Array:
    """(S + W,) logarithms of the weights of the scales of one kernel, which add up to 1.

    All ``watched`` scales together weigh ``share``, which makes R_t^2 larger by at most
    2 log(1 / (1 - share)) than the mixture of the ``guesses`` alone.
    """
    if not watched:
        return np.full(guesses, -log(guesses))
    weights = np.repeat([(1 - share) / guesses, share / watched], [guesses, watched])
    return np.asarray(np.log(weights))


def squared_radius(
    evidences: list[Array], delta: float, weights: list[Array] | None = None
) -> float:
    """R_t^2 of the mixture that gives every kernel the same weight.

    Parameters
    ----------
    evidences : list of (S,) arrays
        One for every kernel.
    delta : float
    weights : list of (S,) arrays, optional
        Logarithms of the weights of the scales, for every kernel; by default all equal.
    """
    if weights is None:
        weights = [log_weights(len(e), 0, 0.0) for e in evidences]
    terms = np.concatenate([e + w for e, w in zip(evidences, weights, strict=True)])
    terms -= log(len(evidences))
    top = terms.max()
    return float(2 * log(1 / delta) - 2 * (top + np.log(np.exp(terms - top).sum())))
