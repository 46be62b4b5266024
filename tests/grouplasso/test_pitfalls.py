"""What broke other solvers, or prototypes of this one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import legendre
from numpy.testing import assert_allclose
from reference import Data, cut, draw

from metakel.grouplasso import Problem, lambda_max, solve


def legendre_data(seed=0, m=50, n=50, p=20, noise=0.01):
    """The paper's synthetic problem: 5 of 20 Legendre polynomials of unit norm are active."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (m, n))
    Phi = [legendre.legvander(x, p)[:, 1:] * np.sqrt(np.arange(1, p + 1) + 0.5) for x in X]
    b = np.zeros((m, p))
    b[:, rng.permutation(p)[:5]] = 3 * rng.standard_normal((m, 5))
    y = [F @ c + noise * rng.standard_normal(n) for F, c in zip(Phi, b, strict=True)]
    return Data(Phi, y, cut([1] * p))


def solved(data, ratio, **kwargs):
    problem = data.problem()
    lam = ratio * lambda_max(problem)
    solution = solve(problem, lam, **kwargs)
    theta = data.dual_point(solution.beta, lam)
    gap = data.primal(solution.beta, lam) - data.dual(theta)
    assert gap <= 1.01e-10 * problem.energy
    return solution


@pytest.mark.parametrize("exponent", range(0, 13, 2))
@pytest.mark.parametrize("m", [1, 50, 120])
def test_lambda_over_twelve_decades_with_fewer_rows_than_columns(exponent, m):
    solved(legendre_data(m=m, n=8), 10.0**-exponent)


@pytest.mark.parametrize("exponent", range(6))
def test_lambda_over_decades_from_gram_matrices(exponent):
    data = draw(0, (12, 9, 15), (2, 3, 1, 4))
    problem = data.gram_problem()
    lam = 10.0**-exponent * lambda_max(problem)
    found, expected = solve(problem, lam), solve(data.problem(), lam)
    assert_allclose(found.objective, expected.objective, rtol=1e-8)


@pytest.mark.parametrize("ratio", [0.5, 0.05, 1e-4])
def test_duplicated_groups_share_what_one_would_take(ratio):
    data = draw(0, (20, 25, 30), (1, 2, 1))
    twice = Data([np.hstack([F, F]) for F in data.Phi], data.y, cut((1, 2, 1) * 2))
    one, two = solved(data, ratio, tol=1e-12), solved(twice, ratio, tol=1e-12)
    assert_allclose(two.objective, one.objective, rtol=1e-10)
    assert_allclose(two.eta[:3] + two.eta[3:], one.eta, rtol=1e-4, atol=1e-8)
    assert one.unique
    shared = solve(twice.problem(), two.lam, start=np.tile(one.eta / 2, 2))
    assert not shared.unique
    assert_allclose(shared.objective, one.objective, rtol=1e-9)


@pytest.mark.parametrize("start", [None, np.ones(5)])
@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
def test_zero_columns_are_never_used(mode, start):
    data = draw(0, (8, 9), (1, 2, 1, 1, 1))
    for F in data.Phi:
        F[:, 1:3] = 0.0
    problem = getattr(data, mode)()
    for ratio in (0.3, 1e-3):
        solution = solve(problem, ratio * lambda_max(problem), start=start)
        assert solution.eta[1] == 0
        assert solution.converged
        assert np.isfinite(solution.kkt)
    only = solve(problem, 2 * lambda_max(problem), start=np.eye(5)[1])
    assert not only.eta.any()
    assert only.kkt == 0


@pytest.mark.parametrize("m", [1, 3, 110])
def test_very_unequal_groups_and_tasks(m):
    rng = np.random.default_rng(m)
    data = draw(m, rng.integers(1, 60, m), (1, 30, 2, 11), active=3)
    for ratio in (0.5, 0.05, 1e-3):
        solved(data, ratio)


@pytest.mark.parametrize("dims", [(1,), (3,), (1, 2, 1)])
@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
def test_one_task_with_one_point(dims, mode):
    data = draw(3, (1,), dims)
    problem = getattr(data, mode)()
    for ratio in (1.0, 0.9, 0.1, 1e-3):
        lam = ratio * lambda_max(problem)
        solution = solve(problem, lam, tol=1e-12)
        # The strongest group shrinks the residual until its score is lambda: a soft threshold.
        assert_allclose(np.abs(solution.residuals[0]), ratio * np.abs(data.y[0]), rtol=1e-4)


