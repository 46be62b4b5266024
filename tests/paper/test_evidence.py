from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

from reproduction.evidence import negative_evidence, refitted


def data(t=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(t, 2))
    return X, np.square(X.T[:, :, None] - X.T[:, None, :]), rng.standard_normal(t)


def test_evidence_is_a_gaussian_density():
    X, squares, y = data()
    parameters = np.log([0.3, 0.5, 2.0])
    K = 2 * np.exp(-squares[0] / 0.3**2 / 2 - squares[1] / 0.5**2 / 2) + 0.1 * np.eye(len(y))
    density = multivariate_normal(np.zeros(len(y)), K).logpdf(y)
    constant = len(y) / 2 * np.log(2 * np.pi)
    assert_allclose(-negative_evidence(parameters, squares, y, 0.1)[0] - constant, density)


def test_gradient():
    _, squares, y = data()
    parameters = np.log([0.3, 0.5, 2.0])
    numeric = approx_fprime(parameters, lambda p: negative_evidence(p, squares, y, 0.1)[0], 1e-7)
    assert_allclose(negative_evidence(parameters, squares, y, 0.1)[1], numeric, rtol=1e-4)


def test_lengthscales_follow_the_function():
    rng = np.random.default_rng(1)
    Z = rng.uniform(-1, 1, size=(80, 2))
    f = np.sin(8 * Z[:, 0])  # fast in the first input, constant in the second
    model = refitted(Z, lengthscale=0.3, noise_var=0.01)
    lengths = model(np.arange(60), f[:60]).kernel.base.families[0].lengthscales[0]
    assert lengths[0] < 0.6
    assert lengths[1] > 2 * lengths[0]
