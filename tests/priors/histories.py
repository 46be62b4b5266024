"""Simulated tasks that share a shape and differ along a few functions."""

from __future__ import annotations

from functools import partial

import numpy as np

from metakel import learn_prior
from metakel.data import History

# Without replays on past tasks, for tests that are not about certificates.
learn = partial(learn_prior, certify="none")


def shape(X):
    return -((X[:, 0] - 0.4) ** 2) - 0.5 * np.abs(X[:, 1] + 0.2)


def functions(X):
    return np.column_stack([np.sin(3 * X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]])


def draw_task(rng, *, spread=0.4):
    """A function of (n, 2) points: level and scale differ by task."""
    level, scale = rng.normal(0, 2), np.exp(rng.normal(0, 0.3))
    weights = spread * rng.standard_normal(3)
    return lambda X: level + scale * (2 * shape(X) + functions(X) @ weights)


def simulate(rng, m=16, n=25, noise=0.01, **options) -> History:
    pairs = []
    for _ in range(m):
        f = draw_task(rng, **options)
        X = rng.uniform(-1, 1, (n, 2))
        pairs.append((X, f(X) + noise * rng.standard_normal(n)))
    return History.from_pairs(pairs)
