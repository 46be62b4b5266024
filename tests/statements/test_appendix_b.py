"""The lemmas of Appendix B and the optimality conditions B.6 and B.7."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from designs import kappa_from_eigenvalue
from numpy.testing import assert_allclose
from scipy import stats

from metakel import theory
from metakel.grouplasso import Problem, solve

GROUPS = [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 8)]
M, N, SPARSITY = 4, 30, 2  # tasks, points each, active groups (the first)
TOTAL = M * N


def by_group(vectors):
    """Norms of the groups of (m, 8) coefficients."""
    return np.array([np.linalg.norm(vectors[:, g]) for g in GROUPS])


@pytest.fixture(params=range(5))
def fitted(request):
    """Features with k_j <= 1, true b, noise, the smallest lambda with the event A, and b-hat."""
    rng = np.random.default_rng(request.param)
    Phi = rng.uniform(-1, 1, (M, N, 8)) / np.repeat(np.sqrt([1, 2, 3, 2]), [1, 2, 3, 2])
    b = np.zeros((M, 8))
    b[:, :3] = rng.standard_normal((M, 3))
    noise = 0.4 * rng.standard_normal((M, N))
    y = np.einsum("snd,sd->sn", Phi, b) + noise
    lam = 4 / TOTAL * by_group(np.einsum("snd,sn->sd", Phi, noise)).max()
    return Phi, b, y, lam, solve(Problem.from_arrays(Phi, y, GROUPS), lam).beta


def mean_square(Phi, v):
    return float(np.mean(np.einsum("snd,sd->sn", Phi, v) ** 2))


def test_eq_b6_and_b7_hold_at_the_solution(fitted):
    Phi, _, y, lam, beta = fitted
    residual = y - np.einsum("snd,sd->sn", Phi, beta)
    score = 2 / TOTAL * np.einsum("snd,sn->sd", Phi, residual)
    for g, norm in zip(GROUPS, by_group(beta), strict=True):
        if norm > 0:
            assert_allclose(score[:, g], lam * beta[:, g] / norm, atol=1e-5 * lam)
        else:
            assert np.linalg.norm(score[:, g]) <= lam * (1 + 1e-6)


@pytest.mark.parametrize("noise", ["gaussian", "rademacher"])
def test_lemma_b1_lambda_dominates_the_noise_with_probability_1_minus_delta(noise):
    rng = np.random.default_rng(0)
    Phi = rng.choice([-1.0, 1.0], (M, N, 6))  # k_j = 1: the least favourable scale
    size = (1000, M, N)
    draws = rng.standard_normal(size) if noise == "gaussian" else rng.choice([-1.0, 1.0], size)
    score = np.einsum("snd,rsn->rsd", Phi, draws, optimize=True)
    largest = np.sqrt((score**2).sum(axis=1)).max(axis=1) / TOTAL
    numbers = {"noise_std": 1.0, "m": M, "n": N, "p": 6, "delta": 0.1}
    for lam in (theory.lambda_min(**numbers), theory.lambda_min_paper(**numbers, d_max=1)):
        frequency = (largest <= lam / 4).mean()
        assert frequency >= stats.binom.ppf(1e-4, 1000, 0.9) / 1000
    assert (largest <= theory.lambda_min(**numbers) / 8).mean() < 0.5  # half would not do


def test_lemma_b2_first_line_holds_for_every_comparison_vector(fitted):
    Phi, b, _, lam, beta = fitted
    rng = np.random.default_rng(1)
    left = mean_square(Phi, beta - b) + lam / 2 * by_group(beta - b).sum()
    for scale in (0.0, 0.1, 1.0):
        other = b + scale * rng.standard_normal(b.shape)
        # As the proof has it; the printed left side has b* where it should have the vector.
        distance = mean_square(Phi, beta - b) + lam / 2 * by_group(beta - other).sum()
        smaller = np.minimum(by_group(other), by_group(beta - other))[by_group(other) > 0]
        assert distance <= mean_square(Phi, other - b) + 2 * lam * smaller.sum() + 1e-9
        if scale == 0.0:
            assert distance == left


def test_lemma_b2_second_line_needs_phi_transposed_phi(fitted):
    Phi, b, _, lam, beta = fitted
    selected = np.count_nonzero(by_group(beta))
    image = np.einsum("snd,sn->sd", Phi, np.einsum("snd,sd->sn", Phi, beta - b))
    assert selected <= 16 / (TOTAL * lam) ** 2 * np.sum(image**2)
    # As printed, with the norm of Phi (beta - b) alone, it is false on every draw.
    assert selected > 16 / (TOTAL * lam) ** 2 * TOTAL * mean_square(Phi, beta - b)


def test_lemma_b2_alone_bounds_the_prediction_error(fitted):
    Phi, b, _, lam, beta = fitted
    # A true kernel that makes the tasks as simple as can be: eta* proportional to ||b^(j)||^2.
    norms = by_group(b)[:SPARSITY]
    eta = norms / norms.sum()
    task_norms = [
        sqrt(sum(np.sum(row[g] ** 2) / e for g, e in zip(GROUPS, eta, strict=False))) for row in b
    ]
    slow = theory.prediction_error_slow(lam=lam, norm_bound=max(task_norms), m=M)
    assert mean_square(Phi, beta - b) <= 1.5 * lam * norms.sum() + 1e-9
    assert 1.5 * lam * norms.sum() <= slow


def test_lemma_b3_bounds_the_error_from_both_sides_but_the_norm_only_from_below(fitted):
    Phi, b, _, lam, beta = fitted
    kappa = kappa_from_eigenvalue(Phi)
    numbers = {"lam": lam, "sparsity": SPARSITY, "kappa": kappa}
    error = by_group(beta - b)[:SPARSITY].max()
    assert error <= theory.recovery_error_sharp(**numbers) <= theory.recovery_error(**numbers)
    assert mean_square(Phi, beta - b) <= theory.prediction_error(**numbers)
    beta_min = by_group(b)[:SPARSITY].min()
    assert (by_group(beta)[:SPARSITY] >= beta_min - error).all()


def test_lemma_b3_second_line_as_printed_is_false():
    # Two kernels, one far above c_1 = 1: its norm is not within epsilon of c_1.
    Phi = np.tile(np.sqrt(8) * np.linalg.qr(np.ones((8, 2)) - np.eye(8, 2))[0], (3, 1, 1))
    b = np.tile([1 / sqrt(3), 5.0], (3, 1))
    beta = solve(Problem.from_arrays(Phi, np.einsum("snd,sd->sn", Phi, b)), 1e-3).beta
    kappa = kappa_from_eigenvalue(Phi)
    epsilon = theory.recovery_error(lam=1e-3, sparsity=2, kappa=kappa)
    norms = np.linalg.norm(beta, axis=0)
    assert epsilon < 1
    assert norms.min() >= 1 - epsilon
    assert abs(norms.max() - 1) > epsilon


def test_lemma_b4_the_certificate_bounds_every_norm_and_is_attained():
    rng = np.random.default_rng(5)
    p, d, norm_bound = 6, 2, 3.0
    weights = rng.uniform(0.05, 2.0, p)
    certificate = theory.norm_certificate(norm_bound=norm_bound, smallest_weight=weights.min())
    for _ in range(1000):
        active = rng.permutation(p)[: rng.integers(1, p + 1)]
        eta = rng.dirichlet(np.ones(len(active)))
        beta = rng.standard_normal((len(active), d))
        beta *= norm_bound * rng.uniform() / np.linalg.norm(beta)  # ||f||_k* <= B
        theta = np.sqrt(eta)[:, None] * beta
        norm = theory.function_norm(
            coefficient_norms=np.linalg.norm(theta, axis=1), weights=weights[active]
        )
        assert norm <= certificate * (1 + 1e-10)
    # f on the kernel of least weight, when the true kernel is almost that one alone.
    attained = sqrt(0.999 * norm_bound**2 / weights.min())
    assert attained >= 0.99 * certificate


def test_lemma_b4_as_printed_is_too_small():
    # The learned weight of the only kernel is the least that Lemma B.3 allows.
    epsilon, beta_min, norm_bound = 0.4, 0.8, 1.0
    weight = (beta_min - epsilon) / beta_min
    norm = norm_bound / sqrt(weight)
    numbers = {"norm_bound": norm_bound, "recovery_error": epsilon, "beta_min": beta_min}
    assert theory.norm_bound_paper(**numbers) < norm
    assert_allclose(theory.norm_bound_series(**numbers), norm)
