"""The shared Matern kernel: its formula and its slopes."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from metakel.kernels import matern
from metakel.kernels.stationary import Matern52ARD

RNG = np.random.default_rng(0)


def test_it_is_the_librarys_matern_times_the_signal():
    X, Z = RNG.uniform(-1, 1, (7, 3)), RNG.uniform(-1, 1, (5, 3))
    lengths = np.array([0.3, 1.0, 2.0])
    ours = Matern52ARD(lengths, 1.7, 0.1)(X, Z)
    assert_allclose(ours, 1.7 * matern(2.5, [lengths.tolist()]).grams(X, Z)[0], atol=1e-12)


def test_slopes_are_differences():
    X, Z = RNG.uniform(-1, 1, (4, 2)), RNG.uniform(-1, 1, (5, 2))
    shared = Matern52ARD(np.array([0.5, 0.8]), 2.0, 0.1)
    slopes = shared.slopes_of_scaled(shared.scale(X)[0], shared.scale(Z)[0])
    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        difference = (shared(X, Z + step) - shared(X, Z - step)) / 2e-6
        assert_allclose(slopes[:, :, i], difference, atol=1e-7)
