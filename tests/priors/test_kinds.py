"""Kinds of past tasks: found where they are, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from histories import draw_task, simulate

from metakel import Prior, datasets, learn_prior
from metakel.data import History, Task
from metakel.optimize.optimizer import Optimizer
from metakel.priors.kinds import find_kinds
from metakel.search import candidates
from metakel.space import Float, Space


def changed(history, change, every=2):
    """Every other task changed, and the names of those that were not."""
    tasks = [change(task) if s % every else task for s, task in enumerate(history)]
    kept = {task.name for s, task in enumerate(history) if not s % every}
    return History(tuple(tasks), history.space), kept


def named(history):
    tasks = (Task(t.X, t.y, f"t{s}") for s, t in enumerate(history))
    return History(tuple(tasks), history.space)


def mirrored(task):
    return Task(-task.X, task.y, task.name)


def upside_down(task):
    return Task(task.X, -task.y, task.name)


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


@pytest.mark.parametrize("seed", range(6))
def test_a_history_of_one_kind_has_no_kinds(seed):
    assert learn_prior(simulate(np.random.default_rng(seed)), certify="none").kinds == ()


def test_tasks_of_a_real_table_are_of_one_kind():
    data = datasets.load_glmnet()
    past = tuple(Task(t.X[:50], t.y[:50], t.name) for t in data.tasks[:16])
    assert learn_prior(History(past, data.space), certify="none").kinds == ()


@pytest.mark.parametrize("change", [mirrored, upside_down])
def test_two_kinds_are_found_with_their_tasks(history, change):
    dirty, kept = changed(history, change)
    prior = learn_prior(dirty, certify="none")
    groups = [set(kind.tasks) for kind in prior.kinds]
    assert len(groups) == 2
    assert kept in groups
    assert "Past tasks are of 2 kinds" in str(prior)


@pytest.mark.parametrize("levels", [None, (0.1, 0.3)])
def test_a_kind_is_what_would_be_learned_from_its_tasks_alone(history, levels):
    """With the recorded noise of its runs, if there is any."""
    dirty, kept = changed(history, upside_down)
    if levels is not None:
        known = [replace(t, noise_std=np.resize(levels, t.n)) for t in dirty]
        dirty = History(tuple(known), dirty.space)
    space = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0)))
    own = [task for task in dirty if task.name in kept]
    alone = learn_prior(History(tuple(own)), space, certify="none").task_gp
    kinds = learn_prior(History(dirty.tasks), space, certify="none").kinds
    (kind,) = (k.task_gp for k in kinds if set(k.tasks) == kept)
    np.testing.assert_array_equal(kind.mu, alone.mu)
    np.testing.assert_array_equal(kind.eta, alone.eta)


@pytest.mark.parametrize("change", [mirrored, upside_down, shuffled])
def test_half_of_a_wrong_history_leaves_the_right_half(history, change):
    clean = learn_prior(history, certify="none")
    dirty = learn_prior(changed(history, change)[0], certify="none")
    usual = np.mean([evaluations(clean, X, y) for X, y in new_tasks()])
    found = np.mean([evaluations(dirty, X, y) for X, y in new_tasks()])
    assert found <= 1.4 * usual + 1.5  # an evaluation or two tell the kind


def test_values_tell_the_kind(history):
    """The optimizer says which kind a new task is like, and it is the right one."""
    dirty, kept = changed(history, upside_down)
    prior = learn_prior(dirty, certify="none")
    right = 1 + [set(kind.tasks) == kept for kind in prior.kinds].index(True)
    cases = ((task, *case) for task in new_tasks(2) for case in ((1, right), (-1, 3 - right)))
    for (X, y), sign, like in cases:
        optimizer = prior.optimizer(X, rng=np.random.default_rng(0))
        assert sum(optimizer.kinds.values()) == pytest.approx(1)
        for x, value in zip(X[:8].tolist(), sign * y[:8], strict=True):
            optimizer.tell(dict(zip(prior.space.names, x, strict=True)), value)
        assert optimizer.kinds[f"kind {like}"] > 0.5
        assert f"most like kind {like}" in repr(optimizer)


def test_a_prior_with_kinds_is_stored_whole(history, tmp_path):
    prior = learn_prior(changed(history, mirrored)[0], certify="none")
    prior.save(tmp_path / "prior.json")
    again = Prior.load(tmp_path / "prior.json")
    assert str(again) == str(prior)
    X, y = next(new_tasks())
    asked = []
    for each in (prior, again):
        optimizer = each.optimizer(X, rng=np.random.default_rng(0))
        for _ in range(5):
            x = optimizer.ask()
            asked.append(x)
            optimizer.tell(x, y[np.flatnonzero((list(x.values()) == X).all(axis=1))[0]])
    assert asked[:5] == asked[5:]


def test_groups_do_not_depend_on_the_order_of_tasks():
    rng = np.random.default_rng(0)
    sides = np.array([1.0] * 6 + [-1.0] * 5)
    R = 0.6 * np.outer(sides, sides) + 0.1 * rng.standard_normal((11, 11))
    R = (R + R.T) / 2
    np.fill_diagonal(R, 0)
    order = rng.permutation(11)
    one = {frozenset(group.tolist()) for group in find_kinds(R)}
    other = {frozenset(order[group].tolist()) for group in find_kinds(R[np.ix_(order, order)])}
    assert one == other == {frozenset(range(6)), frozenset(range(6, 11))}


def test_few_tasks_and_tasks_without_affinity_are_one_group():
    for R in (np.zeros((1, 1)), np.zeros((5, 5)), np.zeros((12, 12)), np.ones((4, 4)) - np.eye(4)):
        (group,) = find_kinds(R)
        assert len(group) == len(R)