@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
@pytest.mark.parametrize("start", [None, np.ones(3)])
def test_observations_that_are_all_zero(mode, start):
    data = draw(0, (4, 6), (1, 2, 1))
    still = Data(data.Phi, [np.zeros(v.size) for v in data.y], data.groups)
    solution = solve(getattr(still, mode)(), 0.1, start=start)
    assert not solution.eta.any()
    assert (solution.objective, solution.gap, solution.kkt) == (0.0, 0.0, 0.0)
    assert solution.converged


def test_inputs_are_left_alone():
    data = draw(0, (20,) * 3, (1, 2, 1))
    Phi, y = np.array(data.Phi), np.array(data.y)
    K = np.stack([np.stack([F[:, g] @ F[:, g].T for g in data.groups]) for F in Phi])
    copies = Phi.copy(), y.copy(), K.copy()
    for problem in (Problem.from_arrays(Phi, y, data.groups), Problem.from_grams(K, y)):
        solve(problem, 0.1 * lambda_max(problem))
        solve(problem, 1e-5 * lambda_max(problem))
    for array, copy in zip((Phi, y, K), copies, strict=True):
        assert (array == copy).all()


def test_the_same_problem_twice_gives_the_same_bits():
    data = legendre_data(m=10)
    a, b = (solve(data.problem(), 0.03) for _ in range(2))
    assert (a.beta == b.beta).all()


@pytest.mark.filterwarnings("ignore::metakel.errors.NotConverged")
@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
@pytest.mark.parametrize("seed", range(6))
def test_a_tolerance_below_rounding_ends_all_the_same(seed, mode):
    data = draw(seed, (7, 24, 17, 6, 13), (3, 1, 3))
    problem = getattr(data, mode)()
    solution = solve(problem, 1e-3 * lambda_max(problem), tol=0.0, start=np.ones(3))
    assert solution.iterations < 60
    assert abs(solution.gap) < 1e-9


@pytest.mark.parametrize("ratio", [0.02, 1e-3])
@pytest.mark.parametrize("seed", range(8))
def test_rough_rounds_of_many_groups_do_not_end_the_search(seed, ratio):
    solved(draw(seed, (5,) * 5, (1,) * 80, active=3), ratio)


# At 1e-9 lambda_max rounding decides, by the version of BLAS, whether the last digits are reached.
@pytest.mark.filterwarnings("ignore::metakel.errors.NotConverged")
@pytest.mark.parametrize("seed", range(8))
def test_groups_that_enter_late_at_a_tiny_lambda(seed):
    data = draw(seed, (8, 9), (3, 2, 4, 1, 2, 3, 1, 4, 2, 3))
    problem = data.problem()
    start = np.random.default_rng(seed).random(10) * (np.arange(10) % 3 == 0)
    lam = 1e-9 * lambda_max(problem)
    warm, cold = solve(problem, lam, start=start), solve(problem, lam)
    assert max(warm.gap, cold.gap) < 1e-6
    open_gap = 2e-10 + warm.gap + cold.gap
    assert_allclose(warm.objective, cold.objective, atol=open_gap * problem.energy)


@pytest.mark.filterwarnings("ignore::metakel.errors.NotConverged")
@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
@pytest.mark.parametrize("seed", range(15))
def test_hopeless_conditioning_ends_in_an_honest_gap(seed, mode):
    """Near-duplicates, columns of sizes 1e-4 to 1e4 and lambda 1e-12 lambda_max at once."""
    rng = np.random.default_rng(seed)
    data = draw(seed, rng.integers(1, 12, 3), rng.integers(1, 4, 5))
    Phi = [F * 10 ** np.random.default_rng(seed).uniform(-4, 4, data.d) for F in data.Phi]
    for F in Phi:
        F[:, -1] = F[:, 0] * (1 + 1e-9 * rng.standard_normal(len(F)))
    hard = Data(Phi, data.y, data.groups)
    problem = getattr(hard, mode)()
    lam = 10 ** rng.uniform(-12, -8) * lambda_max(problem)
    solution = solve(problem, lam)
    assert np.isfinite([solution.gap, solution.objective, solution.kkt]).all()
    assert solution.converged == (solution.gap <= 1e-10)
    if mode == "problem":
        gap = hard.primal(solution.beta, lam) - hard.dual(hard.dual_point(solution.beta, lam))
        assert_allclose(solution.gap * problem.energy, gap, rtol=1e-2, atol=1e-9 * problem.energy)
