"""Histories and new tasks that are not clean: what must not change, and by how much."""

from __future__ import annotations

import numpy as np
import pytest
from histories import draw_task, simulate

from metakel import datasets, learn_prior
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.optimize.model import Score
from metakel.optimize.optimizer import Optimizer
from metakel.priors.standardize import without_failures
from metakel.search import candidates


@pytest.fixture(scope="module")
def history():
    return simulate(np.random.default_rng(20))


def asked(prior, X, y, steps=15):
    """Rows in the order in which they are asked for."""
    optimizer = Optimizer(
        prior.task_model(), candidates(X, repeat=False), rng=np.random.default_rng(0)
    )
    number = {x.tobytes(): i for i, x in enumerate(X)}
    rows = []
    for _ in range(steps):
        x = optimizer.ask()
        rows.append(number[x.tobytes()])
        optimizer.tell(x, y[rows[-1]])
    return rows


def new_task(seed, n=150):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.9, 0.9, (n, 2))
    return X, draw_task(rng)(X)


# Level and scale of the new task


def evaluations(prior, X, y, steps=25):
    """How many it takes to come within 5 % of the spread between best and median."""
    good = y >= y.max() - 0.05 * (y.max() - np.median(y))
    found = good[asked(prior, X, y, steps)]
    return int(np.argmax(found)) + 1 if found.any() else steps


def test_far_from_past_levels_adding_a_constant_changes_nothing_that_is_asked(history):
    prior = learn_prior(history, certify="none")
    for seed in range(3):
        X, y = new_task(seed)
        rows = asked(prior, X, y + 64)
        for shift in (-64, 128, 1024):
            assert asked(prior, X, y + shift) == rows


@pytest.mark.parametrize("change", [lambda y: y + 20, lambda y: y - 8, lambda y: y + 1e4])
def test_a_new_task_at_another_level_is_searched_as_well(history, change):
    prior = learn_prior(history, certify="none")
    tasks = [new_task(seed) for seed in range(6)]
    usual = np.mean([evaluations(prior, X, y) for X, y in tasks])
    moved = np.mean([evaluations(prior, X, change(y)) for X, y in tasks])
    assert moved <= 1.25 * usual + 0.5


