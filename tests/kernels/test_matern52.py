"""The shared Matern kernel: its formula, its slopes, its fit."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from metakel.kernels import matern
from metakel.kernels.matern52 import Matern52ARD, _negative_log_likelihood, _stacks, fit_shared

RNG = np.random.default_rng(0)


def test_it_is_the_librarys_matern_times_the_signal():
    X, Z = RNG.uniform(-1, 1, (7, 3)), RNG.uniform(-1, 1, (5, 3))
    lengths = np.array([0.3, 1.0, 2.0])
    ours = Matern52ARD(lengths, 1.7, 0.1)(X, Z)
    assert_allclose(ours, 1.7 * matern(2.5, [lengths.tolist()]).grams(X, Z)[0], atol=1e-12)


def test_slopes_are_differences():
    X, Z = RNG.uniform(-1, 1, (4, 2)), RNG.uniform(-1, 1, (5, 2))
    shared = Matern52ARD(np.array([0.5, 0.8]), 2.0, 0.1)
    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        difference = (shared(X + step, Z) - shared(X - step, Z)) / 2e-6
        assert_allclose(shared.slope(X, Z, i), difference, atol=1e-7)


def test_the_slope_of_the_likelihood_is_its_difference():
    X = [RNG.uniform(-1, 1, (9, 2)) for _ in range(3)]
    ((squares, z),) = _stacks(X, [RNG.standard_normal(9) for _ in range(3)])
    theta = np.log([0.5, 1.5, 0.8, 0.05])
    _, slope = _negative_log_likelihood(theta, squares, z)
    for i, step in enumerate(1e-5 * np.eye(4)):
        up, down = (_negative_log_likelihood(theta + s, squares, z)[0] for s in (step, -step))
        assert_allclose(slope[i], (up - down) / 2e-5, rtol=1e-5)


def test_the_fit_finds_which_input_matters_and_the_noise():
    rng = np.random.default_rng(1)
    X = [rng.uniform(-1, 1, (40, 2)) for _ in range(6)]
    z = [np.sin(4 * x[:, 0] + i) * 1.4 + 0.2 * rng.standard_normal(40) for i, x in enumerate(X)]
    found = fit_shared(X, z)
    assert found.lengthscales[0] < 1 < 4 < found.lengthscales[1]
    assert 0.02 < found.noise < 0.08


def test_tasks_of_different_sizes_are_fitted_together():
    rng = np.random.default_rng(2)
    X = [rng.uniform(-1, 1, (n, 1)) for n in (1, 5, 9, 9)]
    found = fit_shared(X, [np.sin(3 * x[:, 0]) for x in X])
    assert np.isfinite([*found.lengthscales, found.signal, found.noise]).all()
