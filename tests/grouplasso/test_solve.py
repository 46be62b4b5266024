"""The laws of Eq. 8: optimality, duality, invariances, and two ways to compute the same thing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from reference import Data, cut, draw

from metakel.errors import InputError, NotConverged, ShapeError
from metakel.grouplasso import Problem, lambda_max, path, solve, solve_square_root
from metakel.grouplasso.solve import evaluator_of, optimize

RAGGED_DIMS = (1, 4, 2, 3, 1, 2)
TIGHT = 1e-14


@pytest.fixture
def data():
    return draw(11, (9, 30, 14, 14, 6), RAGGED_DIMS)


@pytest.fixture
def lam(data):
    return 0.15 * lambda_max(data.problem())


# -- optimality ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 40], ids=["n<d", "n>d"])
@pytest.mark.parametrize("seed", range(20))
def test_kkt_conditions_b6_b7(seed, n):
    data = draw(seed, (n,) * 5, RAGGED_DIMS)
    problem = data.problem()
    lam = 10 ** -np.random.default_rng(seed).uniform(0.1, 2.5) * lambda_max(problem)
    solution = solve(problem, lam, tol=1e-13)
    assert data.kkt(solution.beta, lam) <= 1e-6
    assert solution.kkt <= 1e-6
    assert_allclose(solution.eta, data.norms(solution.beta), rtol=1e-12)
    assert_allclose(solution.objective, data.primal(solution.beta, lam), rtol=1e-12)


def test_the_reported_violation_is_the_true_one_also_far_from_the_optimum(data, lam):
    with pytest.warns(NotConverged):
        solution = solve(data.problem(), lam, start=np.ones(6), max_iterations=0)
    assert solution.kkt > 0.1
    assert_allclose(solution.kkt, data.kkt(solution.beta, lam), rtol=1e-9)
    assert_allclose(solution.eta, data.norms(solution.beta), rtol=1e-12)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    dims=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    decades=st.floats(0, 4),
    uneven=st.booleans(),
)
def test_any_small_problem_is_solved_and_certified(seed, sizes, dims, decades, uneven):
    data = draw(seed, sizes, dims)
    problem = data.problem()
    lam = np.full(len(dims), 10**-decades * lambda_max(problem))
    if uneven:
        lam *= np.random.default_rng(seed).uniform(0.3, 3, len(dims))
    solution = solve(problem, lam)
    theta = data.dual_point(solution.beta, lam)
    gap = data.primal(solution.beta, lam) - data.dual(theta)
    assert gap <= 1.01e-10 * problem.energy
    assert_allclose(solution.gap * problem.energy, gap, atol=1e-13 * problem.energy)
    assert_allclose(solution.eta, data.norms(solution.beta), rtol=1e-10)
    residuals = data.residual(solution.beta)
    for found, expected in zip(solution.residuals, residuals, strict=True):
        assert_allclose(found, expected, atol=1e-10)


# -- duality -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_weak_duality_holds_for_any_coefficients(seed):
    data = draw(seed, (5, 17, 9), RAGGED_DIMS)
    problem = data.problem()
    lam = 0.1 * lambda_max(problem)
    best = solve(problem, lam, tol=TIGHT).objective
    rng = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 1, 10, 1e3):
        beta = scale * rng.standard_normal((3, data.d))
        theta, primal = data.dual_point(beta, lam), data.primal(beta, lam)
        z = np.array([F.T @ t for F, t in zip(data.Phi, theta, strict=True)])
        assert (data.norms(z) <= lam * (1 + 1e-12)).all()
        assert primal - data.dual(theta) >= -1e-12 * primal
        assert data.dual(theta) <= best * (1 + 1e-12)
        assert primal >= best * (1 - 1e-12)


def test_the_gap_bounds_what_is_left_to_gain(data, lam):
    problem = data.problem()
    best = solve(problem, lam, tol=TIGHT).objective
    rough = solve(problem, lam, tol=1e-2, start=np.full(6, 0.5))
    assert rough.gap > 1e-10  # else this test shows nothing
    assert 0 <= rough.objective - best <= rough.gap * problem.energy


# -- lambda_max ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
@pytest.mark.parametrize("seed", range(5))
def test_zero_is_optimal_exactly_from_lambda_max_on(seed, mode):
    data = draw(seed, (6, 11), RAGGED_DIMS)
    problem = getattr(data, mode)()
    top = lambda_max(problem)
    zero = solve(problem, top * (1 + 1e-7))
    assert not zero.eta.any()
    assert zero.beta is None or not zero.beta.any()
    assert zero.active.size == 0
    assert_allclose(zero.objective, problem.energy)
    some = solve(problem, 0.999 * top)
    assert some.active.size == 1
    assert (some.eta >= 0).all()


def test_one_lambda_per_group(data):
    problem = data.problem()
    norms = data.norms(data.z(data.y))
    out = np.full(6, 0.2 * norms.max())
    out[3] = 1e3 * norms.max()
    solution = solve(problem, out, tol=1e-13)
    assert solution.eta[3] == 0
    assert np.delete(solution.eta, 3).any()
    assert data.kkt(solution.beta, out) <= 1e-6
    assert_allclose(solution.lam, out)
    # Zero is optimal as soon as every group's lambda reaches its own score.
    assert not solve(problem, norms * (1 + 1e-9)).eta.any()
    norms[2] *= 0.99
    assert 2 in solve(problem, norms * (1 + 1e-9)).active


# -- invariances ---------------------------------------------------------------------------------


def answer(data, lam, **kwargs):
    return solve(data.problem(**kwargs), lam, tol=TIGHT)


def test_order_of_tasks(data, lam):
    order = [3, 0, 4, 2, 1]
    moved = Data([data.Phi[s] for s in order], [data.y[s] for s in order], data.groups)
    assert_allclose(answer(moved, lam).beta, answer(data, lam).beta[order], atol=1e-10)


@pytest.mark.parametrize("p", [6, 24], ids=["few", "more than the first working set"])
def test_order_of_groups(p):
    dims = np.random.default_rng(p).integers(1, 4, p)
    data = draw(p, (60, 70), dims)
    lam = np.linspace(0.05, 0.2, p) * lambda_max(data.problem())
    order = np.random.default_rng(1).permutation(p)
    columns = np.concatenate([np.r_[data.groups[j]] for j in order])
    moved = Data([F[:, columns] for F in data.Phi], data.y, cut(dims[order]))
    found, expected = answer(moved, lam[order]), answer(data, lam)
    assert expected.active.size > 2
    assert_allclose(found.eta, expected.eta[order], atol=1e-10)
    assert_allclose(found.beta, expected.beta[:, columns], atol=1e-10)


def test_rotations_inside_groups_even_different_ones_per_task(data, lam):
    rng = np.random.default_rng(0)
    expected = answer(data, lam)
    rotated, beta = [], []
    for F, b in zip(data.Phi, expected.beta, strict=True):
        Q = np.zeros((data.d, data.d))
        for g in data.groups:
            Q[g, g] = np.linalg.qr(rng.standard_normal((g.stop - g.start,) * 2))[0]
        rotated.append(F @ Q)
        beta.append(Q.T @ b)
    found = answer(Data(rotated, data.y, data.groups), lam)
    assert_allclose(found.eta, expected.eta, atol=1e-10)
    assert_allclose(found.beta, beta, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 0.3, 7.0, 1e8])
def test_scale_of_y_and_of_phi(data, lam, scale):
    expected = answer(data, lam).beta
    louder = Data(data.Phi, [scale * v for v in data.y], data.groups)
    assert_allclose(answer(louder, scale * lam).beta / scale, expected, atol=1e-10)
    larger = Data([scale * F for F in data.Phi], data.y, data.groups)
    assert_allclose(answer(larger, scale * lam).beta * scale, expected, atol=1e-10)


def test_duplicated_tasks_with_lambda_over_root_two(data, lam):
    twice = Data(data.Phi * 2, data.y * 2, data.groups)
    found, expected = answer(twice, lam / np.sqrt(2)), answer(data, lam)
    assert_allclose(found.beta, np.tile(expected.beta, (2, 1)), atol=1e-10)
    assert_allclose(found.eta, np.sqrt(2) * expected.eta, atol=1e-10)


# -- the same thing by another way ---------------------------------------------------------------


def test_ragged_tasks_equal_the_stacked_block_diagonal_problem(data, lam):
    design, y = data.stacked()
    m, d = len(data.Phi), data.d
    # Group j of the stacked problem: its columns in every task, side by side.
    places = [np.concatenate([s * d + np.r_[g] for s in range(m)]) for g in data.groups]
    widths = [place.size for place in places]
    stacked = Problem.from_arrays(design[None][:, :, np.concatenate(places)], y[None], cut(widths))
    found, expected = solve(stacked, lam, tol=TIGHT), answer(data, lam)
    beta = np.zeros(m * d)
    beta[np.concatenate(places)] = found.beta[0]
    assert_allclose(beta.reshape(m, d), expected.beta, atol=1e-8)
    assert_allclose(found.eta, expected.eta, atol=1e-8)
    assert_allclose(found.objective, expected.objective, rtol=1e-12)


@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
def test_loss_by_tasks_equals_rows_scaled_by_hand(data, lam, mode):
    roots = [np.sqrt(data.N / (len(data.y) * v.size)) for v in data.y]
    scaled = Data(
        [w * F for w, F in zip(roots, data.Phi, strict=True)],
        [w * v for w, v in zip(roots, data.y, strict=True)],
        data.groups,
    )
    found = solve(getattr(data, mode)("tasks"), lam, tol=1e-13)
    expected = solve(getattr(scaled, mode)(), lam, tol=1e-13)
    assert_allclose(found.eta, expected.eta, atol=1e-10)
    assert_allclose(found.objective, expected.objective, rtol=1e-12)
    for r, w, q in zip(found.residuals, roots, expected.residuals, strict=True):
        assert_allclose(w * r, q, atol=1e-9)
    by_points = solve(getattr(data, mode)(), lam, tol=1e-13)
    assert np.abs(found.eta - by_points.eta).max() > 1e-3  # the two losses do differ


@pytest.mark.parametrize("loss", ["points", "tasks"])
@pytest.mark.parametrize("seed", range(6))
def test_gram_matrices_lead_to_the_weights_of_the_features(seed, loss):
    data = draw(seed, (9, 20, 12, 3), (2, 1, 3, 1) * 5)
    features, kernels = data.problem(loss), data.gram_problem(loss)
    lam = np.linspace(0.1, 0.3, 20) * lambda_max(features)
    a, b = solve(features, lam, tol=1e-13), solve(kernels, lam, tol=1e-13)
    assert a.active.size >= 3
    assert_allclose(b.eta, a.eta, atol=1e-8)
    assert_allclose(b.objective, a.objective, rtol=1e-10)
    assert b.beta is None
    for r, q in zip(b.residuals, a.residuals, strict=True):
        assert_allclose(r, q, atol=1e-7)
    assert b.kkt <= 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_kernel_form_of_the_optimality_conditions(seed):
    """alpha_s = (K_s(eta) + N lam/2)^-1 y_s has sum_s alpha'K_j alpha = 1 where eta_j > 0."""
    data = draw(seed, (9, 20, 12), RAGGED_DIMS)
    lam = 0.2 * lambda_max(data.problem())
    for problem in (data.problem(), data.gram_problem()):
        eta = solve(problem, lam, tol=TIGHT).eta
        q, value = np.zeros(6), 0.0
        for F, y in zip(data.Phi, data.y, strict=True):
            grams = np.stack([F[:, g] @ F[:, g].T for g in data.groups])
            A = np.tensordot(eta, grams, 1) + data.N * lam / 2 * np.eye(y.size)
            alpha = np.linalg.solve(A, y)
            q += grams @ alpha @ alpha
            value += y @ alpha
        assert_allclose(q[eta > 0], 1, atol=1e-6)
        assert (q[eta == 0] <= 1 + 1e-6).all()
        objective = lam / 2 * (value + eta.sum())
        assert_allclose(solve(problem, lam).objective, objective, rtol=1e-9)


