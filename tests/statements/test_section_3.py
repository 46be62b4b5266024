"""Section 3 and Appendix A: posterior, meta-data, functions of the space and their norm."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from metakel import theory
from metakel.data import History
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre


def test_eq_3_mean_and_variance_as_printed():
    rng = np.random.default_rng(1)
    kernel = KernelSum(legendre(3, scaling="l2"), np.array([0.5, 0.2, 0.3]))
    X, y, Z = rng.uniform(-1, 1, (6, 1)), rng.standard_normal(6), rng.uniform(-1, 1, (4, 1))
    inverse = np.linalg.inv(kernel(X) + 0.3 * np.eye(6))
    k = kernel(X, Z)
    post = posterior(kernel, X, y, noise_var=0.3)
    assert_allclose(post.mean(Z), k.T @ inverse @ y, atol=1e-12)
    assert_allclose(post.std(Z) ** 2, kernel.diag(Z) - np.sum(k * (inverse @ k), 0), atol=1e-12)


def test_eq_4_meta_data_keep_every_pair_with_its_task():
    rng = np.random.default_rng(2)
    pairs = [(rng.uniform(size=(n, 2)), rng.standard_normal(n)) for n in (3, 1, 5)]
    history = History.from_pairs(pairs)
    rows = rng.permutation(9)
    label = np.repeat([0, 1, 2], [3, 1, 5])
    X, y = np.concatenate([X for X, _ in pairs]), np.concatenate([y for _, y in pairs])
    shuffled = History.from_arrays(X[rows], y[rows], label[rows])
    for s, (X_s, y_s) in enumerate(pairs):
        assert_array_equal(history[s].X, X_s)
        assert_array_equal(history[s].y, y_s)
        same = next(task for task in shuffled if task.name == str(s))
        assert_array_equal(np.sort(same.y), np.sort(y_s))


def test_eq_6_functions_are_weighted_sums_of_features_with_this_norm():
    rng = np.random.default_rng(0)
    eta = np.array([0.5, 0.0, 0.2, 0.3])
    kernel = KernelSum(legendre(4, scaling="l2"), eta)
    X, alpha = rng.uniform(-1, 1, (9, 1)), rng.standard_normal(9)
    # f = sum_i alpha_i k(x_i, .) has beta_j = sqrt(eta_j) sum_i alpha_i phi_j(x_i).
    beta = kernel.features(X).T @ alpha  # of the active kernels
    norm = sqrt(alpha @ kernel(X) @ alpha)
    Z = np.linspace(-1, 1, 7)[:, None]
    assert_allclose(kernel.features(Z) @ beta, kernel(Z, X) @ alpha, atol=1e-12)
    plain = np.abs(np.sqrt(eta[kernel.active]) * beta)
    assert_allclose(theory.function_norm(coefficient_norms=plain, weights=eta[kernel.active]), norm)
    # As printed in Appendix A.1 it would be the square.
    assert abs(norm - norm**2) > 0.1
    assert theory.function_norm(coefficient_norms=[1.0], weights=[0.0]) == inf
    assert theory.function_norm(coefficient_norms=[0.0], weights=[0.0]) == 0.0


def test_eq_a1_l2_legendre_features_are_the_eigenfunctions_of_their_sum():
    eta = np.array([0.6, 0.3, 0.1])
    base = legendre(3, scaling="l2")
    nodes, masses = np.polynomial.legendre.leggauss(12)
    masses = masses / 2  # the uniform distribution on [-1, 1]
    nodes = nodes[:, None]
    phi = base.features(nodes)
    image = KernelSum(base, eta)(nodes) @ (masses[:, None] * phi)
    assert_allclose(image, phi * eta, atol=1e-13)
    # With "sup" scaling they are not: the eigenvalues are eta_j / (2 j + 1).
    sup = KernelSum(legendre(3, scaling="sup"), eta)(nodes) @ (masses[:, None] * phi)
    assert_allclose(sup, phi * eta / np.array([3, 5, 7]), atol=1e-13)
