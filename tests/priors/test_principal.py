"""Features of the shared kernel, and mean and second moments of tasks in them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel._files import decode, encode
from metakel.kernels.nystrom import NystromFeatures, choose_basis, spread_rows
from metakel.kernels.stationary import Matern52ARD
from metakel.priors.principal import coefficients, moments

RNG = np.random.default_rng(0)
SHARED = Matern52ARD(np.array([0.7, 0.9]), 1.3, 0.05)


def test_features_reproduce_the_kernel_and_never_exceed_it():
    X, Z = RNG.uniform(-1, 1, (400, 2)), RNG.uniform(-1, 1, (50, 2))
    basis = choose_basis(SHARED, X, count=60)
    psi = basis.features(Z)
    assert basis.r == 60
    left_out = SHARED.signal - np.einsum("nr,nr->n", psi, psi)
    assert left_out.min() > -1e-9
    assert left_out.max() < 0.05 * SHARED.signal
    at = basis.features(basis.landmarks)
    assert_allclose(at @ at.T, SHARED(basis.landmarks, basis.landmarks), atol=1e-4)
    again = decode(NystromFeatures, encode(basis), "basis")
    assert (again.features(Z) == psi).all()


def test_equal_points_are_not_chosen_twice():
    X = np.repeat(RNG.uniform(-1, 1, (5, 2)), 20, axis=0)
    assert choose_basis(SHARED, X).r == 5


@pytest.mark.parametrize("n", [20, 90])  # fewer points than features, and more
def test_coefficients_are_the_bayesian_posterior(n):
    basis = choose_basis(SHARED, RNG.uniform(-1, 1, (200, 2)), count=40)
    F, z = basis.features(RNG.uniform(-1, 1, (n, 2))), RNG.standard_normal(n)
    found = coefficients([F], [z], 0.05)
    precision = np.eye(40) + F.T @ F / 0.05
    assert_allclose(found.w[0], np.linalg.solve(precision, F.T @ z / 0.05), atol=1e-8)
    (A,) = found.resolved
    assert_allclose(np.eye(40) - A.T @ A, np.linalg.inv(precision), atol=1e-8)


def test_the_common_shape_is_the_posterior_mean_given_all_tasks_together():
    F = [RNG.standard_normal((6, 4)) for _ in range(3)]
    z = [RNG.standard_normal(6) for _ in range(3)]
    mu, S = moments(coefficients(F, z, 0.1), [0, 2])
    # One regression on (mu, d_0, d_2), all of them N(0, I): z_s = F_s (mu + d_s) + noise.
    zero = np.zeros((6, 4))
    design = np.block([[F[0], F[0], zero], [F[2], zero, F[2]]])
    precision = np.eye(12) + design.T @ design / 0.1
    joint = np.linalg.solve(precision, design.T @ np.concatenate([z[0], z[2]]) / 0.1)
    assert_allclose(mu, joint[:4], atol=1e-9)
    off = joint[4:].reshape(2, 4)
    covariances = [np.linalg.inv(np.eye(4) + F[s].T @ F[s] / 0.1) for s in (0, 2)]
    assert_allclose(S, np.mean(covariances, axis=0) + off.T @ off / 2, atol=1e-9)


def test_without_mean_the_second_moment_is_about_zero():
    F, z = [RNG.standard_normal((6, 4))], [RNG.standard_normal(6)]
    found = coefficients(F, z, 0.1)
    mu, S = moments(found, [0], mean=False)
    assert not mu.any()
    covariance = np.linalg.inv(np.eye(4) + F[0].T @ F[0] / 0.1)
    assert_allclose(S, covariance + np.outer(found.w[0], found.w[0]), atol=1e-9)


def test_many_tasks_with_few_points_each_still_show_their_common_shape():
    rng, truth = np.random.default_rng(3), np.array([2.0, -1.0, 0.5, 0.0])
    F = [rng.standard_normal((1, 4)) for _ in range(400)]
    z = [F_s @ truth + rng.normal(0, 0.1, 1) for F_s in F]
    found = coefficients(F, z, 0.01)
    assert_allclose(moments(found, range(400))[0], truth, atol=0.05)
    assert np.abs(found.w.mean(axis=0) - truth).max() > 1  # what averaging would give


def test_spread_rows_keeps_order_and_takes_all_parts():
    rows = spread_rows(np.arange(1000), 50)
    assert (np.diff(rows) > 0).all()
    assert np.diff(rows).max() < 60
    assert spread_rows(np.arange(5), 50).tolist() == [0, 1, 2, 3, 4]
