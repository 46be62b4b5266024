"""A path is the same as one solve per lambda."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import draw

from metakel.errors import InputError, NotConverged, ShapeError
from metakel.grouplasso import Problem, lambda_max, path, solve

DIMS = (1, 3, 2, 1) * 6


@pytest.fixture
def data():
    return draw(7, (50, 64, 80), DIMS, active=4)


@pytest.mark.parametrize("mode", ["problem", "gram_problem"])
def test_every_point_is_the_solution_at_its_lambda(data, mode):
    problem = getattr(data, mode)()
    for solution in path(problem, count=8, ratio=1e-2, tol=1e-12):
        alone = solve(problem, solution.lam, tol=1e-12)
        assert solution.converged
        assert_allclose(solution.eta, alone.eta, atol=1e-6)
        assert_allclose(solution.objective, alone.objective, rtol=1e-10)


def test_the_default_grid_goes_from_lambda_max_to_its_share(data):
    problem = data.problem()
    solutions = path(problem, count=12, ratio=1e-2)
    lams = np.array([s.lam[0] for s in solutions])
    assert_allclose(lams, lambda_max(problem) * np.geomspace(1, 1e-2, 12))
    assert solutions[0].active.size == 0
    assert solutions[1].active.size > 0
    assert max(s.gap for s in solutions) <= 1e-8
    # The loss falls and the penalty norm grows as lambda falls.
    norms = [s.eta.sum() for s in solutions]
    assert (np.diff(norms) > 0).all()
    losses = [sum(r @ r for r in s.residuals) for s in solutions]
    assert (np.diff(losses) < 0).all()


def few_columns(seed=0, sizes=(30,) * 8, dims=(1,) * 9, active=3):
    return draw(seed, sizes, dims, active=active)


RAGGED = (40, 12, 25, 38, 13, 24, 39, 12)


@pytest.mark.parametrize(
    "data",
    [
        few_columns(1, sizes=RAGGED),
        few_columns(3, sizes=RAGGED, dims=(2, 1, 4, 1), active=2),
        few_columns(6, dims=(1,) * 66, active=2),
        few_columns(7, sizes=(6, 7, 6), dims=(1,) * 12),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_gap_and_violation_are_those_of_the_raw_data(data, weighted):
    problem = data.problem()
    shape = np.linspace(1, 2.5, problem.p) if weighted else np.ones(problem.p)
    solutions = path(problem, count=30, ratio=1e-2, weights=shape, tol=1e-10)
    for solution in solutions:
        assert_allclose(solution.lam / solution.lam[0], shape)
        alone = solve(problem, solution.lam, tol=1e-12)
        assert solution.gap <= 1e-10
        assert_allclose(solution.objective, alone.objective, rtol=1e-9)
        assert_allclose(solution.objective, data.primal(solution.beta, solution.lam), rtol=1e-12)
        assert_allclose(solution.kkt, data.kkt(solution.beta, solution.lam), atol=1e-9)
        assert_allclose(solution.eta, data.norms(solution.beta), rtol=1e-12)
        residuals = data.residual(solution.beta)
        assert_allclose(np.concatenate(solution.residuals), np.concatenate(residuals), atol=1e-12)
    assert not solutions[0].eta.any()


def test_lambdas_come_in_any_order_and_repeat():
    data = few_columns()
    problem = data.problem()
    top = lambda_max(problem)
    lams = top * np.random.default_rng(0).permutation(np.geomspace(3, 1e-3, 20).repeat(2))
    solutions = path(problem, lams, tol=1e-10)
    for lam, solution in zip(lams, solutions, strict=True):
        assert_allclose(solution.lam, lam, rtol=1e-15)
        assert solution.eta.any() == (lam < top)
        assert data.kkt(solution.beta, lam) <= 1e-4


def test_nothing_is_selected_above_lambda_max():
    problem = few_columns().problem()
    for solution in path(problem, lambda_max(problem) * np.geomspace(50, 1.0001, 12), tol=0.0):
        assert not solution.eta.any()
        assert solution.gap == solution.kkt == 0.0
        assert solution.unique


def test_what_cannot_be_certified_is_never_silent():
    data = few_columns()
    twice = Problem.from_tasks([np.hstack([F, F]) for F in data.Phi], data.y)
    with pytest.warns(NotConverged) as caught:
        solutions = path(twice, count=10, tol=0.0)
    assert len(caught) == sum(not s.converged for s in solutions) > 0
    assert all(warning.filename == __file__ for warning in caught)


def test_nan_features_along_a_path_are_reported():
    Phi, y = np.ones((2, 5, 3)), np.arange(10.0).reshape(2, 5)
    Phi[1, 2, 1] = np.nan
    with pytest.raises(InputError, match="group 1"):
        path(Problem.from_arrays(Phi, y), np.geomspace(1, 0.1, 10))


def test_progress_is_reported_every_lambda(data):
    calls = []
    solutions = path(data.problem(), count=4, progress=lambda *call: calls.append(call))
    assert calls == [(i, s.gap) for i, s in enumerate(solutions)]


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"lams": [-1.0]}, InputError),
        ({"lams": [1.0, np.nan]}, InputError),
        ({"lams": []}, ShapeError),
        ({"lams": np.ones((2, 2))}, ShapeError),
        ({"count": 0}, InputError),
        ({"ratio": 0.0}, InputError),
        ({"ratio": 2.0}, InputError),
        ({"weights": [1.0, 2.0]}, ShapeError),
        ({"weights": np.zeros(len(DIMS))}, InputError),
    ],
)
def test_bad_requests(data, kwargs, error):
    with pytest.raises(error):
        path(data.problem(), **kwargs)


def test_no_path_where_nothing_correlates():
    problem = Problem.from_arrays(np.ones((2, 3, 2)), np.zeros((2, 3)))
    with pytest.raises(InputError, match="lambda_max is 0"):
        path(problem)
