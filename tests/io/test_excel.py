"""Excel workbooks: read like the same table as CSV, and rows added without a loss."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import append_csv, append_excel, csv_columns, excel_columns

openpyxl = pytest.importorskip("openpyxl")
HEADER = ["substrate", "heat", "hours", "metal", "yield"]
ROWS = [
    [f"S{s}", 30.5 + 7 * i + s, 1 + i * (s + 1) // 2, "PN"[i % 2], 3.25 * i + s]
    for s in range(3)
    for i in range(6)
]
WANTED = {"task": "substrate", "output": "yield"}


def workbook(path, rows, title="runs", aside=()):
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    for name in aside:
        book.create_sheet(name, 0).append([])
    book.save(path)
    return path


def csv_file(path, rows, delimiter=","):
    lines = [delimiter.join("" if c is None else str(c) for c in row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_workbook_reads_like_the_same_table_as_csv(tmp_path):
    excel = History.from_excel(workbook(tmp_path / "a.xlsx", [HEADER, *ROWS]), **WANTED)
    plain = History.from_csv(csv_file(tmp_path / "a.csv", [HEADER, *ROWS]), **WANTED)
    assert excel.space == plain.space
    for one, other in zip(excel, plain, strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)


def test_blank_rows_dates_and_other_sheets_are_no_trouble(tmp_path):
    rows = [[*row, datetime(2024, 1, 1 + i)] for i, row in enumerate(ROWS)]
    table = [[], [*HEADER, "day"], *rows[:7], [None] * 6, *rows[7:]]
    path = workbook(tmp_path / "a.xlsx", table, aside=["plan"])
    history = History.from_excel(path, **WANTED)
    assert history.space.names == ("heat", "hours", "metal")
    assert history.report.kept == len(ROWS)
    assert any("sheet 'runs' (there are also plan)" in note for note in history.report.notes)
    table[12][2] = "clogged"
    with pytest.raises(InputError, match=r"'clogged' in row 13 of a\.xlsx"):
        History.from_excel(workbook(path, table), **WANTED)


def test_titles_repeated_headers_and_numbers_as_text_are_no_trouble(tmp_path):
    plain = History.from_excel(workbook(tmp_path / "a.xlsx", [HEADER, *ROWS]), **WANTED)
    text = [[str(cell) for cell in row] for row in ROWS]
    for table in (
        [["Couplings of 2023"], [], HEADER, *ROWS],
        [HEADER, *ROWS[:6], HEADER, *ROWS[6:12], [], HEADER, *ROWS[12:]],
        [HEADER, *text],
    ):
        path = workbook(tmp_path / "b.xlsx", table)
        history = History.from_excel(path, **WANTED)
        assert history.space == plain.space
        assert [t.y.tolist() for t in history] == [t.y.tolist() for t in plain]
    append_excel(path, [{"heat": 40.5, "hours": 2, "yield": None}])
    assert excel_columns(path)["heat"][-1] == 40.5
    one = workbook(tmp_path / "c.xlsx", [["yield"], [1], [2]])
    assert excel_columns(one) == {"yield": [1, 2]}


def test_added_rows_are_formatted_as_those_above(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS])
    book = openpyxl.load_workbook(path)
    for row in range(2, len(ROWS) + 2):
        book["runs"].cell(row, 5).number_format = "0.0%"
    book.save(path)
    append_excel(path, [{"heat": 1.5, "yield": None}])
    page = openpyxl.load_workbook(path)["runs"]
    assert page.cell(page.max_row, 5).number_format == "0.0%"


def test_a_sheet_or_file_that_is_not_there_is_named(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS])
    with pytest.raises(InputError, match="no sheet 'x'; found runs"):
        excel_columns(path, sheet="x")
    with pytest.raises(InputError, match="there is no file"):
        excel_columns(tmp_path / "b.xlsx")
    for content in (b"", b"PK\x03\x04rest", b"a,b\n1,2\n", path.read_bytes()[:-300]):
        (tmp_path / "c.xlsx").write_bytes(content)
        with pytest.raises(InputError, match=r"c\.xlsx"):
            excel_columns(tmp_path / "c.xlsx")


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
def test_rows_are_added_below_and_nothing_else_changes(tmp_path, kind):
    make, append, read = {
        "xlsx": (workbook, append_excel, excel_columns),
        "csv": (csv_file, append_csv, csv_columns),
    }[kind]
    path = make(tmp_path / f"a.{kind}", [HEADER, *ROWS])
    before = read(path)
    append(path, [{"heat": 49.4, "metal": "P, N", "suggestion": "j 0"}, {"heat": 51.0}])
    after = read(path)
    assert {name: after[name][: len(ROWS)] for name in HEADER} == before
    assert after["heat"][len(ROWS) :] == [49.4, 51.0]
    assert after["metal"][len(ROWS) :] == ["P, N", None]
    assert after["suggestion"] == [None] * len(ROWS) + ["j 0", None]


@pytest.mark.parametrize(("name", "append"), [("n.xlsx", append_excel), ("n.csv", append_csv)])
def test_a_table_that_is_not_there_is_begun(tmp_path, name, append):
    append(tmp_path / name, [{"heat": 49.4, "yield": None}])
    append(tmp_path / name, [{"heat": 50.4, "yield": 3.0}])
    read = excel_columns if name.endswith("xlsx") else csv_columns
    assert read(tmp_path / name) == {"heat": [49.4, 50.4], "yield": [None, 3.0]}


def test_a_csv_file_keeps_its_way_of_writing(tmp_path):
    path = tmp_path / "a.csv"
    text = "sep=;\r\nmetal;heat;größe\r\nP;49,5;1\r\n"
    path.write_bytes(text.encode("cp1252"))
    append_csv(path, [{"metal": "N", "heat": 50.5}])
    assert path.read_bytes().decode("cp1252") == text + "N;50,5;\r\n"


def test_a_workbook_with_a_chart_is_left_alone(tmp_path):
    book = openpyxl.Workbook()
    for i in range(3):
        book.active.append([i, i])
    chart = openpyxl.chart.LineChart()
    chart.add_data(openpyxl.chart.Reference(book.active, min_col=1, min_row=1, max_row=3))
    book.active.add_chart(chart, "D1")
    path = tmp_path / "a.xlsx"
    book.save(path)
    content = path.read_bytes()
    with pytest.raises(InputError, match="would be lost"):
        append_excel(path, [{"x": 1}])
    assert path.read_bytes() == content
