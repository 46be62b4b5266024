"""Section 4, statement by statement: what holds is checked, what does not is refuted."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from designs import kappa_from_eigenvalue
from numpy.testing import assert_allclose

from metakel import theory
from metakel.grouplasso import Problem, solve
from metakel.learn.rules import hkz


def cosines(x, p):
    """sqrt(2) cos(j pi x), j = 1..p, over x in [0, 1]: orthonormal, k_j <= 2."""
    return np.sqrt(2) * np.cos(np.pi * x[..., None] * np.arange(1, p + 1))


def draw(rng, *, m, n, p, sparsity, noise_std):
    """Phi (m, n, p), the true b (m, p) on the first groups, and noisy y (m, n)."""
    Phi = cosines(rng.uniform(size=(m, n)), p) / np.sqrt(2)
    b = np.zeros((m, p))
    b[:, :sparsity] = rng.standard_normal((m, sparsity))
    noise = noise_std * rng.standard_normal((m, n))
    return Phi, b, np.einsum("snd,sd->sn", Phi, b) + noise, noise


def on_event_a(Phi, noise, lam):
    score = np.einsum("snd,sn->sd", Phi, noise)
    return (np.linalg.norm(score, axis=0) / noise.size <= lam / 4).all()


def test_proposition_4_1_weights_are_group_norms_and_minimize_the_joint_problem():
    rng = np.random.default_rng(0)
    Phi, _, y, _ = draw(rng, m=4, n=15, p=6, sparsity=2, noise_std=0.3)
    lam = 0.05
    solution = solve(Problem.from_arrays(Phi, y), lam)
    assert_allclose(solution.eta, np.linalg.norm(solution.beta, axis=0), atol=1e-12)

    def joint(eta, beta):  # Eq. 7 after the change of variables, 0/0 = 0
        ratio = np.divide((beta**2).sum(0), eta, out=np.zeros_like(eta), where=eta > 0)
        loss = np.mean((y - np.einsum("snd,sd->sn", Phi, beta)) ** 2)
        return loss + lam / 2 * (ratio.sum() + eta.sum())

    best = joint(solution.eta, solution.beta)
    assert_allclose(best, solution.objective, rtol=1e-9)
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            eta = np.abs(solution.eta + scale * rng.standard_normal(6))
            beta = solution.beta + scale * rng.standard_normal((4, 6)) * (eta > 0)
            assert joint(eta, beta) >= best * (1 - 1e-9)


def test_assumption_4_2_kappa_cannot_exceed_one_over_root_m():
    rng = np.random.default_rng(1)
    m, n, p = 6, 40, 5
    Phi = draw(rng, m=m, n=n, p=p, sparsity=1, noise_std=0.0)[0]
    kappa = kappa_from_eigenvalue(Phi)
    assert kappa > 0

    def quotient(b, J):
        return np.linalg.norm(np.einsum("snd,sd->sn", Phi, b)) / (
            sqrt(m * n) * np.linalg.norm(b[:, J])
        )

    for _ in range(200):  # vectors of the cone: J = {0, 1}, the others scaled down
        b = rng.standard_normal((m, p))
        norms = np.linalg.norm(b, axis=0)
        b[:, 2:] *= 3 * norms[:2].sum() / norms[2:].sum() * rng.uniform()
        assert quotient(b, [0, 1]) >= kappa
    one_task = np.zeros((m, p))
    one_task[0, 0] = 1.0
    assert quotient(one_task, [0]) <= theory.kappa_upper_bound(m=m)


def test_theorem_4_3_recovers_within_the_sharp_error_of_the_lambda_used():
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        m, p, sparsity = int(rng.integers(1, 6)), 5, int(rng.integers(1, 4))
        Phi, b, y, noise = draw(rng, m=m, n=60, p=p, sparsity=sparsity, noise_std=0.5)
        problem = Problem.from_arrays(Phi, y)
        lam = hkz(problem, noise_std=0.5, delta=0.1)
        if not on_event_a(Phi, noise, lam):
            continue
        held += 1
        beta = solve(problem, lam).beta
        errors = np.linalg.norm(beta - b, axis=0)[:sparsity]
        kappa = kappa_from_eigenvalue(Phi)
        root_mean_square = sqrt(np.mean(lam[:sparsity] ** 2))
        bound = theory.recovery_error_sharp(lam=root_mean_square, sparsity=sparsity, kappa=kappa)
        assert errors.max() <= bound
        # ... and so every kernel whose coefficients exceed the error is selected.
        strong = np.linalg.norm(b, axis=0) > bound
        assert (np.linalg.norm(beta, axis=0)[strong] > 0).all()
    assert held >= 80


CONSTANT = {"noise_std": 0.01, "m": 50, "n": 50, "p": 1, "d_max": 1, "delta": 0.1}
C1, LAM = 0.8, 0.03  # ||b*|| = c_1; every task is the constant function 0.8 / sqrt(50)


@pytest.fixture(scope="module")
def constant_feature_fits():
    """||b-hat|| in 50 draws of the smallest example: one kernel, the feature 1."""
    rng = np.random.default_rng(2)
    Phi, b = np.ones((50, 50, 1)), np.full((50, 1), C1 / sqrt(50))
    fits = []
    for _ in range(50):
        y = b + 0.01 * rng.standard_normal((50, 50))
        fits.append(solve(Problem.from_arrays(Phi, y), LAM).beta)
    return b, fits


def test_theorem_4_3_as_printed_fails_with_probability_one(constant_feature_fits):
    b, fits = constant_feature_fits
    assert theory.lambda_min_paper(**CONSTANT) < LAM  # the theorem allows this lambda
    kappa = theory.kappa_upper_bound(m=50)  # attained: Psi = I / m
    epsilon = theory.recovery_error_paper(**CONSTANT, sparsity=1, kappa=kappa)
    assert_allclose(epsilon, 0.406, atol=5e-4)
    assert epsilon <= C1
    errors = [np.linalg.norm(beta - b) for beta in fits]
    assert_allclose(np.mean(errors), 0.750, atol=5e-3)
    assert min(errors) > epsilon
    assert max(errors) <= theory.recovery_error_sharp(lam=LAM, sparsity=1, kappa=kappa)


def test_theorem_5_1_as_printed_never_covers_there_and_the_certificate_does(constant_feature_fits):
    b, fits = constant_feature_fits
    value = norm_bound = float(b[0, 0])  # a new task f = 0.113 with ||f|| = B under k* = 1
    epsilon = theory.recovery_error_paper(
        **CONSTANT, sparsity=1, kappa=theory.kappa_upper_bound(m=50)
    )
    common = {"norm_bound": norm_bound, "noise_std": 0.01, "delta": 0.1}
    for beta in fits:
        weight = np.linalg.norm(beta) / C1  # Eq. 9
        std = sqrt(weight)  # t = 1: nothing observed yet, the mean is 0
        printed = theory.exploration_paper(
            **common, dim=1, t=1, recovery_error=epsilon, beta_min=C1
        )
        assert printed * std < value
        corrected = theory.exploration(
            **common, smallest_weight=weight, information_gain=0.0, noise_var=1.0
        )
        assert corrected * std >= value


def test_after_theorem_4_3_more_tasks_do_not_drive_the_relative_error_to_zero():
    def relative_error(m):
        results = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            Phi, b, y, _ = draw(rng, m=m, n=100, p=8, sparsity=3, noise_std=0.5)
            lam = theory.lambda_min_paper(noise_std=0.5, m=m, n=100, p=8, d_max=1, delta=0.1)
            beta = solve(Problem.from_arrays(Phi, y), lam, tol=1e-8).beta
            error = np.linalg.norm(beta - b, axis=0)[:3].max()
            results.append(error / np.linalg.norm(b, axis=0)[:3].min())
        return np.mean(results)

    at_4, at_64, at_256 = relative_error(4), relative_error(64), relative_error(256)
    assert at_64 < 0.7 * at_4  # the logarithm of p goes away ...
    assert 0.6 <= at_256 / at_64 <= 1  # ... and a floor remains; 1 / sqrt(mn) would give 0.5


@pytest.mark.parametrize("n", [400, 4000])
def test_proposition_4_4_as_printed_is_below_the_number_of_kernels_rightly_selected(n):
    rng = np.random.default_rng(3)
    m, p, sparsity = 4, 10, 5
    Phi, _, y, noise = draw(rng, m=m, n=n, p=p, sparsity=sparsity, noise_std=0.1)
    lam = theory.lambda_min_paper(noise_std=0.1, m=m, n=n, p=p, d_max=1, delta=0.1)
    assert on_event_a(Phi, noise, lam)
    selected = np.count_nonzero(solve(Problem.from_arrays(Phi, y), lam).eta)
    kappa = kappa_from_eigenvalue(Phi)
    phi_max = max(np.linalg.norm(F, 2) ** 2 for F in Phi) / (m * n)
    assert selected >= sparsity
    assert theory.sparsity_bound_paper(m=m, n=n, sparsity=sparsity, kappa=kappa) < sparsity
    assert selected <= theory.sparsity_bound(sparsity=sparsity, kappa=kappa, phi_max=phi_max)


def test_eq_10_the_norm_under_k_full_grows_by_at_most_the_root_of_p():
    rng = np.random.default_rng(4)
    p, norm_bound = 16, 3.0
    bound = theory.full_kernel_norm(norm_bound=norm_bound, p=p)
    for _ in range(200):
        eta = rng.dirichlet(np.ones(p))
        beta = rng.standard_normal(p)
        theta = np.sqrt(eta) * beta * norm_bound / np.linalg.norm(beta)  # ||f||_k* = B
        assert sqrt(p * (theta**2).sum()) <= bound
    alone = norm_bound * np.eye(p)[0]  # k* is one base kernel, and f is in its space
    assert_allclose(sqrt(p * (alone**2).sum()), bound)
    assert theory.full_kernel_norm_paper(norm_bound=norm_bound, p=p) == 4 * bound
