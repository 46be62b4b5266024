"""Laws of the group lasso for tasks with levels, and of the prior that it gives."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from metakel.grouplasso import solve
from metakel.kernels import from_features, legendre
from metakel.learn.select import MultiTaskProblem, rows_by_label

NOISE = 0.1
BASE = from_features(lambda X: np.ones((len(X), 1)), 1, name="level", d0=1) + legendre(
    6, scaling="l2"
)


def rows(m, n, rng, *, noise=NOISE):
    """Tasks with a level and an amount of P2 of their own."""
    X = rng.uniform(-1, 1, (m * n, 1))
    task = np.repeat(np.arange(m), n)
    P2 = BASE.features(X)[:, 2]
    f = 5 * rng.normal(size=m)[task] + rng.normal(size=m)[task] * P2
    return X, f + noise * rng.normal(size=m * n), task


def prior(X, y, task, **options):
    problem = MultiTaskProblem.of(X, y, task.tolist(), BASE)
    return problem.task_prior(solve(problem.problem, 0.05), options.get("noise_std"))


def test_rows_are_grouped_in_order_of_appearance():
    assert rows_by_label(["b", "a", "b", "c"]) == {"b": [0, 2], "a": [1], "c": [3]}


def test_the_prior_has_the_variances_of_the_tasks(rng):
    found = prior(*rows(200, 20, rng))
    assert found.noise_std == pytest.approx(NOISE, rel=0.1)
    assert found.kernel.eta[2] == pytest.approx(1, rel=0.3)  # of the coefficients of P2
    assert found.kernel.eta[0] == pytest.approx(25, rel=0.3)  # of the levels
    assert abs(found.level) < 1.5


def test_levels_are_not_seen_by_the_lasso(rng):
    X, y, task = rows(8, 12, rng)
    one, other = (
        MultiTaskProblem.of(X, values, task.tolist(), BASE)
        for values in (y, y + 1000.0 * np.arange(8)[task])
    )
    assert_allclose(other.spread, one.spread, rtol=1e-9)
    for mine, theirs in zip(one.history, other.history, strict=True):
        assert_allclose(mine.y, theirs.y, atol=1e-9)
        assert abs(mine.y.mean()) < 1e-12


def test_a_common_shift_moves_predictions_along(rng):
    X, y, task = rows(8, 12, rng)
    Z = np.linspace(-1, 1, 9)[:, None]
    mean, shifted = (
        prior(X, values, task).posterior(X[:5], values[:5]).mean(Z) for values in (y, y + 7.0)
    )
    assert_allclose(shifted, mean + 7, atol=1e-9)


def test_residuals_are_values_minus_predictions(rng):
    X, y, task = rows(6, 12, rng)
    found = prior(X, y, task, noise_std=0.3)
    assert found.noise_std == 0.3
    left = found.left(X[:5], y[:5], X[5:12], y[5:12])
    assert_array_equal(left, y[5:12] - found.posterior(X[:5], y[:5]).mean(X[5:12]))


def test_values_that_do_not_vary_within_tasks_have_no_spread(rng):
    X, _, task = rows(5, 6, rng)
    problem = MultiTaskProblem.of(X, 0.1 + task / 3, task.tolist(), BASE)
    assert problem.spread == 0
    assert problem.level == pytest.approx(0.1 + 2 / 3)
