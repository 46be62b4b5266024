"""`LearnedKernel.update` takes tasks that speak of the same things, once."""

from __future__ import annotations

import numpy as np
import pytest

import metakel as mk
from metakel.space import Float

BASE = mk.kernels.tensor_product(2, 3, scaling="l2")


def table(seed, *, tasks=4, names=("x", "z"), high=1.0):
    """Columns of a few tasks with two inputs between 0 and ``high``."""
    rng = np.random.default_rng(seed)
    n = 12 * tasks
    inputs = {name: rng.uniform(0, high, n) for name in names}
    y = inputs[names[0]] ** 2 / high**2 + 0.1 * rng.normal(size=n)
    label = [f"{seed}-{i % tasks}" for i in range(n)]
    return {"ds": label, **inputs, "y": y}


def space(high=1.0, names=("x", "z")):
    return mk.Space(tuple(Float(name, 0.0, high) for name in names))


def read(columns, **options):
    return mk.History.from_frame(columns, task="ds", output="y", **options)


def learned(history):
    return mk.learn_kernel(history, BASE, noise_std=0.1)


def test_tasks_over_the_same_space_are_added():
    old, new = read(table(1), space=space()), read(table(2), space=space())
    updated = learned(old).update(new)
    assert updated.history.m == old.m + new.m
    assert updated.history.space == old.space


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (table(2, high=100.0), {"space": space(100.0)}, "another search space.*space=learned"),
        (table(2, names=("x", "w")), {"space": space(names=("x", "w"))}, "'w'"),
        (table(2), {"space": space(names=("z", "x"))}, "another order"),
        (table(2), {"space": space(), "minimize": True}, "is minimised, but.*maximised"),
    ],
    ids=["range", "names", "order", "direction"],
)
def test_tasks_that_mean_something_else_are_refused(columns, options, words):
    begin = learned(read(table(1), space=space()))
    with pytest.raises(mk.InputError, match=words):
        begin.update(read(columns, **options))


def test_named_parameters_are_not_mixed_with_bare_numbers_unless_the_user_says_so():
    old, new = read(table(1), space=space()), read(table(2), space=space())
    begin = learned(mk.History(old.tasks))
    with pytest.raises(mk.InputError, match=r"History\(new.tasks\)"):
        begin.update(new)
    assert begin.update(mk.History(new.tasks)).history.m == 8
    pairs = [(task.X, task.y) for task in new]
    assert learned(old).update(pairs).history.space == old.space


def test_a_task_does_not_count_twice():
    old = read(table(1), space=space())
    begin = learned(old)
    with pytest.raises(mk.InputError, match="4 of 4 new tasks were already used"):
        begin.update(read(table(1), space=space()))
    both = mk.History((*read(table(2), space=space()).tasks, old[1]), space=space())
    with pytest.raises(mk.InputError, match=r"1 of 5 .* e\.g\. '1-1'"):
        begin.update(both)


def test_equal_values_of_different_tasks_are_welcome():
    """One by one, as in a long run: nothing happened in either of them."""
    X = np.linspace(-1, 1, 10)
    found = mk.learn_kernel(
        mk.History.from_pairs([(X, X**2)]), mk.kernels.legendre(4, scaling="l2"), noise_std=0.1
    )
    for _ in range(2):
        found = found.update([(X, np.zeros(10))])
    assert [task.name for task in found.history] == ["task 0", "task 1", "task 2"]


def test_tasks_keep_their_names_beside_pairs_that_get_one():
    X = np.linspace(-1, 1, 10)
    found = mk.learn_kernel(
        mk.History.from_pairs([(X, X**2)]), mk.kernels.legendre(4, scaling="l2"), noise_std=0.1
    )
    more = found.update([mk.Task(X, X, "named"), (X, X**3)])
    assert [task.name for task in more.history] == ["task 0", "named", "task 2"]
    with pytest.raises(mk.InputError, match=r"1 of 1 new tasks .* 'named'"):
        more.update([mk.Task(X, X, "named")])


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (mk.Task([[0.1, 0.2]], [1.0], name="d7"), r"one Task, 'd7'.*History\(\(task,\)\)"),
        (3, "int"),
    ],
)
def test_what_is_no_history_is_named(new, words):
    with pytest.raises(mk.InputError, match=words):
        learned(read(table(1), space=space())).update(new)
