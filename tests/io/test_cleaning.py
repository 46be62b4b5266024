"""A cell that is not like the others: refused by name, or counted, and never a silent category."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metakel.data import History
from metakel.errors import InputError
from metakel.space import Categorical, Float, Space, infer_space

WANTED = {"task": "ds", "output": "y"}
N = 20


def columns(**changes):
    table = {
        "ds": ["a"] * (N // 2) + ["b"] * (N // 2),
        "hours": [1.5 + (7 * i) % N for i in range(N)],
        "metal": ["Pd", "Ni"] * (N // 2),
        "y": [float((3 * i) % N) for i in range(N)],
    }
    return {**table, **changes}


def with_cell(name, row, cell):
    table = columns()
    table[name] = [*table[name][:row], cell, *table[name][row + 1 :]]
    return table


def written(path, table):
    rows = zip(*table.values(), strict=True)
    lines = [";".join(table), *(";".join("" if c is None else str(c) for c in r) for r in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("cell", ["clogged", "8 h", "1,234.5"])
def test_one_stray_cell_in_a_column_of_numbers_is_named_with_its_line(tmp_path, cell):
    table = with_cell("hours", 10, cell)
    path = written(tmp_path / "runs.csv", table)
    named = rf"'hours' holds '{cell}' in"
    with pytest.raises(
        InputError, match=rf"{named} line 12 of runs.csv, among 19 numbers.*correct"
    ):
        History.from_csv(path, **WANTED)
    with pytest.raises(InputError, match=rf"{named} row 10.*categories=\['hours'\]"):
        History.from_frame(table, **WANTED)
    assert History.from_csv(path, **WANTED, inputs=["metal"]).space.names == ("metal",)
    chosen = History.from_csv(path, **WANTED, categories=["hours"])
    assert cell in chosen.space["hours"].values


@given(strays=st.integers(1, N))
def test_only_a_column_of_mostly_numbers_is_refused(strays):
    cells = [f"k{i % 3}" if i < strays else str(i % 4) for i in range(N)]
    if N - strays >= 0.8 * N:
        with pytest.raises(InputError, match=f"'hours' holds 'k0' in row 0, among {N - strays}"):
            History.from_frame(columns(hours=cells), **WANTED)
    else:
        space = History.from_frame(columns(hours=cells), **WANTED).space
        assert isinstance(space["hours"], Categorical)


def test_a_space_that_says_numbers_blames_the_cell_that_is_none(tmp_path):
    space = Space((Float("hours", 0, 30),))
    path = written(tmp_path / "runs.csv", with_cell("hours", 3, "x"))
    with pytest.raises(InputError, match="'hours' holds 'x' in line 5"):
        History.from_csv(path, **WANTED, space=space)
    with pytest.raises(InputError, match="'metal' holds 'Pd' in line 2"):
        History.from_csv(path, **WANTED, space=Space((Float("metal", 0, 1),)))


def test_numbers_written_as_text_are_said_to_be_choices_or_read_with_a_note():
    numbers = columns()["hours"]
    plain = History.from_frame(columns(), **WANTED)
    text = History.from_frame(columns(hours=[str(v) for v in numbers]), **WANTED)
    assert isinstance(text.space["hours"], Categorical)
    assert any("hours holds numbers written as text, taken" in n for n in text.report.notes)
    mixed = History.from_frame(columns(hours=["1.5", *numbers[1:]]), **WANTED)
    assert mixed.space == plain.space
    assert any("hours holds numbers written as text" in n for n in mixed.report.notes)
    commas = columns(hours=[str(v).replace(".", ",") for v in numbers])
    assert History.from_frame(commas, **WANTED).space == plain.space


def test_units_that_differ_and_choices_that_differ_by_case_are_noted():
    mixed = [f"{i % 4} {'h' if i % 2 else 'min'}" for i in range(N)]
    units = History.from_frame(columns(hours=mixed), **WANTED)
    assert any("hours holds '0 min', which is no plain number" in n for n in units.report.notes)
    case = History.from_frame(columns(metal=["Pd", "pd"] * (N // 2)), **WANTED)
    assert any("metal has 'Pd' and 'pd', taken as two" in n for n in case.report.notes)
    assert not History.from_frame(columns(), **WANTED).report.notes


@pytest.mark.parametrize("unit", [" h", "h", " °C"])
def test_one_unit_in_a_whole_column_is_read_with_a_note(tmp_path, unit):
    numbers = columns()["hours"]
    table = columns(hours=[f"{v}{unit}" for v in numbers])
    for column, said in (
        (table["hours"], "."),
        ([v.replace(".", ",") for v in table["hours"]], ","),
    ):
        for history in (
            History.from_frame({**table, "hours": column}, **WANTED),
            History.from_csv(written(tmp_path / "a.csv", {**table, "hours": column}), **WANTED),
        ):
            assert history.space == History.from_frame(columns(), **WANTED).space
            assert any(
                f"hours has a unit: '{column[0]}' is read" in n for n in history.report.notes
            )
        assert said in column[0]
    chosen = History.from_frame(table, **WANTED, categories=["hours"])
    assert isinstance(chosen.space["hours"], Categorical)
    # Rows that were added without the unit, and a run that failed.
    table["hours"][-1], table["y"][0] = numbers[-1], "lost"
    assert History.from_frame(table, **WANTED).space["hours"].high == max(numbers)


def test_few_units_among_numbers_are_read_only_where_it_is_clear_what_they_mean():
    per_cent = [10.0 + i for i in range(N)]
    for name, cell in (("y", "87,5 %"), ("y [ml]", "87,5 ml")):
        table = {k if k != "y" else name: v for k, v in columns(y=[*per_cent[:-1], cell]).items()}
        history = History.from_frame(table, task="ds", output=name)
        assert history[1].y[-1] == 87.5
    for values, cell in ((per_cent, "87,5 ml"), ([v / 100 for v in per_cent], "87,5 %")):
        table = columns(y=[*values[:-1], cell])
        with pytest.raises(InputError, match=f"holds '{cell}' in row {N - 1}"):
            History.from_frame(table, **WANTED)


def test_a_task_that_stands_above_its_rows_is_that_of_all_of_them(tmp_path):
    table = columns()
    once = [v if i == 0 or table["ds"][i - 1] != v else None for i, v in enumerate(table["ds"])]
    plain = History.from_frame(table, **WANTED)
    for history in (
        History.from_frame({**table, "ds": once}, **WANTED),
        History.from_csv(written(tmp_path / "a.csv", {**table, "ds": once}), **WANTED),
    ):
        assert [t.name for t in history] == [t.name for t in plain]
        assert [t.n for t in history] == [t.n for t in plain]
        assert any(f"ds is empty in {N - 2} rows, which" in note for note in history.report.notes)
    # Names that are repeated stand in their own rows: the others are not known.
    some = [v if i % 10 < 4 else None for i, v in enumerate(table["ds"])]
    assert History.from_frame({**table, "ds": some}, **WANTED).report.missing_tasks == N - 8


# Categories by word


def test_numbers_can_be_choices_if_one_says_so():
    history = History.from_frame(
        columns(size=[1, 2, 4, 8] * (N // 4)), **WANTED, categories=["size"]
    )
    assert history.space["size"] == Categorical("size", (1, 2, 4, 8))
    with pytest.raises(InputError, match="categories is the text 'size'"):
        History.from_frame(columns(), **WANTED, categories="size")
    with pytest.raises(InputError, match="no column 'size'"):
        History.from_frame(columns(), **WANTED, categories=["size"])
    with pytest.raises(InputError, match="categories beside a space"):
        History.from_frame(
            columns(), **WANTED, categories=["metal"], space=Space((Float("hours", 0, 30),))
        )


@pytest.mark.parametrize(
    "form", ["2024-01-{:02}", "2024/1/{}", "{}.1.2024", "1/{}/24", "2024-01-{:02} 10:30:00"]
)
def test_few_dates_are_refused_as_many_are(form):
    days = [form.format(1 + i % 5) for i in range(N)]
    with pytest.raises(InputError, match=r"'day' holds dates .*inputs=\[\.\.\.\]"):
        infer_space({"day": days, "x": list(range(N))})
    space, _ = infer_space({"day": days, "x": list(range(N))}, categories=["day"])
    assert len(space["day"].values) == 5
    versions = ["1.2.3", "1.2.4"] * (N // 2)
    assert isinstance(infer_space({"v": versions})[0]["v"], Categorical)


@pytest.mark.parametrize("dash", ["-", "--", "–", "?", "NA", "nan"])
def test_a_dash_among_numbers_is_an_empty_cell(tmp_path, dash):
    table, empty = with_cell("hours", 10, dash), with_cell("hours", 10, None)
    expected = History.from_frame(empty, **WANTED)
    for history in (
        History.from_frame(table, **WANTED),
        History.from_csv(written(tmp_path / "runs.csv", table), **WANTED),
    ):
        assert history.report.missing_inputs == 1
        assert any("hours is empty in 1 row" in note for note in history.report.notes)
        assert [t.X.tolist() for t in history] == [t.X.tolist() for t in expected]


# The output


@pytest.mark.parametrize(
    "word",
    ["failed", "FAIL", "Error", "timeout", "n/a", "#DIV/0!", "OOM", "Absturz", "échoué", "-"],
)
def test_words_for_a_failed_run_count_as_failed(tmp_path, word):
    table = with_cell("y", 3, word)
    for history in (
        History.from_frame(table, **WANTED),
        History.from_csv(written(tmp_path / "runs.csv", table), **WANTED),
    ):
        assert (history.report.kept, history.report.failed) == (N - 1, 1)
    none = History.from_frame(with_cell("y", 3, None), **WANTED)
    assert history.space == none.space
    assert [t.y.tolist() for t in history] == [t.y.tolist() for t in none]


@pytest.mark.parametrize("cell", ["0.9O", "11.1 ml", "1,110.5"])
def test_another_word_among_the_outputs_is_named_with_its_line(tmp_path, cell):
    table = with_cell("y", 3, cell)
    with pytest.raises(InputError, match=f"output column 'y' holds '{cell}' in line 5 of runs.csv"):
        History.from_csv(written(tmp_path / "runs.csv", table), **WANTED)
    with pytest.raises(InputError, match=f"output column 'y' holds '{cell}' in row 3;"):
        History.from_frame(table, **WANTED)


def test_words_are_runs_without_a_value_only_where_most_outputs_are_numbers(tmp_path):
    table = columns()
    table["y"] = [v if i % 2 else "good" for i, v in enumerate(table["y"])]
    with pytest.raises(InputError, match="output column 'y' holds 'good' in row 0"):
        History.from_frame(table, **WANTED)


# Rows outside of a space


def test_a_row_outside_of_the_space_is_named_or_taken(tmp_path):
    space = Space((Float("hours", 0, 15),))
    path = written(tmp_path / "runs.csv", columns())
    first = next(i for i, v in enumerate(columns()["hours"]) if v > 15)
    with pytest.raises(
        InputError, match=f"line {first + 2} of runs.csv, task a: parameter 'hours'"
    ):
        History.from_csv(path, **WANTED, space=space)
    history = History.from_csv(path, **WANTED, space=space, extrapolate=True)
    beyond = sum(v > 15 for v in columns()["hours"])
    assert any(f"{beyond} rows lie outside" in note for note in history.report.notes)
    assert history.report.kept == N