# -- large shapes take other roads ---------------------------------------------------------------


def on_rows(problem, lam):
    evaluator = evaluator_of(problem)
    optimize(evaluator, np.full(problem.p, lam), None, tol=1e-10, max_iterations=100, progress=None)
    return not hasattr(evaluator._side, "gram")


@pytest.mark.parametrize("dims", [(1,) * 120, (2, 3, 1) * 30], ids=["units", "blocks"])
def test_more_active_columns_than_rows(dims):
    data = draw(0, (12, 10, 11), dims, active=20)
    problem = data.problem()
    lam = 0.02 * lambda_max(problem)
    assert on_rows(problem, lam)
    solution = solve(problem, lam, tol=1e-12)
    assert data.kkt(solution.beta, lam) <= 1e-5
    kernels = solve(data.gram_problem(), lam, tol=1e-12)
    assert_allclose(kernels.objective, solution.objective, rtol=1e-9)


def test_one_tiny_task_does_not_push_the_others_to_their_rows():
    data = draw(0, (60, 60, 60, 2), (1,) * 30, active=25)
    assert not on_rows(data.problem(), 0.01 * lambda_max(data.problem()))


@pytest.mark.parametrize("dims", [(1,) * 5, (1, 3, 2), (1,) * 40], ids=["tiny", "blocks", "wide"])
@pytest.mark.parametrize("ratio", [0.5, 0.05, 1e-4])
def test_many_tasks(dims, ratio):
    rng = np.random.default_rng(0)
    data = draw(1, rng.integers(8, 12, 130), dims)
    problem = data.problem()
    lam = ratio * lambda_max(problem)
    solution = solve(problem, lam, tol=1e-12)
    assert data.kkt(solution.beta, lam) <= 1e-5
    other = solve(problem, lam, tol=1e-12, start=np.zeros(len(dims)))  # no sweep
    assert_allclose(other.objective, solution.objective, rtol=1e-10)


