"""Histories in which some tasks did not record a parameter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metakel import learn_kernel, learn_prior
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.kernels import matern
from metakel.priors import Prior
from metakel.priors.standardize import DRAWS, fillings, standardize
from metakel.space import Float, Space

SPACE = Space((Float("x", -1, 1), Float("z", -1, 1), Float("u", -1, 1)))


def draw(rng):
    """A task of three inputs; its best u is near 0.5 and its best x near 0.4."""
    level, a, b = rng.normal(0, 2), rng.normal(0, 0.3), rng.normal(0, 0.3)
    return lambda X: (
        level
        - (X[:, 0] - 0.4 - 0.3 * a) ** 2
        - 0.5 * np.abs(X[:, 1] + 0.2)
        - 0.5 * (X[:, 2] - 0.5) ** 2
        + b * X[:, 0] * X[:, 1]
    )


def past(rng, complete, lacking, n=12):
    """Tasks with u, and tasks that ran at some u each and did not write it down."""
    tasks = []
    for s in range(complete + lacking):
        f, X = draw(rng), rng.uniform(-1, 1, (n, 3))
        if s >= complete:
            X[:, 2] = rng.uniform(-1, 1)
        lacks = (2,) if s >= complete else ()
        tasks.append(Task(X, f(X) + 0.01 * rng.standard_normal(n), f"task {s}", lacks))
    return History(tuple(tasks), SPACE)


def regret(prior, seed, steps=6):
    """Mean regret over the first evaluations on a new task, in units of its spread."""
    rng = np.random.default_rng([7, seed])
    f, X = draw(rng), rng.uniform(-1, 1, (300, 3))
    y = f(X)
    optimizer, best = prior.optimizer(SPACE.decode(X)), []
    for _ in range(steps):
        x = optimizer.ask()
        value = float(f(SPACE.encode([x]))[0])
        optimizer.tell(x, value)
        best.append(max([value, *best]))
    return float(np.mean(y.max() - np.array(best)) / y.std())


def test_tasks_that_lack_a_parameter_teach_the_rest():
    """Against the complete tasks alone, and against a history without the parameter."""
    with_all, alone = [], []
    for seed in range(4):
        history = past(np.random.default_rng(seed), complete=2, lacking=10)
        for part, found in ((history, with_all), (replace(history, tasks=history.complete), alone)):
            prior = learn_prior(part, certify="none")
            found.append(np.mean([regret(prior, 10 * seed + k) for k in range(4)]))
    assert np.mean(with_all) < np.mean(alone)


def test_the_parameter_is_learned_from_the_tasks_that_have_it():
    history = past(np.random.default_rng(1), complete=6, lacking=6)
    mean = learn_prior(history, certify="none").mean
    at = [{"x": 0.4, "z": -0.2, "u": u} for u in (-0.9, 0.5)]
    low, high = mean(at)
    assert high > low


def test_the_unknown_value_does_not_matter():
    """Whatever stands in the column of a parameter that a task lacks."""
    history = past(np.random.default_rng(2), complete=3, lacking=3)
    other = replace(
        history,
        tasks=tuple(
            Task(np.where([False, False, bool(t.lacks)], 0.77, t.X), t.y, t.name, t.lacks)
            for t in history
        ),
    )
    probes = SPACE.decode(np.random.default_rng(0).uniform(-1, 1, (20, 3)))
    first, second = (learn_prior(h, certify="none").mean(probes) for h in (history, other))
    np.testing.assert_array_equal(first, second)


def test_points_are_filled_with_values_that_other_tasks_recorded():
    history = past(np.random.default_rng(3), complete=2, lacking=1)
    tasks = standardize(history)
    assert fillings(tasks, 0, [0, 1]) == [tasks.X[0]]
    filled = fillings(tasks, 2, [0, 1])
    recorded = {*tasks.X[0][:, 2], *tasks.X[1][:, 2]}
    assert len(filled) == DRAWS
    for X in filled:
        np.testing.assert_array_equal(X[:, :2], tasks.X[2][:, :2])
        assert set(X[:, 2]) <= recorded
        assert len(set(X[:, 2])) == 1
    assert (fillings(tasks, 2, [2])[0][:, 2] == 0).all()  # nobody recorded it


def test_certificates_rest_on_tasks_that_lack_nothing(tmp_path):
    history = past(np.random.default_rng(4), complete=5, lacking=5)
    prior = learn_prior(history)
    assert len(prior.certificate.table.scores) == 5
    assert {*prior.best_runs.tasks} == {task.name for task in history.complete}
    prior.save(tmp_path / "prior.json")
    assert str(Prior.load(tmp_path / "prior.json")) == str(prior)


def test_a_history_of_which_every_task_lacks_something_is_learned_from():
    rng, tasks = np.random.default_rng(5), []
    for s in range(8):
        f, X = draw(rng), rng.uniform(-1, 1, (12, 3))
        lacks = (2,) if s % 2 else (1,)
        X[:, lacks[0]] = 0.0
        tasks.append(Task(X, f(X), f"task {s}", lacks))
    prior = learn_prior(History(tuple(tasks), SPACE))
    assert prior.best_runs is None
    assert prior.calibration is None
    assert "no past task" in prior.certificate.table
    assert set(prior.optimizer().ask()) == {"x", "z", "u"}


def test_what_needs_all_parameters_says_so():
    history = past(np.random.default_rng(6), complete=2, lacking=2)
    with pytest.raises(InputError, match=r"learn_kernel needs every parameter.*task 2, task 3"):
        learn_kernel(history, matern(2.5, 0.5, d0=3), lam=0.1)
    with pytest.raises(InputError, match="expected some of 0 to 2, and not all"):
        Task(np.zeros((1, 3)), np.zeros(1), lacks=(0, 1, 2))
