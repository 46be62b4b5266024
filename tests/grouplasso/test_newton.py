"""The p-dimensional problem: its derivatives, its dual, and the bounded Newton step."""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from reference import draw

from metakel.grouplasso import lambda_max
from metakel.grouplasso.solve import (
    _by_nnls,
    bounded_newton,
    dual_value,
    evaluate,
    evaluator_of,
)

# -- the quadratic programme ---------------------------------------------------------------------


def quadratic(H, q, t):
    return 0.5 * t @ H @ t + q @ t


def by_enumeration(H, q, x):
    """The best of all choices of which coordinates of x + t are zero."""
    best, value = None, np.inf
    for free in product([False, True], repeat=x.size):
        free = np.array(free)
        t = -x.copy()
        if free.any():
            rest = H[np.ix_(free, ~free)] @ x[~free]
            t[free] = np.linalg.lstsq(H[np.ix_(free, free)], rest - q[free], rcond=None)[0]
        if (x + t >= -1e-12).all() and quadratic(H, q, t) < value:
            best, value = x + t, quadratic(H, q, t)
    return best, value


@settings(deadline=None, max_examples=80, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), p=st.integers(1, 6), spread=st.floats(0, 3))
def test_the_bounded_step_is_the_best_of_all_zero_patterns(seed, p, spread):
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((p + 2, p)) * 10 ** rng.uniform(-spread, spread, p)
    H, q = F.T @ F, rng.standard_normal(p) * 10 ** rng.uniform(-spread, spread, p)
    x = rng.random(p) * (rng.random(p) < 0.7)
    expected, value = by_enumeration(H, q, x)
    for found in (bounded_newton(H, q, x), _by_nnls(H, q, x)):
        assert (found >= 0).all()
        assert quadratic(H, q, found - x) <= value + 1e-6 * (abs(value) + 1e-9)
    assert_allclose(bounded_newton(H, q, x), expected, rtol=1e-4, atol=1e-6 * expected.max())


@pytest.mark.parametrize("p", [10, 40])
def test_optimality_of_the_bounded_step_for_many_groups(p):
    rng = np.random.default_rng(p)
    F = rng.standard_normal((2 * p, p)) + 0.7
    H, q, x = F.T @ F, rng.standard_normal(p), 0.05 * rng.random(p)
    found = bounded_newton(H, q, x)
    pull = H @ (found - x) + q
    assert (found == 0).any()
    assert (found > 0).any()
    assert_allclose(pull[found > 0], 0, atol=1e-8)
    assert (pull[found == 0] >= -1e-8).all()


def test_guesses_that_cycle_are_handed_over(monkeypatch):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((8, 6))
    H, q, x = F.T @ F, rng.standard_normal(6), rng.random(6)
    expected = bounded_newton(H, q, x)
    assert (expected == 0).any()
    monkeypatch.setattr(
        sys.modules[bounded_newton.__module__], "range", lambda _: iter(()), raising=False
    )
    assert_allclose(bounded_newton(H, q, x), expected, atol=1e-8)


def test_duplicated_groups_leave_h_singular_and_the_step_finite():
    H, q = np.ones((3, 3)) + np.diag([0, 0, 1.0]), np.array([-1.0, -1.0, 0.5])
    found = bounded_newton(H, q, np.array([0.1, 0.2, 0.3]))
    assert np.isfinite(found).all()
    pull = H @ (found - [0.1, 0.2, 0.3]) + q
    assert_allclose(pull[found > 0], 0, atol=1e-8)


# -- the dual ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    inner=st.floats(-2, 2),
    square=st.floats(1e-6, 2),
    norms=st.lists(st.floats(0, 3), min_size=1, max_size=4),
)
def test_dual_value_is_the_best_feasible_one_on_the_ray(inner, square, norms):
    norms, lam = np.array(norms), np.linspace(0.5, 1.5, len(norms))
    found = dual_value(inner, square, norms, lam)
    longest = min(1 / max((norms / lam).max(), 1e-300), 2 * abs(inner) / square + 1)
    a = np.linspace(-longest, longest, 2001)
    values = 2 * a * inner - a * a * square
    assert found >= values.max() - 1e-9 * max(1, abs(found))
    assert found <= values.max() + square * (a[1] - a[0]) ** 2 + 1e-9 * abs(found)