# -- how it is run -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
def test_the_start_does_not_matter(data, lam, mode):
    problem = getattr(data, mode)()
    cold = solve(problem, lam, tol=1e-13)
    rng = np.random.default_rng(0)
    for start in (cold.eta, np.zeros(6), np.ones(6), 1e6 * rng.random(6), 1e-9 * rng.random(6)):
        warm = solve(problem, lam, tol=1e-13, start=start)
        assert_allclose(warm.eta, cold.eta, atol=1e-7)
    assert solve(problem, lam, tol=1e-8, start=cold.eta).iterations == 0


def test_stopping_early_warns_with_the_gap_and_returns():
    data = draw(0, (20,) * 4, (1,) * 60, active=10)
    problem = data.problem()
    lam = 1e-3 * lambda_max(problem)
    with pytest.warns(NotConverged) as caught:
        solution = solve(problem, lam, max_iterations=1)
    assert not solution.converged
    assert solution.gap > 1e-10
    assert f"{solution.gap:.1e}" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert "NOT converged" in repr(solution)
    assert_allclose(solution.objective, data.primal(solution.beta, lam), rtol=1e-10)
    best = solve(problem, lam).objective
    assert solution.objective - best <= solution.gap * problem.energy
    assert solution.iterations == 1


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        *(({"lam": lam}, InputError, "lam holds") for lam in (0, -1.0, np.nan, [1] * 5 + [0])),
        *(({"lam": lam}, ShapeError, "6") for lam in ([1, 2], np.ones((6, 1)), [])),
        *(({"start": start}, ShapeError, "start") for start in (np.ones(5), 1.0)),
        *(({"start": [1] * 5 + [bad]}, InputError, "start") for bad in (-1e-9, np.nan, np.inf)),
        *(({"tol": tol}, InputError, "tol") for tol in (-1e-3, np.nan)),
    ],
)
def test_bad_numbers_and_shapes_are_named(data, options, error, word):
    with pytest.raises(error, match=word):
        solve(data.problem(), **{"lam": 1.0, **options})


@pytest.mark.parametrize("ask", [solve, solve_square_root, lambda p, lam: path(p), lambda_max])
def test_what_is_no_problem_is_named(ask):
    with pytest.raises(InputError, match=r"problem is a list; expected a Problem.*as_problem"):
        ask([1.0, 2.0], 0.1)


@pytest.mark.parametrize("lam", ["hkz", None, ["a"]])
def test_a_lambda_that_is_no_number_is_named(lam, rng):
    problem = Problem.from_arrays(rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5)))
    for ask in (solve, solve_square_root):
        with pytest.raises(InputError, match=r"lam is .*expected numbers > 0"):
            ask(problem, lam)
    if lam is not None:
        with pytest.raises(InputError, match=r"lams is .*expected numbers > 0"):
            path(problem, lam)
