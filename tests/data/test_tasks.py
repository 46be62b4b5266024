"""History and Task: what goes in comes out, checked once, with errors that say where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import metakel as mk
from gpucb import gpucb
from metakel import History, InputError, Task
from metakel.errors import ShapeError


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


def test_what_a_mask_hides_is_not_learned_from():
    X, y = np.ones((3, 2)), np.arange(3.0)
    hidden = [(np.ma.array(X, mask=X > 0), y), (X, np.ma.array(y, mask=y > 1))]
    for pair in hidden:
        with pytest.raises(InputError, match="is masked in places"):
            History.from_pairs([(X, y), pair])
    shown = History.from_pairs([(np.ma.array(X), np.ma.array(y, mask=False))])
    assert_array_equal(shown[0].y, y)


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
        (np.zeros((3, 1)), np.zeros((1, 3)), ShapeError, r"y has shape \(1, 3\)"),
        (np.zeros((3, 1)), np.zeros((3, 2)), ShapeError, r"y has shape \(3, 2\)"),
        (np.zeros((3, 1)), np.zeros((2, 1)), ShapeError, r"y has shape \(2, 1\)"),
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


def test_a_label_of_pandas_that_is_missing_is_named_by_its_row():
    pandas = pytest.importorskip("pandas")
    for labels in (["a", pandas.NA, "b"], ["a", None, "b"], [1.0, float("nan"), 2.0]):
        with pytest.raises(InputError, match="row 1 has no task label"):
            History.from_arrays(np.zeros((3, 1)), np.zeros(3), labels)


def test_a_column_of_values_is_read_as_a_vector(rng):
    x, y = np.linspace(-1, 1, 6), rng.normal(size=6)
    for task in (
        Task(x, y[:, None]),
        History.from_pairs([(x, y[:, None])])[0],
        History.from_arrays(x, y[:, None], ["a"] * 6)[0],
    ):
        assert_array_equal(task.y, y)
    kernel = mk.KernelSum.uniform(mk.kernels.legendre(2, scaling="l2"))
    assert_array_equal(mk.posterior(kernel, x, y[:, None], noise_var=1.0).y, y)
    optimizer = gpucb(kernel, mk.box([(-1, 1)]), rng=rng, noise_std=0.1, norm_bound=1)
    optimizer.tell(x, y[:, None])
    assert_array_equal(optimizer.y, y)


TABLE = {
    "data": ["a", "a", "b", "b", "c", "c"],
    "rate": [0.1, 0.2, 0.15, 0.3, 0.1, 0.3],
    "loss": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
NAMED = {"task": "data", "output": "loss", "minimize": True}


def test_a_slice_of_a_history_is_a_history_that_can_be_learned_from():
    history = History.from_frame(TABLE, **NAMED)
    for chosen in (slice(2), slice(1, None), slice(None, None, -2), slice(-1, None)):
        part = history[chosen]
        assert isinstance(part, History)
        assert part.tasks == history.tasks[chosen]
        assert (part.space, part.report) == (history.space, history.report)
    assert isinstance(history[-1], Task)
    with pytest.raises(InputError, match="at least one task"):
        history[3:]
    with pytest.raises(IndexError):
        history[3]
    many = History.from_pairs(pairs([30] * 6, d0=1))
    learned = mk.learn_kernel(
        many[:4], mk.kernels.squared_exponential([0.1, 1.0]), lam=1e-3, noise_std=1
    )
    assert learned.history.m == 4


def test_tasks_may_stand_among_the_pairs_and_keep_their_names():
    history = History.from_pairs(pairs([3] * 4))
    again = History.from_pairs([history[2], *pairs([2]), history[1]])
    assert again[0] is history[2]
    assert [task.name for task in again] == ["task 2", "task 1", "task 1 (2)"]
    assert_array_equal(again[2].y, history[1].y)
    assert History.from_pairs(history).tasks == history.tasks


@given(m=st.integers(2, 8), data=st.data())
def test_parts_of_a_history_join_to_the_whole(m, data):
    history = History.from_frame(TABLE, **NAMED) if m == 3 else History.from_pairs(pairs([3] * m))
    cut = data.draw(st.integers(1, history.m - 1))
    whole = history[:cut] + history[cut:]
    assert whole.tasks == history.tasks
    assert (whole.space, whole.report) == (history.space, history.report)


def test_joined_histories_have_every_task_under_a_name_of_its_own_and_both_reports():
    first, second = (History.from_pairs(pairs([3] * 3, seed=seed)) for seed in (0, 1))
    both = first + second
    assert both.tasks[:3] == first.tasks
    assert [task.name for task in both[3:]] == ["task 0 (2)", "task 1 (2)", "task 2 (2)"]
    assert_array_equal(both[4].y, second[1].y)
    ours = History.from_frame(TABLE, **NAMED)
    more = {**TABLE, "data": [*"ddeef", None], "loss": [1, 2, 3, 4, float("nan"), 6]}
    theirs = History.from_frame(more, **NAMED, space=ours.space)
    report = (ours + theirs).report
    assert (report.rows, report.kept, report.failed, report.missing_tasks) == (12, 10, 1, 1)


def test_histories_over_other_parameters_join_over_those_that_both_have():
    ours = History.from_frame(TABLE, **NAMED)
    wide = mk.Space.from_toml("[rate]\ntype='float'\nlow=0.1\nhigh=0.7")
    theirs = History.from_frame({**TABLE, "data": list("ddeeff")}, **NAMED, space=wide)
    both = ours + theirs
    assert both.space == wide
    for before, after in zip((*ours, *theirs), both, strict=True):
        own = ours.space if before in ours.tasks else wide
        rates = [row["rate"] for row in own.decode(before.X)]
        assert [r["rate"] for r in wide.decode(after.X)] == pytest.approx(rates)
    more = {**TABLE, "data": list("ddeeff"), "depth": [1, 2, 1, 3, 2, 3]}
    joined = ours + History.from_frame(more, **NAMED)
    assert joined.space.names == ("rate",)
    assert "left out: depth is in one of the joined histories only" in str(joined)


def test_histories_whose_numbers_mean_something_else_do_not_join():
    ours = History.from_frame(TABLE, **NAMED)
    other = {**TABLE, "data": list("ddeeff")}
    choices = History.from_frame(other, **NAMED, categories=["rate"])
    with pytest.raises(InputError, match=r"'rate' is float .* in the first history and one of"):
        ours + choices
    with pytest.raises(InputError, match="over plain numbers"):
        ours + History.from_pairs(pairs([3], d0=1))
    with pytest.raises(InputError, match="'loss' is minimised and 'loss' is maximised"):
        ours + History.from_frame(other, task="data", output="loss", minimize=False)
    with pytest.raises(ShapeError, match="has 3 inputs but task 0 has 2"):
        History.from_pairs(pairs([3])) + History.from_pairs(pairs([3], d0=3))
    with pytest.raises(InputError, match=r"2 of 2 tasks are in both .* 'b'; expected every task"):
        ours + ours[1:]
    with pytest.raises(TypeError):
        ours + ours.tasks


@pytest.mark.parametrize(
    "wrong", [pairs([3, 3]), np.zeros((2, 3)), Task([0.0], [0.0]), [Task([0.0], [0.0]), 1], 3]
)
def test_what_is_no_tuple_of_tasks_is_sent_to_from_pairs(wrong):
    with pytest.raises(InputError, match=r"found a .* takes a tuple of Task .*from_pairs"):
        History(wrong)


def test_a_history_takes_tasks_one_after_the_other():
    history = History.from_pairs(pairs([3] * 3))
    assert History(task for task in history).tasks == history.tasks


@pytest.mark.parametrize(("rng", "seed"), [(0, 0), (np.int64(7), 7), ("x", 0), (None, 0)])
def test_a_seed_is_no_generator_and_the_message_says_how_to_make_one(rng, seed):
    history = History.from_pairs(pairs([3] * 4))
    space = History.from_frame(TABLE, **NAMED).space
    asked = [
        lambda: mk.kernels.random_fourier(4, 1, lengthscales=0.3, rng=rng),
        lambda: space.sample(rng, 3),
        lambda: mk.box([(0, 1)]).sample(rng, 2),
        lambda: mk.grid([(0, 1)], 3).sample(rng, 2),
        lambda: mk.grid([(0, 1)], 3).maximize(lambda X: X[:, 0], rng),
    ]
    if rng is not None:
        asked.append(lambda: history.folds(2, rng=rng))  # before the first fold is asked for
    for ask in asked:
        with pytest.raises(InputError, match=rf"rng is .*Generator, as .*default_rng\({seed}\)"):
            ask()


@pytest.mark.parametrize("option", ["input", "output_", "maximize"])
def test_an_unknown_option_is_named_with_those_there_are(option):
    with pytest.raises(
        InputError, match=f"from_frame .* no option '{option}'; expected inputs, exclude, m"
    ):
        History.from_frame(TABLE, task="data", output="loss", minimize=True, **{option: ["rate"]})


def conditional(name, kinds, momenta):
    rows = {"data": [name] * 12, "kind": kinds * 4, "momentum": momenta * 4, "rate": range(12)}
    return History.from_frame({**rows, "loss": np.arange(12.0) % 5}, **NAMED)


def test_joined_histories_keep_what_is_there_only_with_a_choice():
    ours = conditional("a", ["sgd", "adam", "adam"], [0.5, None, None])
    ours = ours + conditional("b", ["sgd", "adam", "sgd"], [0.9, None, 0.1])
    assert [c.values for c in ours.space.conditions] == [("sgd",)]
    runs = [ours.space.decode(task.X) for task in ours]
    assert [run.get("momentum") for run in runs[0][:3]] == [pytest.approx(0.5), None, None]
    assert all((ours.space.settled(task.X) == task.X).all() for task in ours)
    # Where it is always there, it is there with all choices of that history.
    both = ours + conditional("c", ["sgd", "rms", "sgd"], [0.2, 0.3, 2.0])
    assert [set(c.values) for c in both.space.conditions] == [{"sgd", "rms"}]
    runs = [both.space.decode(task.X) for task in both]
    assert [run.get("momentum") for run in runs[1][:3]] == [
        pytest.approx(0.9),
        None,
        pytest.approx(0.1),
    ]
    assert [run["momentum"] for run in runs[2][:3]] == pytest.approx([0.2, 0.3, 2.0])
