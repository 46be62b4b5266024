"""Level and scale of a new task: what past tasks say, and what its own values say."""

from __future__ import annotations

import numpy as np
import pytest

from metakel.gp.factor import Factor
from metakel.gp.processes import ColdProcess, LevelAndScale, level_and_scale


def test_levels_and_scales_without_outliers_are_those_of_mean_and_deviation():
    levels, scales = np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.0, 2.0, 2.0, 3.0])
    model = level_and_scale(levels, scales)
    assert model.level == levels.mean()
    assert model.level_variance == pytest.approx(levels.var() / 4 + 0.1)
    assert model.spread == pytest.approx(np.log(scales).std())


def test_one_outlying_task_moves_level_and_spread_by_no_more_than_a_usual_one():
    rng = np.random.default_rng(0)
    levels, scales = rng.normal(5, 2, 20), np.exp(rng.normal(0, 0.4, 20))
    clean = level_and_scale(levels, scales)
    for level, scale in ((1e6, 1e4), (-1e9, 1e-6), (1e300, 1.0)):
        dirty = level_and_scale(np.append(levels, level), np.append(scales, scale))
        assert abs(dirty.level - clean.level) < 1
        assert dirty.level_variance < 2 * clean.level_variance
        assert dirty.spread < 2 * clean.spread
        assert dirty.scale == pytest.approx(clean.scale, rel=0.2)


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0, 10.0])
def test_scales_smaller_by_up_to_a_million_are_possible_and_larger_ones_are_usual(spread):
    model = LevelAndScale(level=0.0, level_variance=1.0, scale=2.0, spread=spread)
    assert (np.diff(model.scales) > 0).all()
    assert np.median(model.scales[model.usual]) == pytest.approx(2.0)
    assert model.scales[0] <= 2e-6 * np.exp(0.5)
    assert model.scales[-1] == pytest.approx(2 * np.exp(2.5 * spread))
    weights = np.exp(model.log_weights)
    assert weights.sum() == pytest.approx(1)
    assert weights[np.abs(np.log(model.scales / 2)) <= 2.5 * spread].sum() > 0.95 - 1e-9


def test_the_scale_of_a_task_is_found_from_its_values():
    model = LevelAndScale(level=0.0, level_variance=1.0, scale=1.0, spread=0.3)
    X = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    y = (y - y.mean()) / y.std()
    for factor in (1e-4, 0.01, 1.0):
        gp = Factor.of([ColdProcess.typical(2)], model, X)
        gp = gp.appended(X, factor * y)
        weights = np.exp(gp.log_likelihoods[0] + model.log_weights - gp.log_likelihoods.max())
        mean = np.exp(weights @ np.log(model.scales) / weights.sum())
        assert 0.5 < mean / factor < 2.0


def test_a_first_value_overrules_past_levels_only_where_they_exclude_it():
    model = LevelAndScale(level=1.0, level_variance=3.0, scale=0.5, spread=0.3)
    usual_sd = 0.5 * np.sqrt(1 + 3.0)
    assert model.expects(1.0 + 3.9 * usual_sd)
    assert not model.expects(1.0 - 4.1 * usual_sd)
    moved = model.at_other_level(1e6)
    assert moved.expects(1e6 + 20)
    assert (moved.scale, moved.spread) == (model.scale, model.spread)


def test_a_first_value_may_be_as_far_from_the_level_as_mean_functions_are():
    model = LevelAndScale(level=1.0, level_variance=3.0, scale=0.5, spread=0.3)
    sd, at = 0.5 * np.sqrt(1 + 3.0), [-2.0, 6.0]  # 0 and 4 with their level
    assert model.expects(4.0 + 3.9 * sd, at)
    assert not model.expects(4.0 + 4.1 * sd, at)
    assert model.expects(0.0 - 3.9 * sd, at)
    assert not model.expects(0.0 - 4.1 * sd, at)
    assert model.expects(1.0 - 3.9 * sd, [6.0])  # the level of a usual task stays allowed


def test_levels_of_past_tasks_that_are_far_apart_cost_no_digits():
    """Predictions then are those around any level: the values alone tell it."""
    model = level_and_scale([0.0, 1e9, -1e9, 5e8], [1.0, 1.0, 1.0, 1.0])
    X = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    gp = Factor.of([ColdProcess.typical(2)], model.at_other_level(y[0]), X)
    gp = gp.appended(X, y)
    assert np.abs(gp.prediction.offset - y).max() < 0.05


def test_the_first_value_at_another_level_says_nothing_of_the_scale():
    """It fixes the level, so that the probabilities of scales are those of before."""
    model = LevelAndScale(level=0.0, level_variance=1.0, scale=2.0, spread=0.4)
    moved = model.at_other_level(1e3)
    X = np.zeros((1, 2))
    gp = Factor.of([ColdProcess.typical(2)], moved, X)
    gp = gp.appended(X, np.array([1e3]))
    after = np.exp(gp.log_likelihoods[0] + moved.log_weights)[model.usual]
    before = np.exp(model.log_weights)[model.usual]
    np.testing.assert_allclose(after / after.sum(), before / before.sum(), rtol=1e-9)
