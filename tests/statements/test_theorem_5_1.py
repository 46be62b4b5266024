"""Theorem 5.1: the printed form, where it fails, and what holds instead."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.confidence import ClosedForm, ConfidenceSequence
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre

Z = np.linspace(-1, 1, 21)[:, None]
BASE = legendre(8, scaling="sup")


def test_theorem_5_1_as_printed():
    kernel = KernelSum(BASE, np.where(np.arange(8) < 3, 1.2, 0.0))
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (9, 1)), rng.normal(size=9)
    B, sigma, delta, c1, eps, t = 2.0, 0.3, 0.1, 0.7, 0.2, 10
    sequence = ConfidenceSequence(
        kernel,
        noise_std=sigma,
        norm_bound=B,
        delta=delta,
        method=ClosedForm("paper", beta_min=c1, recovery_error=eps),
    )
    sequence.tell(X, y)
    noise_var = 1 + 2 / t
    nu = B * (1 + eps / (2 * c1)) + sigma * sqrt(
        3 * log(1 + t / (noise_var * c1)) + 2 + 2 * log(1 / delta)
    )
    post = posterior(kernel, X, y, noise_var=noise_var)
    lower, upper = sequence.interval(Z)
    assert_allclose(upper, post.mean(Z) + nu * post.std(Z), atol=1e-9)
    assert_allclose(lower, post.mean(Z) - nu * post.std(Z), atol=1e-9)


def test_the_oracle_interval_of_section_5():
    kernel = KernelSum(BASE, np.where(np.arange(8) < 4, 0.25, 0.0))
    sequence = ConfidenceSequence(kernel, noise_std=0.5, norm_bound=3.0, method="oracle")
    X = np.linspace(-1, 1, 4)[:, None]
    sequence.tell(X, np.zeros(4))
    nu = 3.0 + 0.5 * sqrt(4 * log(1 + 5 / (1 + 2 / 5)) + 2 + 2 * log(10))
    post = posterior(kernel, X, np.zeros(4), noise_var=1 + 2 / 5)
    assert_allclose(sequence.interval(Z)[1], nu * post.std(Z))


def test_literal_theorem_5_1_misses_where_the_default_covers():
    """One constant kernel: lambda is large enough for Theorem 4.3, epsilon is below c_1.

    The learned weight is shrunk by lambda m / 2, which epsilon does not know of, so the
    interval of Theorem 5.1 misses before the first observation in every run.
    """
    m, n, sigma, lam, c1, delta = 50, 50, 0.01, 0.03, 0.8, 0.1
    f = c1 / sqrt(m)  # the same constant in all tasks, and B
    eps = 0.406
    constant = legendre(1, scaling="sup", degrees=[0])
    rng = np.random.default_rng(0)
    paper_covers, default_covers = 0, 0
    for _ in range(50):
        means = f + sigma / sqrt(n) * rng.normal(size=m)
        learned = np.linalg.norm(means) - lam * m / 2  # group lasso on a constant feature
        kernel = KernelSum(constant, np.array([learned / c1]))
        paper = ConfidenceSequence(
            kernel,
            noise_std=sigma,
            norm_bound=f,
            delta=delta,
            method=ClosedForm("paper", beta_min=c1, recovery_error=eps),
        )
        default = ConfidenceSequence(kernel, noise_std=sigma, norm_bound=f, delta=delta)
        paper_covers += paper.interval(Z[:1])[1][0] >= f
        default_covers += default.interval(Z[:1])[1][0] >= f
    assert paper_covers == 0
    assert default_covers == 50


@pytest.mark.parametrize("noise_var", [1e-4, 0.3, 5.0])
def test_without_noise_the_error_is_at_most_the_norm_times_the_deviation(noise_var):
    """The deterministic part of Theorem 5.1, for any regulariser and any number of points."""
    kernel = KernelSum(BASE, np.linspace(0.05, 1, 8))
    rng = np.random.default_rng(1)
    for t in (1, 3, 8, 30):
        theta = rng.normal(size=8)
        X = rng.uniform(-1, 1, (t, 1))
        post = posterior(kernel, X, kernel.features(X) @ theta, noise_var=noise_var)
        error = np.abs(post.mean(Z) - kernel.features(Z) @ theta)
        assert (error <= np.linalg.norm(theta) * post.std(Z) + 1e-9).all()


def test_the_plus_two_pays_for_a_regularizer_that_changes_over_time():
    """log det(I + K) exceeds log det(I + K / (1 + 2/t)) by less than 2, whatever K is."""
    t = np.arange(1, 100_000)
    assert ((t - 1) * np.log1p(2 / t) < 2).all()


def test_the_norm_certificate_holds_and_is_attained():
    """||f|| in the learned kernel is at most B / sqrt(min weight), whatever the true weights."""
    rng = np.random.default_rng(2)
    weights = np.array([0.3, 0.8, 0.1, 1.5])
    bound = 2.0 / sqrt(weights.min())
    largest = 0.0
    for _ in range(1000):
        eta = rng.dirichlet(np.full(4, 0.02))
        theta = np.sqrt(eta) * rng.normal(size=4)
        with np.errstate(divide="ignore", invalid="ignore"):
            norm = np.sqrt(np.nansum(np.where(eta > 0, theta**2 / eta, 0.0)))
        theta *= 2.0 / norm
        largest = max(largest, sqrt(np.sum(theta**2 / weights)))
    assert largest <= bound + 1e-10
    assert largest >= 0.99 * bound