def test_dual_value_where_the_residual_is_lost_to_rounding():
    lam = np.array([1e-9, 2e-9])
    # ||r||^2 rounds to zero, y'r does not: the ray still ends where a group binds.
    assert_allclose(dual_value(3e-9, 0.0, lam, lam), 6e-9)
    assert dual_value(0.0, 0.0, np.zeros(2), lam) == 0.0


# -- g and its derivatives -----------------------------------------------------------------------

FORMS = {
    "columns": lambda: draw(0, (9, 14, 6), (1, 2, 3, 1)).problem(),
    "units": lambda: draw(0, (9, 14, 6), (1,) * 7).problem(),
    "rows": lambda: draw(0, (4, 3, 5), (6, 8, 9, 7)).problem(),
    "grams": lambda: draw(0, (9, 14, 6), (1, 2, 3, 1)).gram_problem(),
    "stiff": lambda: draw(0, (9, 14, 6), (1, 2, 3, 1)).problem(),
    "swept": lambda: draw(0, (5,) * 70, (1, 2, 3)).problem(),
}


@pytest.fixture(params=FORMS)
def evaluator(request):
    found = evaluator_of(FORMS[request.param]())
    found.extend(np.arange(found.p))
    found.size = 1e5 if request.param == "stiff" else 1.0
    assert request.param != "rows" or not hasattr(found._side, "gram")
    return found


def test_scores_are_the_gradient_and_the_hessian_their_derivative(evaluator):
    p = evaluator.p
    x = evaluator.size * np.random.default_rng(0).uniform(0.5, 2, p) / evaluator.curvature
    every = np.arange(p)
    _, scores = evaluator.at(every, x)
    hessian = evaluator.hessian(every)
    assert_allclose(hessian, hessian.T, atol=1e-12 * np.abs(hessian).max())
    for j in range(p):
        step = 1e-4 * x[j] * np.eye(p)[j]
        up, scores_up = evaluator.at(every, x + step)
        down, scores_down = evaluator.at(every, x - step)
        slope = (up - down) / (2 * step[j])
        assert_allclose(slope, -scores[j] / 2, rtol=1e-4)
        bend = -(scores_up - scores_down) / (4 * step[j])
        assert_allclose(hessian[j], bend, rtol=1e-4, atol=1e-4 * np.abs(bend).max())


def test_idle_groups_have_the_curvature_of_a_vanishing_weight(evaluator):
    p = evaluator.p
    x = np.random.default_rng(0).uniform(0.5, 2, p) / evaluator.curvature
    every = np.arange(p)
    for idle in ([0], [1, 2], list(range(p))):
        active = np.setdiff1d(every, idle)
        tiny = x.copy()
        tiny[idle] *= 1e-7
        evaluator.at(every, tiny)
        limit = evaluator.hessian(every)
        evaluator.at(active, x[active])
        found = evaluator.hessian(every)
        assert_allclose(found, limit, rtol=1e-5, atol=1e-5 * np.abs(limit).max())


@pytest.mark.parametrize("form", FORMS)
def test_extending_keeps_the_point(form):
    problem = FORMS[form]()
    whole, grown = evaluator_of(problem), evaluator_of(problem)
    whole.extend(np.arange(problem.p))
    active = np.arange(2)
    grown.extend(active)
    x = 1 / grown.curvature
    grown.at(active, x)
    grown.extend(np.arange(2, problem.p))
    whole.at(active, x)
    assert_allclose(
        grown.hessian(np.arange(problem.p)), whole.hessian(np.arange(problem.p)), rtol=1e-9
    )
    assert_allclose(grown.residual().scores, whole.residual().scores, rtol=1e-9)


def test_the_certificate_agrees_with_the_algebra(evaluator):
    x = np.random.default_rng(1).uniform(0.5, 2, evaluator.p) / evaluator.curvature
    x[1] = 0.0
    lam = np.full(evaluator.p, 0.1 * lambda_max(evaluator.problem))
    now = evaluate(evaluator, lam, x)
    raw = evaluator.residual()
    assert_allclose(raw.scores[evaluator.work], now.scores, rtol=1e-8)
    assert_allclose(raw.inner, now.data, rtol=1e-10)
    assert_allclose(raw.norms[evaluator.work], x * np.sqrt(now.scores), rtol=1e-8)
    assert_allclose(raw.square, now.data - 0.5 * x @ now.scores, rtol=1e-8)
    assert_allclose(now.objective, now.data + 0.5 * (lam**2) @ x)
