"""Which columns are taken as settings, and what is said about the others."""

from __future__ import annotations

import numpy as np
import pytest
from messy_table import LIBRARIES, SETTINGS, messy_table

from metakel.data import History
from metakel.errors import InputError, SeveralProblems
from metakel.space import Categorical, Condition, Fixed, Float, Integer, Space

N = 40
RNG = np.random.default_rng(0)


def table(**more):
    rate, depth = RNG.uniform(0.1, 1, N), RNG.integers(1, 9, N)
    rows = {
        "task": ["a"] * (N // 2) + ["b"] * (N // 2),
        "rate": rate,
        "depth": depth,
        "y": -((rate - 0.5) ** 2) - 0.1 * depth + RNG.normal(0, 0.05, N),
    }
    return {**rows, **more}


def read(rows, **options):
    return History.from_frame(rows, task="task", output="y", **options)


def reason(history, name):
    (found,) = [
        note
        for note in history.report.notes
        if note.removeprefix("left out: ").startswith(f"{name} ")
    ]
    return found


SUSPECTS = {
    "seed": (RNG.integers(0, 50, N), "bookkeeping"),
    "host": (["n1", "n2"] * (N // 2), "bookkeeping"),
    "fit_seconds": (RNG.uniform(1, 50, N), "another measured value, by its name"),
    "accuracy": (RNG.uniform(0, 1, N), "another measured value, by its name"),
    "code": (RNG.integers(10**7, 10**9, N), "large whole number"),
    "label": ([f"x{i}" for i in range(N)], "40 different texts"),
    "when": ([f"2024-01-{1 + i % 28:02d}" for i in range(N)], "holds dates"),
    "extra": (([None] * 13 + list(range(7))) * 2, "is empty in 26 of 40 rows"),
    "nothing": ([None] * N, "is empty"),
}


@pytest.mark.parametrize("name", SUSPECTS)
def test_what_is_no_setting_is_left_out_with_the_reason(name):
    values, why = SUSPECTS[name]
    history = read(table(**{name: values}))
    assert history.report.inputs == ("rate", "depth")
    assert why in reason(history, name)


def test_a_measured_value_is_found_by_what_it_holds():
    rows = table()
    rows["other"] = np.exp(rows["y"]) + RNG.normal(0, 1e-4, N)
    assert "follows the output" in reason(read(rows), "other")
    assert read(rows).report.inputs == ("rate", "depth")


def test_a_metric_that_repeats_itself_is_one_and_a_grid_of_that_name_is_none():
    repeats = RNG.integers(20, 35, N) / 40
    assert "another measured value" in reason(read(table(accuracy=repeats)), "accuracy")
    assert "precision" in read(table(precision=[16, 32] * (N // 2))).report.inputs


def test_a_setting_that_explains_much_is_a_setting():
    rows = table()
    rows["y"] = rows["rate"] + RNG.normal(0, 0.1, N)
    assert read(rows).report.inputs == ("rate", "depth")


def test_a_status_is_found_by_what_it_holds():
    rows = table(outcome=["fine"] * 35 + ["out of memory"] * 5)
    rows["y"][35:] = np.nan
    assert "is 'fine' in every run with an output" in reason(read(rows), "outcome")


def test_a_failed_run_may_lack_a_cell_without_making_the_column_conditional():
    rows = table(outcome=["fine", "lost"] * (N // 2), heat=[float(i % 5) for i in range(N)])
    for i in range(1, N, 2):
        rows["y"][i], rows["heat"][i] = np.nan, None
    assert "heat" in read(rows).report.inputs


def test_the_report_says_how_to_take_them_and_that_works():
    rows = table(seed=RNG.integers(0, 50, N), host=["n1", "n2"] * (N // 2))
    history = read(rows)
    assert set(history.report.doubtful) == {"seed", "host"}
    assert any("--input rate,depth,seed,host" in note for note in history.report.notes)
    taken = read(rows, inputs=["rate", "depth", "seed", "host"])
    assert taken.space.names == ("rate", "depth", "seed", "host")
    assert "host" in read(rows, categories=["host"]).space.names


def test_columns_can_be_excluded_by_name():
    assert read(table(), exclude=["depth"]).space.names == ("rate",)
    with pytest.raises(InputError, match="no column 'dephth'"):
        read(table(), exclude=["dephth"])
    with pytest.raises(InputError, match="both an input and excluded"):
        read(table(), exclude=["rate"], inputs=["rate"])


def test_a_setting_that_belongs_to_a_choice_is_there_with_that_choice():
    kinds = (["tree"] * 3 + ["linear"]) * (N // 4)
    rows = table(kind=kinds, leaves=[5.0 + i % 7 if k == "tree" else None
                                     for i, k in enumerate(kinds)])  # fmt: skip
    history = read(rows)
    assert "leaves is there only where kind is tree" in str(history.report)
    assert history.report.kept == N
    assert history.space.conditions == (Condition("leaves", "kind", ("tree",)),)
    decoded = [row for task in history for row in history.space.decode(task.X)]
    assert [row.get("leaves") for row in decoded] == rows["leaves"]
    alone = read({**rows, "host": rows["kind"]}, exclude=["kind"])  # decided by no input
    assert "is only there where" in reason(alone, "leaves")
    assert alone.report.kept == N


def test_a_doubtful_column_is_taken_where_there_is_no_other():
    rows = {"task": list("aabb"), "seed": [1, 2, 3, 4], "y": [1.0, 2.0, 2.5, 1.5]}
    assert read(rows).space.names == ("seed",)


def test_an_engineers_table_is_read_at_the_first_try(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(messy_table().encode("cp1252"))
    history = History.from_csv(path, task="data set", output="val_auc")
    assert history.space.names == SETTINGS
    assert history.space["model"] == Categorical("model", LIBRARIES)
    assert history.space["n_jobs"] == Fixed("n_jobs", 8)
    assert history.space["learning_rate"].log
    report = history.report
    assert report.kept + report.failed == report.rows == 270
    assert [(c.name, c.values) for c in history.space.conditions] == [
        ("num_leaves", ("lightgbm",)),
        ("gamma", ("xgboost",)),
        ("min_samples_leaf", ("sklearn",)),
    ]
    left_out = "run_id started host seed fit_seconds val_accuracy"
    for name in (*left_out.split(), "status", "comment"):
        assert reason(history, name).startswith("left out: ")
    assert any("Windows-1252" in note for note in report.notes)


def test_all_problems_come_in_one_message_with_inputs_to_paste():
    rows = table(
        hours=[*map(str, range(N - 1)), "n.d."],
        heat=["hot", *map(str, range(N - 1))],
        kind=["p", "q"] * (N // 2),
    )
    rows["y"] = [*map(str, rows["y"][1:]), "0.9O"]
    with pytest.raises(SeveralProblems) as refusal:
        read(rows)
    for shown in (str(refusal.value), refusal.value.as_typed()):
        for part in ("3 problems", "'n.d.' in row 39", "'hot' in row 0", "'0.9O' in row 39"):
            assert part in shown
    assert "--input rate,depth,kind" in refusal.value.as_typed()
    assert "inputs=['rate', 'depth', 'kind']" in str(refusal.value)


def test_the_column_that_costs_the_rows_is_named():
    rows = table(hours=[None if i % 4 == 0 else i / 2 for i in range(N)])
    assert "hours is empty in 10 rows" in reason(read(rows), "hours")
    halves = [[i / 2 if i % 2 == odd else None for i in range(N)] for odd in (0, 1)]
    lost = "none of the 40 rows can be used: 20 with an empty 'hours', 20 with an empty 'heat'"
    with pytest.raises(InputError, match=lost) as refusal:
        read(table(hours=halves[0], heat=halves[1]))
    assert "--exclude hours" in refusal.value.as_typed()


def test_a_running_number_that_added_rows_lack_is_still_left_out():
    columns = {
        "nr": [*range(1, 25), None, None],
        "task": [*(f"t{i % 4}" for i in range(24)), "new", "new"],
        "rate": [*(float(i % 7) for i in range(24)), 3.0, 4.0],
        "score": [*(float(i % 5) for i in range(24)), 2.0, 2.5],
    }
    history = History.from_frame(columns, task="task", output="score")
    assert history.space.names == ("rate",)
    assert any("nr is a running number" in note for note in history.report.notes)


def test_a_column_that_failed_runs_lack_is_measured():
    rows = {name: list(column) for name, column in table(quality=RNG.uniform(0, 1, N)).items()}
    lacking = (3, 17, 30)
    for i in lacking:
        rows["y"][i] = "OOM"
    assert "quality" in read(rows).space.names  # a failed run has it, so it may be a setting
    for i in lacking:
        rows["quality"][i] = None
    history = read(rows)
    assert "quality" not in history.space.names
    assert "is empty where the output is" in reason(history, "quality")
    assert "quality" in read(rows, inputs=["rate", "quality"]).space.names
    for name in ("rate", "depth"):  # failed runs that lack everything say nothing
        for i in lacking:
            rows[name][i] = None
    assert {"quality", "rate", "depth"} <= set(read(rows).space.names)


def test_a_time_with_the_digits_of_a_clock_is_measured():
    clock = RNG.uniform(1, 9, N).tolist()
    assert "zeit" not in read(table(zeit=clock)).space.names
    assert "zeit" in read(table(zeit=[round(t, 1) for t in clock])).space.names
    assert "speed" in read(table(speed=clock)).space.names


@pytest.mark.parametrize("name", ["suggestion", "catalyst"])
def test_a_column_that_only_runs_without_an_output_fill_costs_no_row(name):
    rows = table(**{name: [None] * (N - 1) + ["s1"]})
    rows["y"][-1] = np.nan
    history = read(rows)
    assert history.total == N - 1
    assert f"is empty in {N - 1} of {N - 1} rows" in reason(history, name)


def test_a_condition_of_a_space_may_have_a_parent_of_numbers():
    layers = [1 + i % 3 for i in range(N)]
    width = [None if count == 1 else 8.0 * count for count in layers]
    space = Space(
        (Integer("layers", 1, 3), Float("width", 8, 32)), [Condition("width", "layers", (2, 3))]
    )
    history = read(table(layers=layers, width=width), space=space)
    X = np.concatenate([task.X for task in history])
    assert history.total == N
    assert (X[X[:, 0] == -1, 1] == 0).all()
    assert X[X[:, 0] == 1, 1] == pytest.approx(1 / 3)


def test_an_input_that_no_usable_row_has_is_named():
    half = N // 2
    rows = table(
        pressure=[None] * half + [1.0, 2.0] * (half // 2),
        catalyst=["p", "q"] * (half // 2) + ["p"] + [None] * (half - 1),
    )
    rows["pressure"][half] = None
    with pytest.raises(
        InputError, match="none of the 40 rows can be used: 21 with an empty 'pressure'"
    ):
        read(rows, inputs=["rate", "pressure", "catalyst"])