def test_the_top_of_a_peak_is_no_other_level_but_another_level_is():
    """Past tasks are flat with a peak at the same place, where the first value is asked for."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    top = np.exp(-(((X - X[0]) / 0.3) ** 2).sum(axis=1))
    heights = rng.uniform(0.7, 1.3, 13)
    pairs = [(X, height * top + 0.01 * rng.standard_normal(60)) for height in heights]
    prior = learn_prior(History.from_pairs(pairs[:-1]), certify="none")
    y = pairs[-1][1]
    for shift, reason in ((0.0, None), (4.0, "the first value is far from those of all past")):
        optimizer = prior.optimizer(X)
        x = optimizer.ask()
        row = int(np.argmin(np.abs(X - list(x.values())).sum(axis=1)))
        optimizer.tell(x, y[row] + shift)
        if reason is None:
            assert y[row] > prior.model.level + 4 * prior.model.scale
            assert optimizer.alarm is None
        else:
            assert optimizer.alarm is not None
            assert optimizer.alarm.reason.startswith(reason)


@pytest.mark.parametrize("factor", [0.1, 10.0, 0.01])
def test_a_new_task_of_another_scale_is_searched_as_well(history, factor):
    prior = learn_prior(history, certify="none")
    tasks = [new_task(seed) for seed in range(6)]
    usual = np.mean([evaluations(prior, X, y) for X, y in tasks])
    moved = np.mean([evaluations(prior, X, y.mean() + factor * (y - y.mean())) for X, y in tasks])
    assert moved <= 1.25 * usual + 0.5


# A wild past task


def test_one_wild_task_hardly_moves_what_is_asked(history):
    tasks = list(history)
    wild = Task(tasks[0].X, 1e4 * tasks[0].y + 1e6)
    clean, dirty = (
        learn_prior(history, certify="none"),
        learn_prior(History((wild, *tasks[1:])), certify="none"),
    )
    for seed in range(3):
        X, y = new_task(seed)
        same = set(asked(clean, X, y)) & set(asked(dirty, X, y))
        assert len(same) >= 10  # of 15


def test_an_own_score_that_is_nan_is_an_error_that_names_the_acquisition(history):
    prior = learn_prior(history, certify="none")
    X, y = new_task(0)

    def sometimes(model, best):
        return Score(lambda Z: np.where(Z[:, 0] > 0, np.nan, Z[:, 0]))

    optimizer = prior.optimizer(X, acquisition=sometimes)
    optimizer.tell(dict(zip(prior.space.names, X[0].tolist(), strict=True)), float(y[0]))
    with pytest.raises(InputError, match=r"acquisition sometimes is nan at \d+ of \d+ points"):
        optimizer.ask()


# Failed runs recorded as a number


def with_failures(history, rng, share=0.1, value=-1e4):
    def spoiled(task):
        failed = rng.uniform(size=task.n) < share
        return Task(task.X, np.where(failed, value, task.y), task.name)

    return History(tuple(spoiled(task) for task in history))


def test_failures_recorded_as_a_very_bad_number_are_left_out_and_noted(history):
    dirty = with_failures(history, np.random.default_rng(0))
    failed = sum(int((task.y == -1e4).sum()) for task in dirty)
    prior = learn_prior(dirty, certify="none")
    assert prior.helps
    assert prior.info.notes[-1].startswith(f"{failed} runs of ")
    assert prior.info.runs == dirty.total
    clean = learn_prior(history, certify="none")
    assert prior.model.level == pytest.approx(clean.model.level, abs=0.3 * clean.model.scale)
    X = np.random.default_rng(1).uniform(-0.9, 0.9, (200, 2))
    assert np.corrcoef(prior.mean(X), clean.mean(X))[0, 1] > 0.97
    assert prior.norm_bound(0.5) < 2 * clean.norm_bound(0.5)


def test_a_clean_history_has_no_failures(history):
    assert without_failures(history) == (history, "")
    glmnet = datasets.load_glmnet()  # in many of its tasks the worst value, 0.5, is frequent
    assert without_failures(glmnet) == (glmnet, "")


@pytest.mark.parametrize("where", ["edge", "center"])
def test_failures_that_lie_together_say_where_not_to_look(history, where):
    def crashed(X):
        return X[:, 0] < -0.7 if where == "edge" else np.abs(X).max(axis=1) < 0.35

    dirty = History(tuple(Task(t.X, np.where(crashed(t.X), -1e4, t.y)) for t in history))
    assert without_failures(dirty)[0] is dirty


def test_one_failure_per_task_is_found_by_its_number(history):
    rng = np.random.default_rng(3)
    tasks = []
    for task in history:
        y = task.y.copy()
        y[rng.integers(len(y))] = -1e4
        tasks.append(Task(task.X, y))
    kept, note = without_failures(History(tuple(tasks)))
    assert kept.total == history.total - history.m
    assert note


def test_failures_are_found_in_tasks_half_of_whose_values_are_equal(history):
    flat = History(tuple(Task(t.X, np.maximum(t.y, np.quantile(t.y, 0.8))) for t in history))
    kept, note = without_failures(with_failures(flat, np.random.default_rng(0)))
    assert note
    assert min(task.y.min() for task in kept) > -1e4
    assert without_failures(flat) == (flat, "")


# A history that says nothing


def test_shuffled_values_of_a_real_table_are_a_cold_start_however_they_are_shuffled():
    """Only level and scale are left of them, which shuffling within tasks does not change."""
    data, found = datasets.load_glmnet(), []
    new = data.tasks[20]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        past = [Task(t.X[::20], rng.permutation(t.y[::20]), t.name) for t in data.tasks[:16]]
        prior = learn_prior(History(tuple(past), data.space), certify="none")
        assert not prior.helps
        found.append(asked(prior, new.X[::4], new.y[::4]))
    assert found[0] == found[1] == found[2]
