"""Tables as they are kept: titles, comments, units, sheets, other names, JSON lines, slips."""

from __future__ import annotations

import json

import numpy as np
import openpyxl
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import csv_columns

ROWS = [[f"b{i % 3}", 20 + 2.5 * i, ("THF", "DMF")[i % 2], 50.0 + i] for i in range(12)]
HEADER = ["Batch", "Temperature", "Solvent", "Yield"]
UNITS = ["", "°C", "", "%"]
LAYOUTS = {
    "title": [["Yields of the spring", "", "", ""], ["", "", "", ""], HEADER, *ROWS],
    "title of two": [["Operator", "Ann", "", ""], ["Date", "3 May", "", ""], HEADER, *ROWS],
    "units": [HEADER, UNITS, *ROWS],
    "other units": [HEADER, ["-", "1/s", "", "[-]"], *ROWS],
    "header again": [HEADER, *ROWS[:6], HEADER, *ROWS[6:]],
    "blank rows": [HEADER, *ROWS[:6], ["", "", "", ""], *ROWS[6:]],
    "all": [["Spring", "", "", ""], HEADER, UNITS, *ROWS[:6], HEADER, UNITS, *ROWS[6:]],
}


def lines(rows, delimiter=","):
    return [delimiter.join(map(str, row)) for row in rows]


def read(history):
    return [(task.name, task.X.tolist(), task.y.tolist()) for task in history]


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_csv_file_is_read_as_leniently_as_a_workbook(tmp_path, name, delimiter):
    plain = History.from_frame(dict(zip(HEADER, zip(*ROWS, strict=True), strict=True)),
                               task="Batch", output="Yield")  # fmt: skip
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines(LAYOUTS[name], delimiter)), encoding="utf-8")
    found = History.from_csv(path, task="Batch", output="Yield")
    assert read(found) == read(plain)
    book = openpyxl.Workbook()
    for row in LAYOUTS[name]:
        book.active.append([None if cell == "" else cell for cell in row])
    book.save(tmp_path / "runs.xlsx")
    if name == "all":  # units are repeated with the header only by programs that write text
        return
    assert read(History.from_excel(tmp_path / "runs.xlsx", task="Batch", output="Yield")) == read(
        plain
    )


def test_rows_may_end_with_more_separators_than_the_header(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines([HEADER, *([*row, "", " "] for row in ROWS)])))
    assert History.from_csv(path, task="Batch", output="Yield").total == len(ROWS)
    path.write_text("\n".join(lines([HEADER, *ROWS, [*ROWS[0], "", "spilled"]])))
    with pytest.raises(InputError, match="line 14: 6 cells; the header has 4"):
        History.from_csv(path, task="Batch", output="Yield")


def test_comments_are_no_rows(tmp_path):
    path = tmp_path / "runs.csv"
    text = [
        "# made by a machine",
        "# on Monday",
        *lines([HEADER, *ROWS[:5]]),
        "# stopped",
        *lines(ROWS[5:]),
    ]
    path.write_text("\n".join(text), encoding="utf-8")
    found = History.from_csv(path, task="Batch", output="Yield")
    assert found.report.kept == 12
    assert "above the header: '# made by a machine" in str(found.report)
    path.write_text("#,x\n1,2\n2,3\n", encoding="utf-8")  # a column may have this name
    assert csv_columns(path) == {"#": [1, 2], "x": [2, 3]}


