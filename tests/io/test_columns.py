"""What a column means: choices named none, labels, doubled names, roles, missing values."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metakel.data import History
from metakel.errors import InputError
from metakel.io import csv_columns
from metakel.io.columns import numbered
from metakel.space import Categorical, Float, Integer

WANTED = {"task": "ds", "output": "auc"}


def table(**changes):
    columns = {
        "ds": ["a"] * 4 + ["b"] * 4,
        "lr": [0.1, 0.2, 0.3, 0.4, 0.15, 0.25, 0.35, 0.45],
        "depth": [1, 2, 3, 4, 5, 6, 7, 8],
        "auc": [0.5, 0.6, 0.7, 0.8, 0.5, 0.6, 0.7, 0.9],
    }
    return {**columns, **changes}


def write(path, columns):
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("word", ["none", "None", "null", "NA", "n/a", "nan"])
def test_a_file_and_a_frame_agree_on_a_choice_named_like_nothing(tmp_path, word):
    columns = table(opt=[word, "adam"] * 4)
    file = History.from_csv(write(tmp_path / "runs.csv", columns), **WANTED)
    frame = History.from_frame(columns, **WANTED)
    assert file.report.kept == frame.report.kept == 8
    assert (
        file.space["opt"] == frame.space["opt"] == Categorical("opt", tuple(sorted(("adam", word))))
    )
    assert any(f"opt has the text {word!r}" in note for note in file.report.notes)


def test_among_numbers_such_a_word_is_a_missing_value_and_an_empty_cell_always_is(tmp_path):
    columns = table(
        depth=[1, "none", 3, "NA", 5, 6, "", 8], opt=["", "x", "y", "z", "x", "y", "z", "w"]
    )
    history = History.from_csv(write(tmp_path / "runs.csv", columns), **WANTED)
    assert isinstance(history.space["depth"], Integer)
    assert history.report.missing_inputs == 4
    assert history.space["opt"].values == ("w", "x", "y")


@given(st.lists(st.sampled_from(["1", "01", "1.0", "1e0", "+1", "x"]), min_size=1, max_size=12))
def test_task_labels_of_a_file_are_the_same_only_if_written_the_same(tmp_path_factory, labels):
    rows = {"ds": labels, "x": range(len(labels)), "auc": range(len(labels))}
    if len(labels) == 1:
        return  # one point spans no range
    path = write(tmp_path_factory.mktemp("labels") / "runs.csv", rows)
    history = History.from_csv(path, **WANTED, inputs=["x"])
    assert [task.name for task in history] == list(dict.fromkeys(labels))


def test_labels_of_two_types_that_read_alike_are_refused():
    with pytest.raises(InputError, match="task labels 1 and '1' are written alike"):
        History.from_frame(table(ds=[1] * 4 + ["1"] * 4), **WANTED)
    mixed = table(ds=[1] * 4 + [np.int64(1)] * 2 + ["2"] * 2)
    assert [t.name for t in History.from_frame(mixed, **WANTED)] == ["1", "2"]


def test_a_name_for_two_columns_is_refused_by_every_reader(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    (tmp_path / "runs.csv").write_text("ds,x,x,auc\na,1,2,3\na,2,3,4\n")
    frame = pandas.DataFrame([["a", 1, 2, 3.0], ["a", 2, 3, 4.0]], columns=["ds", "x", "x", "auc"])
    arrow = pyarrow.Table.from_arrays(
        [pyarrow.array(frame.iloc[:, i].tolist()) for i in range(4)], names=list(frame.columns)
    )
    for read in (
        lambda: History.from_csv(tmp_path / "runs.csv", **WANTED),
        lambda: History.from_frame(frame, **WANTED),
        lambda: History.from_frame(arrow, **WANTED),
        lambda: History.from_frame({"ds": "aa", 1: [1, 2], "1": [3, 4], "auc": [0, 1]}, **WANTED),
    ):
        with pytest.raises(InputError, match=r"several columns '(x|1)'"):
            read()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({**WANTED, "inputs": ["lr", "auc"]}, "'auc' is named as the output and as an input"),
        ({**WANTED, "inputs": ["lr", "ds"]}, "'ds' is named as the task and as an input"),
        ({**WANTED, "inputs": ["lr", "lr"]}, "'lr' is named as an input and as an input"),
        ({"task": "auc", "output": "auc"}, "'auc' is named as the task and as the output"),
        ({**WANTED, "inputs": "lr"}, r"inputs is the text 'lr'; expected names in a list"),
        ({**WANTED, "log": "lr"}, r"log is the text 'lr'; expected names in a list"),
        ({**WANTED, "log": ["opt"]}, "log scale asked for 'opt', which holds 'u'"),
        ({**WANTED, "defaults": {"zz": 3}}, "no column 'zz'; found ds"),
    ],
)
def test_a_column_has_one_role_and_names_come_in_lists(wanted, words):
    with pytest.raises(InputError, match=words):
        History.from_frame(table(opt=["u", "v"] * 4), **wanted)


def test_whole_numbers_stay_whole_beside_a_missing_one(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table(depth=[1, 2, None, 4, 5, 6, 7, 8]))
    assert frame["depth"].dtype.kind == "f"  # pandas has no whole number for "missing"
    frame.to_csv(tmp_path / "runs.csv", index=False)
    for history in (
        History.from_frame(frame, **WANTED),
        History.from_csv(tmp_path / "runs.csv", **WANTED),
    ):
        assert history.space["depth"] == Integer("depth", 1, 8)
        assert any("depth is taken as whole numbers" in note for note in history.report.notes)
    halves = History.from_frame(frame, **WANTED, defaults={"depth": 1.5})
    assert halves.space["depth"] == Float("depth", 1, 8)
    plain = History.from_frame(table(depth=[float(d) for d in range(1, 9)]), **WANTED)
    assert plain.space["depth"] == Float("depth", 1, 8)  # a float column is one


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("Int64", [1, 2, 3, 4]),
        ("Float64", [0.5, 1.5, 2.5, 3.5]),
        ("string", ["u", "v", "w", "u"]),
        ("boolean", [True, False, True, True]),
    ],
)
def test_nullable_columns_of_pandas_read_like_those_with_none(dtype, values):
    pandas = pytest.importorskip("pandas")
    values = [*values, None, *values[:3]]
    frame = pandas.DataFrame(table()).assign(depth=pandas.array(values, dtype=dtype))
    ours = History.from_frame(frame, **WANTED)
    assert ours.space == History.from_frame(table(depth=values), **WANTED).space
    assert ours.report.missing_inputs == 1
    for column, count in (("auc", "failed"), ("ds", "missing_tasks")):
        holed = pandas.DataFrame(table())
        kind = "Float64" if column == "auc" else "string"
        holed[column] = holed[column].astype(kind)
        holed.loc[2, column] = pandas.NA
        assert getattr(History.from_frame(holed, **WANTED).report, count) == 1


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"ds,x,auc\na,\x81\xff,1\n")
    (tmp_path / "plain.csv.gz").write_text("ds,x,auc\na,1,1\n")
    whole = gzip.compress(b"ds,x,auc\n" + b"a,1,1\n" * 100)
    (tmp_path / "torn.csv.gz").write_bytes(whole[:-12])
    (tmp_path / "empty.csv").write_text("ds,x,auc\n\n\n")
    for name, words in {
        "bytes.csv": "is not UTF-8 text",
        "plain.csv.gz": "is no whole gzip file",
        "torn.csv.gz": "is no whole gzip file",
        "empty.csv": "has 1 lines",
    }.items():
        with pytest.raises(InputError, match=f"{name} {words}"):
            History.from_csv(tmp_path / name, **WANTED)
    pytest.importorskip("pyarrow")
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(InputError, match=r"no\.parquet is no Parquet file"):
        History.from_parquet(tmp_path / "no.parquet", **WANTED)


@given(blanks=st.integers(0, 3), before=st.integers(0, 2))
def test_line_numbers_are_those_of_an_editor(tmp_path_factory, blanks, before):
    path = tmp_path_factory.mktemp("lines") / "runs.csv"
    lines = [""] * before + ["ds,x,auc", "a,1,1"] + [""] * blanks + ["a,2"]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=rf"runs\.csv, line {len(lines)}: 2 cells"):
        csv_columns(path)


def test_a_storage_that_is_not_there_is_not_made(tmp_path):
    pytest.importorskip("optuna")
    for url in (
        f"sqlite:///{tmp_path / 'nope.db'}",
        f"sqlite+pysqlite:///{tmp_path / 'nope.db'}?timeout=3",
    ):
        with pytest.raises(InputError, match=r"there is no file .*nope\.db"):
            History.from_optuna(url)
    assert not list(tmp_path.iterdir())


def test_parameters_of_a_study_may_have_our_names_for_task_and_output():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(
        lambda t: t.suggest_float("value", 0, 1) + t.suggest_float("study", 0, 1), n_trials=4
    )
    history = History.from_optuna(study)
    assert history.space.names == ("value", "study")
    assert [sum(row.values()) for row in history.space.decode(history[0].X)] == pytest.approx(
        (-history[0].y).tolist()
    )


@given(st.lists(st.sampled_from(["a", "b", "a (1)", "a (2)"]), max_size=8))
def test_distinct_names_are_distinct_and_lone_ones_stay(names):
    found = numbered(names)
    assert len(set(found)) == len(names)
    assert all(new == old for new, old in zip(found, names, strict=True) if names.count(old) == 1)
