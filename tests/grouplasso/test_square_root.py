"""The group square-root lasso: a fixed point, scale-free, and honest about exact fits."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.errors import InputError
from metakel.grouplasso import Problem, solve, solve_square_root


def arrays(rng, m=4, n=15, d=6, noise=0.3):
    Phi = rng.normal(size=(m, n, d))
    beta = np.zeros((m, d))
    beta[:, :2] = rng.normal(size=(m, 2))
    return Phi, np.einsum("snd,sd->sn", Phi, beta) + noise * rng.normal(size=(m, n))


def test_it_is_the_lasso_at_its_own_residual_level(rng):
    problem = Problem.from_arrays(*arrays(rng))
    solution, sigma = solve_square_root(problem, 0.15)
    assert 0 < solution.active.size < problem.p
    assert_allclose(solution.lam, 2 * 0.15 * sigma, rtol=1e-8)
    assert_allclose(sqrt(np.mean(np.square(solution.residuals))), sigma, rtol=1e-8)
    again = solve(problem, 2 * 0.15 * sigma)
    assert_allclose(again.beta, solution.beta, atol=1e-6)


def test_it_minimises_its_own_objective(rng):
    cvxpy = pytest.importorskip("cvxpy")
    Phi, y = arrays(rng)
    solution, _ = solve_square_root(Problem.from_arrays(Phi, y), 0.15)
    m, n, d = Phi.shape
    b = cvxpy.Variable((m, d))
    fits = cvxpy.hstack([y[s] - Phi[s] @ b[s] for s in range(m)])
    penalty = sum(cvxpy.norm(b[:, j]) for j in range(d))
    joint = cvxpy.Problem(cvxpy.Minimize(cvxpy.norm(fits) / sqrt(m * n) + 0.15 * penalty))
    joint.solve(solver="CLARABEL")
    level = sqrt(np.mean(np.square(solution.residuals)))
    ours = level + 0.15 * np.linalg.norm(solution.beta, axis=0).sum()
    assert ours <= joint.value + 1e-8  # the conic solver is good to about 1e-4 in beta
    assert_allclose(ours, joint.value, rtol=1e-6)
    assert_allclose(solution.beta, b.value, atol=2e-4)


def test_it_is_scale_free(rng):
    Phi, y = arrays(rng)
    one, sigma = solve_square_root(Problem.from_arrays(Phi, y), 0.15)
    other, scaled = solve_square_root(Problem.from_arrays(Phi, 1e4 * y), 0.15)
    assert_allclose(other.beta, 1e4 * one.beta, rtol=1e-5, atol=1e-4)
    assert_allclose(scaled, 1e4 * sigma, rtol=1e-7)


def test_an_exact_fit_is_refused_with_advice(rng):
    Phi, y = arrays(rng, n=4, d=12)
    with pytest.raises(InputError, match=r"exactly.*more observations"):
        solve_square_root(Problem.from_arrays(Phi, y), 1e-3)


def test_zero_observations_are_refused(rng):
    Phi, y = arrays(rng)
    with pytest.raises(InputError, match="all observations are 0"):
        solve_square_root(Problem.from_arrays(Phi, 0 * y), 0.1)


def nearly_exact(noise, seed=0, m=12, n=20):
    """Two of eight columns explain everything but noise, relative to the observations."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(m, n, 8))
    signal = np.einsum("snd,sd->sn", Phi[:, :, [2, 5]], rng.normal(size=(m, 2)))
    signal /= sqrt(np.mean(signal**2))
    return Phi, signal + noise * rng.normal(size=(m, n))


@pytest.mark.parametrize("noise", [0.0, *10.0 ** -np.arange(12, 3, -1)])
@pytest.mark.parametrize("seed", range(3))
def test_almost_noiseless_observations_are_fitted(noise, seed):
    Phi, y = nearly_exact(noise, seed)
    problem = Problem.from_arrays(Phi, y)
    solution, sigma = solve_square_root(problem, 0.1)
    assert_array_equal(solution.active, [2, 5])
    assert solution.converged
    assert_allclose(solution.lam, 2 * 0.1 * sigma, rtol=1e-6)
    level = sqrt(np.mean(np.square(solution.residuals)))
    if noise < 3e-7:
        assert_allclose(sigma, 1e-6 * sqrt(np.mean(y**2)))
        assert level < sigma
    else:
        assert_allclose(level, sigma, rtol=1e-6)
        assert noise / 2 < sigma < 3 * noise + 1.1e-6


def test_gram_matrices_that_fit_anything_exactly_are_refused(rng):
    y = rng.normal(size=(3, 6))
    problem = Problem.from_grams([np.eye(6)[None]] * 3, y)
    with pytest.raises(InputError, match="exactly"):
        solve_square_root(problem, 1e-3)
