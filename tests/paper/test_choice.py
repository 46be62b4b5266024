from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from metakel.data import History
from metakel.kernels import KernelSum, random_fourier, squared_exponential
from reproduction.choice import choose_fixed, choose_learned, evidence


def smooth(length):
    return KernelSum(squared_exponential(length, d0=1), np.ones(1))


def drawn(rng, length, m=8, n=30):
    """Tasks that are draws of GP(0, k) with noise 0.1."""
    pairs = []
    for _ in range(m):
        X = rng.uniform(-1, 1, size=(n, 1))
        K = smooth(length)(X) + 0.01 * np.eye(n)
        pairs.append((X, np.linalg.cholesky(K) @ rng.standard_normal(n)))
    return History.from_pairs(pairs)


def test_evidence_is_a_gaussian_density():
    history = drawn(np.random.default_rng(0), 0.3, m=2, n=5)
    expected = sum(
        multivariate_normal(np.zeros(5), smooth(0.3)(t.X) + 0.01 * np.eye(5)).logpdf(t.y)
        for t in history
    )
    assert evidence(smooth(0.3), history, 0.01) == pytest.approx(expected / 10)


@pytest.mark.parametrize("length", [0.1, 1.0])
def test_the_lengthscale_of_the_data_is_found(length):
    history = drawn(np.random.default_rng(1), length)
    kernels = {each: smooth(each) for each in (0.03, 0.1, 0.3, 1.0)}
    assert choose_fixed(history, kernels, noise_var=0.01) == length


def test_a_kernel_that_explains_tasks_it_has_not_seen_is_chosen():
    # One frequency in all tasks. A lambda above lambda_max selects nothing, and wrong
    # lengthscales do not offer the frequency.
    rng = np.random.default_rng(2)

    def base(length):
        return random_fourier(30, 1, lengthscales=length, rng=np.random.default_rng(5))

    true = base(0.2)
    pairs = []
    for _ in range(9):
        X = rng.uniform(-1, 1, size=(25, 1))
        f = true.features(X)[:, true.groups[3]] @ rng.standard_normal(2)
        pairs.append((X, f + 0.1 * rng.standard_normal(25)))
    chosen = choose_learned(
        History.from_pairs(pairs),
        base,
        (5.0, 0.2),
        (100.0, 0.03),
        noise_std=0.1,
        noise_var=0.01,
        scale="sum",
        folds=3,
    )
    assert chosen == (0.03, 0.2)
