"""Several tables read as one."""

from __future__ import annotations

import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.space import Categorical, Float

FIRST = "data,rate,depth,score\na,0.1,1,5\na,0.2,2,6\nb,0.3,3,7\nb,0.15,1,4\n"
SECOND = "data;rate;drop;score\nc;0,5;0,25;5,5\nc;1,5;0,5;6\nd;0,7;0,1;6\nd;0,9;0,2;6,5\n"
WANTED = {"task": "data", "output": "score"}


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path, text in zip(paths, (FIRST, SECOND), strict=True):
        path.write_text(text)
    return paths


def test_rows_of_both_are_there_and_what_only_one_has_is_left_out(files):
    history = History.from_csv(files, **WANTED)
    assert [task.name for task in history] == list("abcd")
    assert history.space.names == ("rate",)
    assert sum("is not recorded in 2 of 4 tasks" in note for note in history.report.notes) == 2
    rates = [row["rate"] for task in history for row in history.space.decode(task.X)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.15, 0.5, 1.5, 0.7, 0.9])
    assert "read 8 of 8 rows from one.csv and two.csv" in str(history.report)
    assert any(note.startswith("two.csv: ") for note in history.report.notes)


def test_a_default_says_what_a_file_without_the_column_used(files):
    history = History.from_csv(files, **WANTED, defaults={"drop": 0.0, "depth": 2})
    assert history.space.names == ("rate", "depth", "drop")
    assert [row["drop"] for row in history.space.decode(history[0].X)] == [0.0, 0.0]


def test_tables_of_one_make_are_as_one_table():
    rng = np.random.default_rng(0)
    rows = {
        "data": [f"t{i % 4}" for i in range(40)],
        "rate": rng.uniform(size=40).round(3),
        "kind": rng.choice(["u", "v", "w"], 40).tolist(),
        "score": rng.uniform(size=40),
    }
    parts = [{k: v[:17] for k, v in rows.items()}, {k: v[17:] for k, v in rows.items()}]
    one, two = History.from_frame(rows, **WANTED), History.from_frame(parts, **WANTED)
    assert one.space == two.space
    for a, b in zip(one, two, strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.X, b.X)
        np.testing.assert_array_equal(a.y, b.y)


def test_a_task_of_two_tables_that_record_other_columns_is_one_task_in_each():
    one = {"data": ["a", "a"], "rate": [0.1, 0.2], "score": [1.0, 2.0]}
    two = {"data": ["a", "a"], "rate": [0.3, 0.4], "depth": [1, 2], "score": [1.0, 2.0]}
    history = History.from_frame([one, two], **WANTED)
    assert [task.n for task in history] == [2, 2]
    assert "1 tasks are in several tables" in str(history.report)


def test_numbers_and_whole_numbers_join_and_flags_stay_flags():
    one = {"data": ["a", "a"], "rate": [1, 2], "on": [True, False], "score": [1.0, 2.0]}
    two = {"data": ["b", "b"], "rate": [0.5, 4.5], "on": [True, False], "score": [1.0, 2.0]}
    space = History.from_frame([one, two], **WANTED).space
    assert isinstance(space["rate"], Float)
    assert (space["rate"].low, space["rate"].high) == (0.5, 4.5)
    assert space["on"] == Categorical("on", (False, True))


def test_mistakes_name_the_file(files):
    files[1].write_text("data,rate\nc,1\n")
    with pytest.raises(InputError, match=r"two\.csv has no column 'score'; found data, rate"):
        History.from_csv(files, **WANTED)
    files[1].write_text("data,rate,score\nc,1,5\nc,2,0.9x\n")
    with pytest.raises(InputError, match=r"'0.9x' in line 3 of two\.csv"):
        History.from_csv(files, **WANTED)
    with pytest.raises(InputError, match="found no table"):
        History.from_csv([], **WANTED)


def test_few_tasks_without_a_parameter_are_left_out_themselves():
    rng = np.random.default_rng(1)
    rows = {
        "data": [f"t{i % 6}" for i in range(48)],
        "rate": rng.uniform(size=48),
        "depth": [None if i % 6 == 5 else float(rng.integers(1, 9)) for i in range(48)],
        "score": rng.uniform(size=48),
    }
    history = History.from_frame(rows, **WANTED)
    assert (history.m, history.space.names) == (5, ("rate", "depth"))
    assert "1 of 6 tasks are left out, as all of their rows are: t5" in str(history.report)
