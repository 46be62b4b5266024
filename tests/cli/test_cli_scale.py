"""Shares or per cent: past tasks decide the scale of an output, wherever a value is written."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pytest

from metakel import History, Prior, learn_prior
from metakel.tuner.store import Scale

openpyxl = pytest.importorskip("openpyxl")
FORMAT = "0.0%"
BESIDE = [[(0.45,), "47,1 %"], [(0.471,), (0.45,)], [0.45, (0.471,)]]


@cache
def _prior(name, factor):
    rng = np.random.default_rng(3)
    temperature = rng.uniform(30, 100, 60)
    level = np.repeat(rng.normal(0.45, 0.05, 5), 12)
    values = level - 0.0001 * (temperature - 70) ** 2 + rng.normal(0, 0.01, 60)
    table = {
        "Batch": [f"batch {k // 12}" for k in range(60)],
        "Temperature": temperature.round(1).tolist(),
        name: (factor * values.round(3)).tolist(),
    }
    return learn_prior(History.from_frame(table, task="Batch", output=name), certify="none")


@pytest.fixture
def prior_of(tmp_path):
    """A prior of shares or of per cent, as a file."""

    def learn(factor, name="Yield"):
        _prior(name, factor).save(tmp_path / "prior.json")
        return tmp_path / "prior.json"

    return learn


def workbook(path, cells, name="Yield"):
    """Results in a workbook; those in a tuple are shown as per cent."""
    book = openpyxl.Workbook()
    book.active.append(["Temperature", name])
    for k, cell in enumerate(cells):
        shown = isinstance(cell, tuple)
        book.active.append([60 + k, cell[0] if shown else cell])
        if shown:
            book.active.cell(2 + k, 2).number_format = FORMAT
    book.save(path)
    return path


def recorded(metakel, prior, cells, door, *options):
    """The answer of a command, and the best value that it took from the cells."""
    if door == "tell":
        journal = f"{door}.jsonl"
        metakel("suggest", prior, "--journal", journal)
        found = metakel("tell", journal, *cells, "--number", 0, "--json", *options)
        return found, json.loads(found.out)["value"] if found.code == 0 else None
    path = workbook("runs.xlsx", cells)
    if door == "csv":
        path = "runs.csv"
        lines = [f'{60 + k},"{cell}"' for k, cell in enumerate(cells)]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(["Temperature,Yield", *lines, ""]))
    option = "--observed" if door == "observed" else "--table"
    found = metakel("suggest", prior, option, path, *options)
    best = re.search(r"best so far ([0-9.e-]+)\.\s", " ".join(found.err.split()) + " ")
    return found, float(best[1]) if best else None


@pytest.mark.parametrize("door", ["table", "csv", "observed", "tell"])
@pytest.mark.parametrize("text", ["47,1 %", "47.1%", "~47,1 %"])
@pytest.mark.parametrize("factor", [1, 100])
def test_a_per_cent_sign_means_the_scale_of_past_tasks(metakel, prior_of, door, text, factor):
    found, value = recorded(metakel, prior_of(factor), [text], door)
    assert found.code == 0, found.err
    assert value == pytest.approx(0.471 * factor)
    assert "ALARM" not in found.err
    converted = "0.471" in found.err.replace("best so far 0.471", "")
    assert converted == (factor == 1)  # and said


@pytest.mark.parametrize(
    ("door", "cells"),
    [
        *((door, cells) for door in ("table", "observed") for cells in BESIDE),
        ("table", [(0.471,), ">40 %"]),
    ],
)
def test_cells_in_the_format_per_cent_do_too(metakel, prior_of, door, cells):
    """Whatever stands beside them: the other cells of a column no longer decide."""
    found, value = recorded(metakel, prior_of(1), cells, door)
    assert found.code == 0, found.err
    assert value == pytest.approx(0.471)
    shown = [cell for cell in cells if not isinstance(cell, float)]
    found, value = recorded(metakel, prior_of(100), shown, door)
    assert found.code == 0, found.err
    assert value == pytest.approx(47.1 if (0.471,) in shown or "47,1 %" in shown else 45)


@pytest.mark.parametrize("door", ["table", "csv", "observed", "tell"])
@pytest.mark.parametrize(
    ("factor", "cell", "remedy"),
    [(1, 47, "write 0.47 or '47 %'"), (100, 0.47, "write 47, or '0.47 %'")],
)
def test_a_number_on_the_other_scale_is_refused(metakel, prior_of, door, factor, cell, remedy):
    found, _ = recorded(metakel, prior_of(factor), [cell], door)
    assert found.code == 1
    assert remedy in found.err
    assert "--confirm" in found.err
    found, value = recorded(metakel, prior_of(factor), [cell], door, "--confirm")
    assert (found.code, value) == (0, cell)


@pytest.mark.parametrize("door", ["table", "observed", "tell"])
@pytest.mark.parametrize("cell", [671, -0.1, "671", "6500 %"])
def test_what_no_share_can_be_is_refused(metakel, prior_of, door, cell):
    found, _ = recorded(metakel, prior_of(1), [cell], door)
    assert found.code == 1
    assert "far beyond its range of 0 to 1" in found.err


def test_a_poor_result_is_told_with_a_sign(metakel, prior_of):
    """0.4 % is no share of 0.4, on either scale."""
    for factor in (1, 100):
        found, value = recorded(metakel, prior_of(factor), ["0,4 %"], "table")
        assert found.code == 0, found.err
        assert value == pytest.approx(0.004 * factor)


def test_the_row_that_holds_it_is_named(metakel, prior_of):
    found, _ = recorded(metakel, prior_of(1), [(0.45,), "47,1 %", 58], "table")
    assert "row 4 of runs.xlsx: Yield is 58" in found.err


def test_new_rows_are_shown_as_those_above_or_as_past_tasks_have_them(metakel, prior_of):
    """Who types 67 into such a cell means 0.67."""
    metakel("suggest", prior_of(1), "--table", workbook("runs.xlsx", [(0.45,), (0.471,)]), "-n", 2)
    page = openpyxl.load_workbook("runs.xlsx").active
    assert [page.cell(k, 2).number_format for k in (2, 3, 4, 5)] == [FORMAT] * 4
    assert [page.cell(k, 2).value for k in (4, 5)] == [None, None]
    for factor, shown in ((1, FORMAT), (100, "General")):
        metakel("suggest", prior_of(factor), "--table", f"new{factor}.xlsx")
        page = openpyxl.load_workbook(f"new{factor}.xlsx").active
        assert page.column_dimensions["B"].number_format == shown
        assert (2, 2) not in page._cells  # which would have a format of its own


@pytest.mark.parametrize("header", ["Yield (%)", "Yield [%]"])
@pytest.mark.parametrize("option", ["--table", "--observed"])
def test_a_column_that_is_nearly_the_output_is_named(metakel, prior_of, header, option):
    table = workbook("runs.xlsx", [0.45], header)
    found = metakel("suggest", prior_of(1), option, table)
    assert found.code == 1
    assert f"no column 'Yield' (did you mean '{header}'?)" in found.err


def test_an_output_that_is_no_share_takes_any_number():
    loss = Scale("loss", usual=(0.2, 0.5))
    assert [loss.read(v, v) for v in (30.0, 0.002, 0.4)] == [30.0, 0.002, 0.4]
    assert loss.read(30.0, "30 %") == 0.3
    assert loss.read(0.4, "0.4 %") == 0.4  # as an impurity, of which past tasks have 0.2 to 0.5
    with pytest.raises(ValueError, match=r"may be 0\.05 or 0\.0005, .*without a per cent sign"):
        loss.read(0.05, "0.05 %")
    named = Scale("Impurity (%)", usual=(0.2, 0.5))
    assert named.read(0.05, "0.05 %") == 0.05


@pytest.mark.parametrize("order", [1, -1])
def test_per_cent_signs_in_one_file_beside_shares_in_the_other(metakel, tmp_path, order):
    """Cells of a workbook that are shown as per cent are shares, and so is `40,1 %` beside them."""
    book = openpyxl.Workbook()
    book.active.append(["Batch", "Temperature", "Yield"])
    for k in range(6):
        book.active.append([f"batch {k // 3}", 50 + k, 0.4 + k / 100])
        book.active.cell(2 + k, 3).number_format = FORMAT
    book.save(tmp_path / "reactions.xlsx")
    lines = ["Batch,Temperature,Yield", 'new,60,"40,1 %"', 'new,61,"43,5 %"', 'new,62,"<35 %"']
    (tmp_path / "more.csv").write_text("\n".join(lines), encoding="utf-8")
    files = ["reactions.xlsx", "more.csv"][::order]
    found = metakel("learn", *files, "--task", "Batch", "--output", "Yield", "--out", "p.json")
    assert found.code == 0, found.err
    assert "'40,1 %' is read as 0.401" in found.out + found.err
    assert Prior.load("p.json").best_runs.values.max() < 0.5
