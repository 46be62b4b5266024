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


def test_given_lambdas_are_used_in_any_order(data):
    problem = data.problem()
    lams = np.array([0.05, 0.5, 2.0, 0.01]) * lambda_max(problem)
    solutions = path(problem, lams, tol=1e-12)
    assert not solutions[2].eta.any()
    for lam, solution in zip(lams, solutions, strict=True):
        assert_allclose(solution.lam, lam)
        assert data.kkt(solution.beta, lam) <= 1e-4


def test_weights_shape_every_lambda(data):
    problem = data.problem()
    weights = np.linspace(0.5, 3, len(DIMS))
    solutions = path(problem, count=5, ratio=0.05, weights=weights, tol=1e-12)
    assert not solutions[0].eta.any()
    for solution in solutions[1:]:
        assert_allclose(solution.lam / solution.lam[0], weights / weights[0])
        assert data.kkt(solution.beta, solution.lam) <= 1e-4


def test_rows_and_many_tasks_along_a_path():
    for sizes, dims in (((10, 11), (1, 2) * 40), ((9,) * 120, (1,) * 12)):
        data = draw(0, sizes, dims, active=5)
        for solution in path(data.problem(), count=6, ratio=1e-2, tol=1e-11):
            assert data.kkt(solution.beta, solution.lam) <= 1e-3


def test_duplicated_columns_along_a_path():
    data = draw(0, (30, 30), (1,) * 6)
    twice = Problem.from_tasks([np.hstack([F, F]) for F in data.Phi], data.y)
    for one, two in zip(path(data.problem(), count=6), path(twice, count=6), strict=True):
        assert_allclose(two.objective, one.objective, rtol=1e-7)


def test_progress_is_told_every_lambda(data):
    calls = []
    solutions = path(data.problem(), count=4, progress=lambda *call: calls.append(call))
    assert calls == [(i, s.gap) for i, s in enumerate(solutions)]


def test_points_that_stop_early_say_so(data):
    with pytest.warns(NotConverged) as caught:
        solutions = path(data.problem(), [1e-3], max_iterations=1, tol=1e-13)
    assert not solutions[0].converged
    assert caught[0].filename == __file__


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
