"""History and Task: what goes in comes out, checked once, with errors that say where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from metakel import History, InputError, ShapeError, Task


def pairs(sizes, d0=2, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(n, d0)), rng.normal(size=n)) for n in sizes]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_from_arrays_is_from_pairs_whatever_the_order_of_rows(sizes):
    data = pairs(sizes)
    X, y = np.concatenate([X for X, _ in data]), np.concatenate([y for _, y in data])
    label = np.repeat([f"t{s}" for s in range(len(sizes))], sizes)
    order = np.argsort(np.concatenate([np.arange(n) for n in sizes]), kind="stable")
    history = History.from_arrays(X[order], y[order], label[order])
    assert {t.name for t in history} == set(label)
    for task in history:
        expected = data[int(task.name[1:])]
        assert_array_equal(task.X, expected[0])
        assert_array_equal(task.y, expected[1])
    assert history.total == sum(sizes)


@given(st.integers(2, 9), st.floats(0.05, 0.95), st.integers(0, 2**20))
def test_split_parts_the_tasks_without_loss(m, fraction, seed):
    history = History.from_pairs(pairs([3] * m))
    first, second = history.split(np.random.default_rng(seed), fraction=fraction)
    assert len(first) >= 1
    assert len(second) >= 1
    names = sorted(t.name for part in (first, second) for t in part)
    assert names == sorted(t.name for t in history)


@given(m=st.integers(2, 12), count=st.integers(2, 6), seed=st.none() | st.integers(0, 99))
def test_folds_hold_every_task_out_once(m, count, seed):
    assume(count <= m)
    history = History.from_pairs(pairs([3] * m))
    rng = None if seed is None else np.random.default_rng(seed)
    folds = list(history.folds(count, rng=rng))
    assert len(folds) == count
    for teachers, held in folds:
        assert held.m in (m // count, m // count + 1)
        assert sorted(t.name for t in (*teachers, *held)) == sorted(t.name for t in history)
    held_out = [task.name for _, held in folds for task in held]
    assert sorted(held_out) == sorted(task.name for task in history)


@pytest.mark.parametrize("count", [1, 4])
def test_folds_are_two_or_more_and_have_a_task_each(count):
    with pytest.raises(InputError, match=f"{count} folds of 3 tasks; expected 2"):
        next(History.from_pairs(pairs([3] * 3)).folds(count))


def test_split_depends_on_the_generator_only():
    history = History.from_pairs(pairs([3] * 10))
    a, b, c = (history.split(np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    assert [t.name for t in a] == [t.name for t in b]
    assert [t.name for t in a] != [t.name for t in c]


def test_a_vector_of_points_has_one_input():
    assert Task([0.0, 1.0], [1.0, 2.0]).d0 == 1


def test_the_callers_arrays_are_copied_and_ours_are_frozen():
    X, y = np.zeros((2, 1)), np.zeros(2)
    task = Task(X, y)
    X[0] = 5
    assert task.X[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        task.y[0] = 1


def test_summary_names_sizes_ranges_and_constant_tasks():
    history = History.from_pairs([*pairs([3, 5]), (np.zeros((2, 2)), np.ones(2))])
    text = str(history)
    assert "3 tasks" in text
    assert "2 to 5 each" in text
    assert "constant values in: task 2" in text
    assert repr(history) == "History(m=3, n=2 to 5, d0=2)"


@pytest.mark.parametrize(
    ("X", "y", "error", "words"),
    [
        (np.zeros((3, 1)), np.zeros(2), ShapeError, "3 rows but y has shape"),
        (np.zeros((2, 2, 2)), np.zeros(2), ShapeError, "expected \\(n, d0\\)"),
        (np.zeros((2, 0)), np.zeros(2), ShapeError, "d0 >= 1"),
        ([[0.0], [np.nan]], np.zeros(2), InputError, r"task 0: X holds nan at index \(1, 0\)"),
        ([[0.0], [1.0]], [0.0, np.inf], InputError, "task 0: y holds inf at index 1"),
        (np.zeros((0, 1)), np.zeros(0), InputError, "task 0 is empty"),
        ([["a"]], [1.0], InputError, "cannot be read as an array of numbers"),
    ],
)
def test_bad_tasks_are_refused_with_what_was_found_and_where(X, y, error, words):
    with pytest.raises(error, match=words):
        History.from_pairs([(X, y)])


def test_bad_histories_are_refused():
    with pytest.raises(InputError, match="at least one task"):
        History.from_pairs([])
    with pytest.raises(InputError, match="expected a pair"):
        History.from_pairs([np.zeros(3)])
    with pytest.raises(ShapeError, match="task 1 has 3 inputs but task 0 has 2"):
        History.from_pairs([*pairs([3]), *pairs([3], d0=3)])
    with pytest.raises(ShapeError, match="2 rows but task has 3 labels"):
        History.from_arrays(np.zeros((2, 1)), np.zeros(2), ["a", "b", "c"])
    with pytest.raises(InputError, match="row 1 has no task label"):
        History.from_arrays(np.zeros((2, 1)), np.zeros(2), ["a", None])
    with pytest.raises(InputError, match="cannot be split"):
        History.from_pairs(pairs([3])).split(np.random.default_rng(0))
    with pytest.raises(InputError, match="between 0 and 1"):
        History.from_pairs(pairs([3, 3])).split(np.random.default_rng(0), fraction=1.0)


def test_a_label_of_pandas_that_is_missing_is_named_by_its_row():
    pandas = pytest.importorskip("pandas")
    for labels in (["a", pandas.NA, "b"], ["a", None, "b"], [1.0, float("nan"), 2.0]):
        with pytest.raises(InputError, match="row 1 has no task label"):
            History.from_arrays(np.zeros((3, 1)), np.zeros(3), labels)
