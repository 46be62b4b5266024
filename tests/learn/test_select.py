"""Lambda by prediction of held-out tasks: the shared core, and the rule lam="cv"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import metakel as mk
from metakel.grouplasso import lambda_max
from metakel.learn.select import (
    LAM_RATIOS,
    HeldOutScores,
    cross_validated_lambda,
    score_held_out,
    task_variances,
)
from reproduction.synthetic import sample_history, true_kernel

L2 = mk.kernels.legendre(12, scaling="l2")
MATERN = mk.kernels.matern(2.5, [0.05, 0.5, 3.0], d0=1)


def example(seed, m=24, n=30, noise_std=0.1, base=L2):
    rng = np.random.default_rng(seed)
    truth = true_kernel(base, sparsity=3, rng=rng, smallest=0.1)
    return truth, sample_history(truth, m=m, n=n, norm=10, noise_std=noise_std, rng=rng)


def noise_only(seed, m=16, n=25):
    rng = np.random.default_rng(seed)
    pairs = [(rng.uniform(-1, 1, (n, 1)), rng.standard_normal(n)) for _ in range(m)]
    return mk.History.from_pairs(pairs)


def scaled(history, factor):
    return mk.History.from_pairs([(task.X, factor * task.y) for task in history])


def test_every_test_is_scored_by_models_that_did_not_see_it():
    data = np.arange(6)
    folds = [(np.delete(data, [i, i + 3]), [i, i + 3]) for i in range(3)]
    trained = []

    def fit_path(train):
        trained.append(set(train.tolist()))
        return [train.sum(), train.sum() + 1]

    found = score_held_out(folds, fit_path, lambda model, test: -abs(model - test))
    assert found.tests == [0, 3, 1, 4, 2, 5]
    assert found.scores.shape == (6, 2)
    for i, seen in enumerate(trained):
        assert not seen & {i, i + 3}
    assert found.models[0] is found.models[1]


def test_a_model_of_several_lambdas_is_scored_once():
    scored = []

    def score(model, test):
        scored.append(model)
        return 0.0

    model = object()
    score_held_out([(0, [1, 2])], lambda train: [model, model, model], score)
    assert scored == [model, model]  # once for each test


def test_the_best_is_the_largest_mean_and_the_first_of_equals():
    scores = HeldOutScores(["a", "b"], [[], []], np.array([[0.0, 2.0, 2.0], [0.0, 1.0, 1.0]]))
    assert scores.best() == (1,)
    odd = HeldOutScores(["a", "b"], [[], []], np.array([[0.0, -90.0], [0.0, 5.0]]))
    assert odd.best() == (0,)
    assert odd.best(worst=-3.0) == (1,)
    two_choices = HeldOutScores(["a"], [[]], np.array([[[0.0, 1.0], [3.0, 2.0]]]))
    assert two_choices.best() == (1, 0)
    assert HeldOutScores([], [], np.empty(0)).best() == (0,)


def test_a_gain_by_chance_does_not_buy_more_kernels_and_a_clear_one_does():
    chance = np.column_stack([np.zeros(4), [1.0, -1.0, 1.0, -0.9]])
    clear = np.column_stack([np.zeros(4), [1.0, 1.1, 0.9, 1.0]])
    tests = list("abcd")
    assert HeldOutScores(tests, [[]] * 4, chance).best() == (1,)
    assert HeldOutScores(tests, [[]] * 4, chance).sparsest() == 0
    assert HeldOutScores(tests, [[]] * 4, clear).sparsest() == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise_std", [None, 0.1])
def test_a_clear_support_is_found_whether_the_noise_is_known_or_not(seed, noise_std):
    truth, history = example(seed)
    learned = mk.learn_kernel(history, L2, lam="cv", noise_std=noise_std)
    assert set(truth.active) <= set(learned.active)
    assert learned.active.size <= truth.active.size + 2
    assert learned.rule == "cv"
    assert learned.delta == 1.0  # as by hand: nothing vouches for it
    assert learned.noise_known is (noise_std is not None)
    assert_allclose(learned.noise_std, 0.1, rtol=0.1)


def test_noise_selects_nothing_or_nearly_nothing():
    """Negative control: 8 histories without any signal."""
    found = [mk.learn_kernel(noise_only(seed), L2, lam="cv").active.size for seed in range(8)]
    assert sorted(found)[5] == 0
    assert np.mean(found) <= 1


@pytest.mark.parametrize("base", [L2, MATERN], ids=["features", "grams"])
@pytest.mark.parametrize("loss", ["points", "tasks"])
def test_the_lambda_is_on_the_path(base, loss):
    _, history = example(1, m=8, n=15)
    ragged = mk.History((*history.tasks, mk.Task(history[0].X[:4], history[0].y[:4], "short")))
    learned = mk.learn_kernel(ragged, base, lam="cv", loss=loss)
    # At the largest of the path nothing is selected; lambda follows the size of the features.
    points = np.concatenate([task.X for task in ragged])
    weights = np.sqrt(base.diags(points).mean(axis=1))
    ratio = learned.lam / (weights * lambda_max(learned.problem, weights))
    assert_allclose(ratio, ratio[0], rtol=1e-9)
    assert np.abs(LAM_RATIOS - ratio[0]).min() < 1e-9


@pytest.mark.parametrize("base", [L2, MATERN], ids=["features", "grams"])
def test_the_order_of_tasks_does_not_matter(base):
    _, history = example(2, m=11, n=15)
    turned = replace(history, tasks=tuple(history.tasks[s] for s in (3, 0, 7, *range(10, 7, -1))))
    again = replace(turned, tasks=tuple(reversed(turned.tasks)))
    assert_allclose(
        cross_validated_lambda(turned, base), cross_validated_lambda(again, base), rtol=1e-9
    )


@pytest.mark.parametrize("base", [L2, MATERN], ids=["features", "grams"])
def test_the_units_of_y_do_not_matter(base):
    _, history = example(3, m=8, n=15)
    one = cross_validated_lambda(history, base)
    for factor in (1e-6, -7.0, 1e6):
        other = cross_validated_lambda(scaled(history, factor), base)
        assert_allclose(other, abs(factor) * one, rtol=1e-9)


def test_the_scale_of_the_features_does_not_matter():
    truth, history = example(4)
    sup = mk.kernels.legendre(12, scaling="sup")
    assert_array_equal(
        mk.learn_kernel(history, L2, lam="cv").active,
        mk.learn_kernel(history, sup, lam="cv").active,
    )


def test_more_tasks_choose_lambda_again():
    _, history = example(5)
    learned = mk.learn_kernel(history[:16], L2, lam="cv")
    more = learned.update(history[16:])
    assert more.rule == "cv"
    assert_allclose(more.lam, mk.learn_kernel(history, L2, lam="cv").lam, rtol=1e-12)


@pytest.mark.parametrize(
    "values", [np.zeros(9), np.ones(9)], ids=["all values are 0", "all values are 1"]
)
@pytest.mark.parametrize("base", [L2, MATERN], ids=["features", "grams"])
def test_degenerate_values_are_learned_from(values, base):
    X = np.linspace(-1, 1, 9)[:, None]
    learned = mk.learn_kernel(
        mk.History.from_pairs([(X, values), (X, values)]), base, lam="cv", noise_std=0.1
    )
    assert learned.rule == "cv"
    if not values.any():
        assert learned.active.size == 0


def test_one_task_cannot_be_held_out():
    _, history = example(0, m=1)
    with pytest.raises(mk.InputError, match="needs at least 2 tasks; found 1"):
        mk.learn_kernel(history, L2, lam="cv")


def test_a_scan_has_no_tasks_in_memory_to_hold_out():
    class Elsewhere:
        m, d0, total = 5, 1, 50

    with pytest.raises(mk.InputError, match="needs them in memory"):
        cross_validated_lambda(Elsewhere(), L2)


def test_variances_follow_the_second_moments_and_add_up():
    strengths, sizes = np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.5, 2.0])
    base = mk.kernels.legendre(3, scaling="l2")
    found = task_variances(base, strengths, sizes, 5.0)
    assert_allclose(found @ sizes, 5.0)
    assert_allclose(found[2] / found[1], 4.0)
    assert not task_variances(base, np.zeros(3), sizes, 5.0).any()
