"""Excel workbooks: read like the same table as CSV, and rows added without a loss."""

from __future__ import annotations

from datetime import datetime

import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import excel_columns

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
