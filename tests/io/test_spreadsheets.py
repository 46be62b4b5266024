"""CSV as spreadsheets write it: delimiters, decimal commas, encodings, columns without a name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metakel.data import History
from metakel.errors import InputError
from metakel.io import csv_columns
from metakel.io.cleaning import decimal_commas
from metakel.space import Float, Integer

WANTED = {"task": "substrate", "output": "yield"}
HEADER = ["substrate", "heat", "hours", "metal", "yield"]
ROWS = [
    [f"S{s}", str(30 + 7 * i + s), f"{1.5 + i * (s + 1) / 3:.2f}", "PN"[i % 2], f"{3.25 * i + s}"]
    for s in range(3)
    for i in range(6)
]


def sheet(delimiter=",", comma=False, header=HEADER, rows=ROWS):
    cells = [[c.replace(".", ",") if comma else c for c in row] for row in rows]
    return "\n".join(delimiter.join(row) for row in [header, *cells]) + "\n"


def same(one, other):
    return one.space == other.space and all(
        a.name == b.name and np.array_equal(a.X, b.X) and np.array_equal(a.y, b.y)
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture
def read(tmp_path):
    def from_text(text, encoding="utf-8", name="runs.csv", **options):
        bytewise = encoding == "utf-8-with-bytes"
        content = text.encode(errors="surrogateescape") if bytewise else text.encode(encoding)
        (tmp_path / name).write_bytes(content)
        return History.from_csv(tmp_path / name, **WANTED, **options)

    return from_text


@pytest.fixture
def reference(read):
    history = read(sheet())
    assert history.space["hours"] == Float("hours", 1.5, 6.5)
    assert not history.report.notes  # a file that leaves nothing to guess
    return history


@pytest.mark.parametrize(
    ("text", "encoding", "note"),
    [
        (sheet(";"), "utf-8", "cells are separated by ';'"),
        (sheet("\t"), "utf-16", "cells are separated by tabs"),
        (sheet(";", comma=True), "utf-8-sig", "hours has decimal commas: 1,50 is read as 1.5"),
        ("sep=;\n" + sheet(";"), "utf-8", "cells are separated by ';'"),
        ("sep=|\r\n" + sheet("|"), "utf-8", "cells are separated by '|'"),
        (sheet(", "), "utf-8", ""),
        (sheet(rows=[[*r, ""] for r in ROWS], header=[*HEADER, ""]), "utf-8", "left out column 6"),
        (sheet(rows=[["7", *r] for r in ROWS], header=["", *HEADER]), "utf-8", "left out column 1"),
    ],
)
def test_files_of_spreadsheets_read_like_a_plain_one_and_the_report_says_how(
    read, reference, text, encoding, note
):
    history = read(text, encoding)
    assert same(history, reference)
    assert any(note in found for found in history.report.notes) or not note


def test_a_delimiter_that_is_said_is_taken_without_a_note(read, reference):
    assert same(read(sheet("|"), delimiter="|"), reference)
    assert same(read(sheet("\t"), delimiter="tab"), reference)
    assert not read(sheet("|"), delimiter="|").report.notes
    for wrong in (";;", "", '"'):
        with pytest.raises(InputError, match="expected one character"):
            read(sheet(), delimiter=wrong)
    with pytest.raises(InputError, match="no column 'substrate'"):
        read(sheet(","), delimiter=";")


def test_a_header_with_commas_and_semicolons_is_not_guessed(read):
    text = sheet(";", comma=True).replace("heat", "heat, C", 1)
    with pytest.raises(InputError, match=r"line 2: 3 cells; the header has 2; .* by delimiter=';'"):
        read(text)
    assert read(text, delimiter=";").space.names == ("heat, C", "hours", "metal")


@pytest.mark.parametrize("start", [b"PK\x03\x04rest", b"\xd0\xcf\x11\xe0\xa1\xb1"])
def test_a_workbook_is_called_one(tmp_path, start):
    (tmp_path / "runs.xlsx").write_bytes(start)
    with pytest.raises(
        InputError, match=r"runs\.xlsx is an Excel workbook.*save it as CSV.*from_excel"
    ):
        csv_columns(tmp_path / "runs.xlsx")


def test_windows_1252_is_read_with_a_note(read, monkeypatch):
    text = sheet().replace("hours", "höurs")
    history = read(text, "cp1252")
    assert same(history, read(text))
    assert any("read as Windows-1252" in note for note in history.report.notes)
    # Also where the first lines are plain, and much later one is not.
    monkeypatch.setattr("metakel.io.csv_files.BLOCK_CHARACTERS", 100)
    late = [*ROWS, *([*ROWS[0][:3], "P", str(i)] for i in range(5_000)), [*ROWS[0][:3], "é", "1"]]
    assert "é" in read(sheet(rows=late), "cp1252").space["metal"].values


def test_a_database_is_sent_to_its_url(tmp_path):
    path = tmp_path / "past.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(InputError, match=r"from_optuna\('sqlite:///.*past.db'\)") as refusal:
        csv_columns(path)
    assert f"sqlite:///{path}" in refusal.value.as_typed()


@given(st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 2)), min_size=1))
def test_decimal_commas_mean_what_points_mean_or_are_left_alone(numbers):
    cells = [str(v).replace(".", ",") for v in numbers]
    found = decimal_commas(cells)
    assert found == numbers


@pytest.mark.parametrize(
    "cells",
    [
        ["1,234", "12,345"],
        ["1,5", "2.5"],
        ["1,234.5"],
        ["1,2,3"],
        ["a,b"],
        ["1", "2"],
        ["1,5", "x"],
    ],
)
def test_commas_that_may_be_something_else_are_none(cells):
    assert decimal_commas(cells) is None


def test_one_clear_column_settles_the_commas_of_a_file(read):
    rows = [[*r[:2], f"{1 + i},250", r[3], r[4]] for i, r in enumerate(ROWS)]
    doubtful = sheet(";", rows=rows)
    with pytest.raises(InputError, match=r"'hours' holds '1,250' in line 2.*decimals or thousands"):
        read(doubtful)
    clear = [[*r[:4], r[4].replace(".", ",")] for r in rows]
    assert read(sheet(";", rows=clear)).space["hours"] == Float("hours", 1.25, 18.25)


# Columns that nobody meant


def test_a_running_number_is_no_input_unless_named(read):
    rows = [[*r, str(i + 5)] for i, r in enumerate(ROWS)]
    text = sheet(rows=rows, header=[*HEADER, "run_id"])
    history = read(text)
    assert "run_id" not in history.space.names
    assert any("run_id is a running number" in note for note in history.report.notes)
    named = read(text, inputs=["run_id", "heat"])
    assert named.space["run_id"] == Integer("run_id", 5, 22)
    # The same numbers in every task are a grid, and one task may be a sweep.
    grid = [[*r, str(i % 6)] for i, r in enumerate(ROWS)]
    assert "step" in read(sheet(rows=grid, header=[*HEADER, "step"])).space.names
    sweep = [["S", *r[1:], str(i)] for i, r in enumerate(ROWS)]
    assert "step" in read(sheet(rows=sweep, header=[*HEADER, "step"])).space.names


def test_an_index_that_pandas_saved_is_no_input(read, reference, tmp_path):
    pandas = pytest.importorskip("pandas")
    read(sheet())
    frame = pandas.read_csv(tmp_path / "runs.csv").sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "index.csv")
    again = pandas.read_csv(tmp_path / "index.csv")
    assert again.columns[0] == "Unnamed: 0"
    for history in (
        History.from_csv(tmp_path / "index.csv", **WANTED),
        History.from_frame(again.iloc[: len(again) - 2], **WANTED),  # no whole running number
    ):
        assert history.space.names == reference.space.names
        assert sum(note.startswith("left out") for note in history.report.notes) == 1
