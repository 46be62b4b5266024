"""Standardised tasks, selection of principal functions, and what held-out tasks decide."""

from __future__ import annotations

import numpy as np
import pytest
from histories import simulate
from numpy.testing import assert_allclose

from metakel.data import History, Task
from metakel.priors.principal import (
    LAM_RATIOS,
    RESIDUAL_WEIGHTS,
    featurize,
    hold_out,
    moments,
    principal_functions,
)
from metakel.priors.standardize import standardize, winsorize


@pytest.fixture(scope="module")
def tasks():
    return standardize(simulate(np.random.default_rng(0)))


@pytest.fixture(scope="module")
def featurized(tasks):
    return featurize(tasks)


def test_levels_and_scales_are_taken_out_and_kept():
    history = simulate(np.random.default_rng(1), m=5)
    flat = Task(history[0].X, np.full(25, 0.1), "flat")
    found = standardize(History((*history.tasks, flat)))
    assert found.m == 5
    assert found.constant == ("flat",)
    for s, task in enumerate(history):
        assert_allclose([found.z[s].mean(), found.z[s].std()], [0, 1], atol=1e-12)
        assert_allclose(
            found.means[s] + found.spreads[s] * found.z[s], winsorize(task.y), atol=1e-12
        )
    moved = standardize(History(tuple(Task(t.X, 5 - 1e3 + 7 * t.y) for t in history)))
    assert_allclose(np.array(moved.z), np.array(found.z), atol=1e-9)


def test_the_fence_moves_only_what_is_far_below():
    y = np.array([0.0, 1.0, 2.0, 3.0, 4.0, -100.0, 90.0])
    assert_allclose(winsorize(y), [0, 1, 2, 3, 4, 0.5 - 1.5 * 3, 90])
    mostly_equal = np.array([0.5] * 8 + [0.1, 0.9])
    assert (winsorize(mostly_equal) == mostly_equal).all()


def test_principal_functions_diagonalise_the_second_moment(tasks, featurized):
    _, S = moments(featurized.coefficients, range(tasks.m))
    found = principal_functions(featurized, range(tasks.m))
    U = found.directions
    assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-8)
    assert_allclose(U.T @ S @ U, np.diag(found.eta), atol=1e-8)
    assert (np.diff(found.eta) <= 1e-12).all()


def test_tasks_with_structure_are_told_from_noise(tasks, featurized):
    held = hold_out(featurized, mean=True)
    assert held.helps
    assert held.log_score > 0.5
    assert held.tasks.tolist() == list(range(tasks.m))
    assert held.lam_ratio in LAM_RATIOS
    assert held.residual_weight in RESIDUAL_WEIGHTS
    rng = np.random.default_rng(2)
    noise = standardize(History(tuple(Task(X, rng.standard_normal(len(X))) for X in tasks.X)))
    assert not hold_out(featurize(noise), mean=True).helps


def test_the_noisiness_of_past_tasks_is_counted():
    rng = np.random.default_rng(4)

    def noise_ratio(noisy):
        """Of tasks of which some have ten times the noise of the others."""
        tasks = [
            Task(t.X, t.y + t.y.std() * (0.3 if s < noisy else 0.003) * rng.standard_normal(25))
            for s, t in enumerate(simulate(np.random.default_rng(0), m=20))
        ]
        mixed = standardize(History(tuple(tasks)))
        return hold_out(featurize(mixed), mean=True).noise_ratio

    few, all_alike = noise_ratio(6), noise_ratio(20)
    assert_allclose([sum(few), sum(all_alike)], 1)
    assert min(few + all_alike) > 0
    assert few[0] < 0.6 < all_alike[0]


def test_one_odd_task_does_not_veto_the_history(tasks):
    rng = np.random.default_rng(3)
    wild = Task(tasks.X[0], np.where(np.arange(25) % 2, 1.0, -1.0) + rng.normal(0, 0.01, 25))
    history = History((*simulate(np.random.default_rng(0)).tasks, wild))
    mixed = standardize(history)
    held = hold_out(featurize(mixed), mean=True)
    assert held.log_scores[-1] < 0 < held.log_score
    assert held.helps
