"""Past runs whose noise was recorded weigh by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from histories import draw_task, shape

from metakel import learn_prior
from metakel.data import History, Task
from metakel.errors import InputError, ShapeError
from metakel.priors.principal import coefficients, featurize
from metakel.priors.standardize import noise_ratios, standardize


def noisy(rng, m=12, n=16):
    """Half of the runs have a hundred times the variance."""
    tasks = []
    for s in range(m):
        f, X = draw_task(rng, spread=0.1), rng.uniform(-1, 1, (n, 2))
        noise = np.where(np.arange(n) % 2, 0.1, 2.0)
        tasks.append(Task(X, f(X) + noise * rng.standard_normal(n), f"t{s}", noise_std=noise))
    return History(tuple(tasks))


def test_the_common_shape_is_nearer_to_the_truth_with_the_noise_than_without():
    probes = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    truth = shape(probes)
    errors = []
    for seed in range(4):
        history = noisy(np.random.default_rng(seed))
        bare = replace(history, tasks=tuple(replace(t, noise_std=None) for t in history))
        for part in (history, bare):
            found = learn_prior(part, certify="none").task_gp.mean(probes)
            errors.append(1 - np.corrcoef(found, truth)[0, 1])
    with_noise, without = np.array(errors).reshape(-1, 2).mean(axis=0)
    assert with_noise < without


def test_equal_noise_and_any_unit_of_it_change_nothing():
    history = noisy(np.random.default_rng(1), m=4)
    found = []
    for levels in (None, 0.3, 30.0):
        same = [
            replace(t, noise_std=None if levels is None else np.full(t.n, levels)) for t in history
        ]
        tasks = standardize(replace(history, tasks=tuple(same)))
        found.append(featurize(tasks).coefficients.w)
    np.testing.assert_allclose(found[0], found[1])
    np.testing.assert_allclose(found[1], found[2])


def test_a_run_with_a_quarter_of_the_variance_counts_as_four():
    """In the coefficients of its task, where the features are given."""
    rng = np.random.default_rng(2)
    F, z = rng.standard_normal((5, 8)), rng.standard_normal(5)
    root = np.array([0.5, 1, 1, 1, 1])
    once = coefficients([F / root[:, None]], [z / root], 0.1).w
    four = coefficients([F[[0, 0, 0, 0, 1, 2, 3, 4]]], [z[[0, 0, 0, 0, 1, 2, 3, 4]]], 0.1).w
    np.testing.assert_allclose(once, four)


def test_what_is_not_known_has_the_usual_noise():
    X, y = np.zeros((3, 1)), np.arange(3.0)
    tasks = [Task(X, y, "a", noise_std=np.array([1.0, 2.0, np.nan])), Task(X, y, "b")]
    first, second = noise_ratios(tasks)
    assert first[2] == 1.0
    assert (second == 1.0).all()
    assert first[1] == 4 * first[0]
    assert noise_ratios([Task(X, y)]) == ()


def test_a_column_of_noise_is_read_and_is_no_parameter():
    table = {
        "data": list("aabb"),
        "rate": [0.1, 0.2, 0.3, 0.4],
        "score": [1.0, 2.0, 3.0, 2.5],
        "sd": [0.1, None, 0.2, 0.3],
    }
    history = History.from_frame(table, task="data", output="score", noise="sd")
    assert history.space.names == ("rate",)
    np.testing.assert_array_equal(history[0].noise_std, [0.1, np.nan])
    with pytest.raises(InputError, match="the noise in row 3 is -1; expected a number >= 0"):
        History.from_frame(
            {**table, "sd": [0.1, 0.1, 0.1, -1]}, task="data", output="score", noise="sd"
        )
    with pytest.raises(ShapeError, match="noise_std has shape"):
        Task(np.zeros((2, 1)), np.zeros(2), noise_std=np.zeros(3))