def test_lines_are_named_as_they_stand_in_the_file(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [*LAYOUTS["all"], ["b0", 33.0, "DMF", "clogged 3"]]
    path.write_text("\n".join(lines(rows)), encoding="utf-8")
    with pytest.raises(InputError, match=f"line {len(rows)} of"):
        History.from_csv(path, task="Batch", output="Yield")


def test_a_header_of_several_lines_is_one(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text('"Temp\n(°C)",Yield\n20,3\n30,4\n', encoding="utf-8")
    assert csv_columns(path) == {"Temp\n(°C)": [20, 30], "Yield": [3, 4]}


def sheets(path):
    book = openpyxl.Workbook()
    book.active.title = "cover"
    book.active.append(["Laboratory", "B"])
    for k in range(3):
        page = book.create_sheet(f"week {k}")
        page.append(HEADER[1:])
        for row in ROWS[4 * k : 4 * k + 4]:
            page.append(row[1:])
    book.save(path)
    return path


@pytest.mark.parametrize("cover", [["Laboratory"], ["Laboratory", "B"]])
def test_the_sheet_is_found_by_its_columns(tmp_path, cover):
    book = openpyxl.Workbook()
    book.active.append(cover)
    book.active.append(["since 2012"])
    page = book.create_sheet("runs")
    for row in (HEADER, *ROWS):
        page.append(row)
    book.save(tmp_path / "runs.xlsx")
    found = History.from_excel(tmp_path / "runs.xlsx", task=HEADER[0], output="Yield")
    assert found.total == len(ROWS)
    assert "read from the sheet 'runs'" in str(found.report)


@pytest.mark.parametrize("wanted", [["week 0", "week 1", "week 2"], "*"])
def test_several_sheets_are_tasks(tmp_path, wanted):
    path = sheets(tmp_path / "runs.xlsx")
    found = History.from_excel(path, task="week", output="Yield", sheet=wanted)
    assert [task.name for task in found] == ["week 0", "week 1", "week 2"]
    assert [task.n for task in found] == [4, 4, 4]
    with pytest.raises(InputError, match="no sheet with a column 'Cost'"):
        History.from_excel(path, task="week", output="Cost", sheet="*", minimize=True)


def test_a_parameter_under_two_names(tmp_path):
    rng = np.random.default_rng(0)
    tables = []
    for k, name in enumerate(("rate", "learning_rate")):
        rows = [[f"t{k}{i % 2}", rng.uniform(), rng.uniform()] for i in range(10)]
        path = tmp_path / f"{k}.csv"
        path.write_text("\n".join(lines([["data", name, "auc"], *rows])), encoding="utf-8")
        tables.append(path)
    options = {"task": "data", "output": "auc"}
    joined = History.from_csv(tables, rename={"learning_rate": "rate"}, **options)
    assert joined.space.names == ("rate",)
    assert joined.report.kept == 20
    with pytest.raises(InputError, match=r"never filled together .* \(--rename learning_rate="):
        History.from_csv(tables, **options)
    from metakel.io import join_tables, propose, read_csv

    source = join_tables([read_csv(path, **options) for path in tables])
    notes = propose(source, inputs=["rate", "learning_rate"], defaults={"rate": 0.5}).notes
    assert any("never filled together" in note and "--rename" in note for note in notes)
    with pytest.raises(InputError, match="both columns"):
        History.from_frame(
            {"data": ["a"], "x": [1], "y": [2], "auc": [1]}, rename={"x": "y"}, **options
        )


def test_json_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    entries = [
        {"data": b, "params": {"Temperature": t, "kind": s}, "metrics": {"auc": y / 100}}
        for b, t, s, y in ROWS
    ]
    path.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    found = History.from_jsonl(path, task="data", output="auc")
    assert found.space.names == ("Temperature", "kind")
    assert found.report.kept == 12
    path.write_text('{"a": 1}\n[1, 2]\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of runs\.jsonl"):
        History.from_jsonl(path, task="a", output="b")


@pytest.mark.parametrize(("column", "value"), [("accuracy", 999.0), ("nu", 45.0), ("nu", -30.0)])
def test_a_number_far_from_all_others_is_named(column, value):
    rng = np.random.default_rng(0)
    table = {
        "data": [f"t{i % 4}" for i in range(40)],
        "nu": rng.uniform(0.02, 0.98, 40),
        "gamma": 10 ** rng.uniform(-6, 2, 40),
        "trees": [10, 50, 100, 1000] * 10,
        "accuracy": rng.uniform(0.5, 0.99, 40),
    }
    clean = History.from_frame(table, task="data", output="accuracy")
    assert "is this right?" not in str(clean.report)
    table[column][7] = value
    found = History.from_frame(table, task="data", output="accuracy")
    assert f"{column} is {value:g} in row" in str(found.report)


@pytest.mark.parametrize("worst", ["failed", "<5 %"])
def test_units_below_the_header_and_in_the_cells(tmp_path, worst):
    book = openpyxl.Workbook()
    for row in (HEADER, [None, "°C", None, "%"]):
        book.active.append(row)
    for i, (task, temperature, solvent, value) in enumerate(ROWS):
        text = f"{value:.1f} %".replace(".", ",")
        book.active.append([task, f"{temperature} °C", solvent, worst if i == 0 else text])
    book.save(tmp_path / "runs.xlsx")
    found = History.from_excel(tmp_path / "runs.xlsx", task="Batch", output="Yield")
    assert found.total == (11 if worst == "failed" else 12)
    assert "units below the header are not read: °C, %" in str(found.report)
    assert found.space["Temperature"].high == 47.5
