"""CSV: the same numbers, texts and lines, by Python's own reader and by pandas."""

from __future__ import annotations

import csv
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metakel.data import History
from metakel.errors import InputError
from metakel.io import cleaning, csv_columns, csv_files
from metakel.io.cleaning import typed
from metakel.space import Categorical

WANTED = {"task": "ds", "output": "y"}
# Written as numbers by some program or language, and no number in ASCII.
NO_NUMBERS = [
    "3_3",
    "1_000",
    "1_0.5",
    "\uff13\uff13",
    "\u0663\u0663",
    "\u0967.\u0968",
    "0x10",
    "1e",
    "1d5",
    "2 3",
]


def write(path, columns):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture
def small_blocks(monkeypatch):
    """Some lines in a block, so that a short file has many of them."""
    monkeypatch.setattr(csv_files, "BLOCK_ROWS", 3)


@pytest.mark.parametrize("large", [1, 100_000])
@given(st.lists(st.floats() | st.floats().map(lambda v: round(v, 3)), min_size=1))
def test_numbers_are_rounded_as_python_rounds_them(tmp_path_factory, large, numbers):
    forms = ("{!r}", "{:.25e}", "{:+.17g}", "{:.3f}")
    cells = [forms[i % 4].format(v) for i, v in enumerate(numbers)]
    path = write(tmp_path_factory.mktemp("floats") / "t.csv", {"a": cells, "b": cells})
    expected = [None if math.isnan(float(c)) else float(c) for c in cells]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "LARGE", large)
        assert csv_columns(path)["b"] == expected


CELL = st.sampled_from(
    (
        *("1", "01", "-7", "2.5", "1e3", "+4", ".5", "", "NA", "none", "nan", "inf", " 3", "true"),
        *("False", "x", "u v", "12345678901234567890", "\u00e9", 'q"q', "a,b", "two\nlines"),
        "9" * 80,
    )
)


@given(
    numbers=st.lists(st.sampled_from(["1", "2", "3.5"]), max_size=12),
    others=st.lists(CELL, min_size=1, max_size=6),
)
@pytest.mark.parametrize("large", [1, 100_000])
@pytest.mark.usefixtures("small_blocks")
def test_a_column_is_typed_as_a_whole(tmp_path_factory, large, numbers, others):
    cells = [*numbers, *others]
    path = write(tmp_path_factory.mktemp("blocks") / "t.csv", {"k": range(len(cells)), "c": cells})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "LARGE", large)
        found = csv_columns(path)
    expected = typed(cells)
    commas = cleaning.decimal_commas(cells)
    assert found["c"] == (expected if commas is None else commas)
    assert [type(v) for v in found["c"]] == [type(v) for v in expected]
    assert found["k"] == list(range(len(cells)))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("quoted", ["a", "two\nlines", 'with "quotes"'])
def test_lines_are_those_of_the_file_in_every_block(tmp_path, quoted):
    n = 40
    columns = {
        "ds": [quoted if i == 20 else "a" for i in range(n)],
        "x": [*(0.5 * i for i in range(n - 1)), "x"],
        "y": list(range(n)),
    }
    path = write(tmp_path / "runs.csv", columns)
    line = n + 1 + quoted.count("\n")
    with pytest.raises(InputError, match=rf"'x' holds 'x' in line {line} of runs.csv, among 39"):
        History.from_csv(path, **WANTED)
    with path.open("a", encoding="utf-8") as stream:
        stream.write("\nb,1\n")
    with pytest.raises(InputError, match=rf"line {line + 2}: 2 cells"):
        csv_columns(path)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_in_ascii_stays_text(tmp_path, text):
    n = 12
    cells = [text if i % 2 else "7" for i in range(n)]
    columns = {"ds": ["a"] * n, "x": range(n), "k": cells, "y": [float(i) for i in range(n)]}
    file = History.from_csv(write(tmp_path / "runs.csv", columns), **WANTED)
    frame = History.from_frame(columns, **WANTED)
    assert file.space["k"] == frame.space["k"] == Categorical("k", tuple(sorted(("7", text))))
    assert typed([text, "7"]) == [text, "7"]
    outputs = {**columns, "y": [text, *columns["y"][1:]]}
    with pytest.raises(InputError, match="output column 'y' holds"):
        History.from_frame(outputs, **WANTED)
