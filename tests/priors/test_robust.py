"""Tasks that agree with no others are set aside, and only these."""

from __future__ import annotations

import numpy as np
import pytest
from histories import draw_task, simulate

import metakel.priors.learn as learning
from metakel import datasets, learn_prior
from metakel.data import History, Task
from metakel.optimize.optimizer import Optimizer
from metakel.priors.principal import core
from metakel.search import candidates


def changed(history, change, every=2):
    """Every other task changed, and the names of those."""
    tasks = [change(task) if s % every else task for s, task in enumerate(history)]
    wrong = {task.name for s, task in enumerate(history) if s % every}
    return History(tuple(tasks), history.space), wrong


def named(history):
    tasks = (Task(t.X, t.y, f"t{s}") for s, t in enumerate(history))
    return History(tuple(tasks), history.space)


def shuffled(task):
    rng = np.random.default_rng(len(task.name) + task.n)
    return Task(task.X, rng.permutation(task.y), task.name)


@pytest.fixture(scope="module")
def history():
    return named(simulate(np.random.default_rng(20), m=20))


def evaluations(prior, X, y, steps=25):
    """How many it takes to come within 5 % of the spread between best and median."""
    good = y >= y.max() - 0.05 * (y.max() - np.median(y))
    optimizer = Optimizer(
        prior.task_model(), candidates(X, repeat=False), rng=np.random.default_rng(0)
    )
    number = {x.tobytes(): i for i, x in enumerate(X)}
    for step in range(1, steps + 1):
        x = optimizer.ask()
        if good[number[x.tobytes()]]:
            return step
        optimizer.tell(x, y[number[x.tobytes()]])
    return steps


def new_tasks(count=6):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-0.9, 0.9, (150, 2))
        yield X, draw_task(rng)(X)


def real_table():
    data = datasets.load_glmnet()
    past = tuple(Task(t.X[:50], t.y[:50], t.name) for t in data.tasks[:16])
    return History(past, data.space)


@pytest.mark.parametrize("seed", range(6))
def test_a_clean_history_keeps_all_of_its_tasks(seed):
    assert learn_prior(simulate(np.random.default_rng(seed)), certify="none").info.set_aside == ()


def test_clean_histories_decide_as_if_nothing_could_be_set_aside(monkeypatch):
    priors = [learn_prior(real_table(), certify="none")]
    assert priors[0].info.set_aside == ()
    monkeypatch.setattr(learning, "agreeing_tasks", lambda featurized: np.arange(featurized.m))
    priors.append(learn_prior(real_table(), certify="none"))
    one, other = (prior.task_gp for prior in priors)
    np.testing.assert_array_equal(one.mu, other.mu)
    np.testing.assert_array_equal(one.eta, other.eta)


@pytest.mark.parametrize("table", ["simulated", "real"])
def test_shuffled_tasks_are_set_aside(history, table):
    dirty, wrong = changed(history if table == "simulated" else real_table(), shuffled)
    prior = learn_prior(dirty, certify="none")
    aside = set(prior.info.set_aside)
    assert len(aside & wrong) >= 0.8 * len(wrong)
    assert len(aside - wrong) <= 0.1 * len(dirty)
    assert f"{len(aside)} of {len(dirty)} tasks agree with no others" in str(prior)


def test_what_is_learned_is_what_the_others_teach_alone(history):
    dirty, _ = changed(history, shuffled)
    prior = learn_prior(dirty, certify="none")
    kept = [task for task in dirty if task.name not in prior.info.set_aside]
    alone = learn_prior(History(tuple(kept), dirty.space), prior.space, certify="none").task_gp
    np.testing.assert_allclose(prior.task_gp.mu, alone.mu, rtol=1e-6, atol=1e-9)


def test_a_history_of_which_half_says_nothing_is_worth_a_clean_one(history):
    clean = learn_prior(history, certify="none")
    dirty = learn_prior(changed(history, shuffled)[0], certify="none")
    usual = np.mean([evaluations(clean, X, y) for X, y in new_tasks()])
    found = np.mean([evaluations(dirty, X, y) for X, y in new_tasks()])
    assert found <= 1.4 * usual + 1.5


def test_the_core_does_not_depend_on_the_order_of_tasks():
    rng = np.random.default_rng(0)
    sides = np.array([1.0] * 7 + [0.0] * 4)
    R = 0.6 * np.outer(sides, sides) + 0.1 * rng.standard_normal((11, 11))
    R = (R + R.T) / 2
    np.fill_diagonal(R, 0)
    order = rng.permutation(11)
    assert set(core(R).tolist()) == set(range(7))
    assert set(order[core(R[np.ix_(order, order)])].tolist()) == set(range(7))


def test_tasks_without_affinity_have_no_core():
    for R in (np.zeros((5, 5)), np.zeros((12, 12))):
        assert core(R) is None
    assert len(core(np.ones((4, 4)) - np.eye(4))) == 4
