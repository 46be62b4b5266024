"""Base kernels by parameter: the group lasso names the ones that past tasks need."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.data import History
from metakel.kernels import matern
from metakel.priors import effect_kernels, learn_effects
from metakel.space import Categorical, Fixed, Float, Space

SPACE = Space((Float("a", 0, 1), Categorical("kind", ("u", "v")), Fixed("f", 1), Float("b", 0, 1)))


def test_there_is_one_kernel_per_parameter_and_pair():
    base, labels = effect_kernels(SPACE)
    assert labels == ("a", "kind", "b", "a x kind", "a x b", "kind x b")
    assert base.p == 6
    X = SPACE.sample(np.random.default_rng(0), 9)
    grams = base.grams(X)
    assert_allclose(grams[1], matern(2.5, 1.0).grams(X[:, 1:3])[0])
    assert_allclose(grams[4], matern(2.5, 1.0).grams(X[:, [0, 3]])[0])


def history(f, rng, m=12, n=40):
    tasks = []
    for _ in range(m):
        X = rng.uniform(-1, 1, (n, 3))
        tasks.append((X, f(X, rng.normal(size=2)) + 0.05 * rng.standard_normal(n)))
    return History.from_pairs(tasks)


@pytest.mark.parametrize("lam_ratio", [0.3, 0.1])
def test_the_parameters_that_act_are_found(lam_ratio):
    rng = np.random.default_rng(0)
    found = learn_effects(
        history(lambda X, w: np.sin(3 * X[:, 0] + w[0]) + 0.8 * w[1] * X[:, 2], rng),
        lam_ratio=lam_ratio,
    )
    assert sum(found.values()) == pytest.approx(1)
    assert found["x1"] == 0
    assert found["x0"] + found["x2"] > 0.95
    assert min(found["x0"], found["x2"]) > 0.1


def test_an_interaction_is_told_from_main_effects():
    rng = np.random.default_rng(1)
    found = learn_effects(history(lambda X, w: w[0] * X[:, 0] * X[:, 1], rng))
    assert max(found, key=found.get) == "x0 x x1"
    assert found["x0 x x1"] > 0.95


def test_constant_tasks_have_no_effects():
    flat = History.from_pairs([(np.random.default_rng(0).uniform(size=(5, 2)), np.ones(5))])
    assert set(learn_effects(flat).values()) == {0.0}
