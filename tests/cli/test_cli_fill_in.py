"""A laboratory's way: suggestions as rows of its own table, results back from there."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from metakel import History, learn_prior
from metakel.cli.outputs import quantity
from metakel.errors import InputError
from metakel.io import append_csv, append_excel, csv_columns, excel_columns

WANTED = ("--task", "substrate", "--output", "yield")


def rows(tasks: int = 8, runs: int = 8) -> list[dict[str, object]]:
    rng = random.Random(0)
    found = []
    for s in range(tasks):
        best = rng.gauss(60, 5)
        for _ in range(runs):
            heat, hours = round(rng.uniform(20, 100), 1), rng.randint(1, 12)
            value = 80 - ((heat - best) / 10) ** 2 - (hours - 6) ** 2
            found.append({"substrate": f"S{s}", "heat": heat, "hours": hours, "yield": value})
    return found


@pytest.fixture(scope="session")
def lab_prior(tmp_path_factory) -> bytes:
    columns = {name: [row[name] for row in rows()] for name in rows()[0]}
    history = History.from_frame(columns, task="substrate", output="yield")
    path = tmp_path_factory.mktemp("lab") / "prior.json"
    learn_prior(history, certify="none").save(path)
    return path.read_bytes()


@pytest.fixture(params=["runs.xlsx", "runs.csv"])
def lab(request, metakel, lab_prior):
    pytest.importorskip("openpyxl")
    Path("prior.json").write_bytes(lab_prior)
    path = Path(request.param)
    append, read = (
        (append_excel, excel_columns) if path.suffix == ".xlsx" else (append_csv, csv_columns)
    )
    append(path, rows())
    return path, append, read


def fill_in(lab, values: dict[int, object], column: str = "yield") -> None:
    """Type results into the last rows of the table, as a person does."""
    path, append, read = lab
    columns = read(path)
    table = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for number, value in values.items():
        (row,) = [row for row in table if row["suggestion"] == f"new.jsonl {number}"]
        row[column] = value
    path.unlink()
    append(path, table)


def test_suggestions_go_to_the_table_and_results_come_back(metakel, lab):
    path, _, read = lab
    journal = ("--journal", "new.jsonl")
    asked = metakel("suggest", "prior.json", *journal, "-n", 3, "--append", path, "--task", "S99")
    assert asked.code == 0, asked.err
    assert "rounded as in the past runs: heat" in asked.err
    table = read(path)
    assert table["substrate"][-3:] == ["S99"] * 3
    assert table["yield"][-3:] == [None] * 3
    assert all(heat == round(heat, 1) for heat in table["heat"])
    fill_in(lab, {0: 71.5, 1: "failed"})
    told = metakel("tell", "new.jsonl", "--from", path)
    assert told.code == 0, told.err
    assert "2 results" in told.out
    assert "still to fill in: 2" in told.err
    status = json.loads(metakel("status", "new.jsonl", "--json").out)
    assert [t["state"] for t in status["trials"]] == ["complete", "failed", "pending"]
    assert status["trials"][0]["value"] == 71.5
    again = metakel("tell", "new.jsonl", "--from", path)
    assert "0 results" in again.out


def test_a_row_with_a_slip_is_said_and_keeps_no_other_from_being_recorded(metakel, lab):
    path, _, _ = lab
    metakel("suggest", "prior.json", "--journal", "new.jsonl", "-n", 4, "--append", path)
    fill_in(lab, {0: 71.5, 1: "8O.2", 2: "~70", 3: 69})
    told = metakel("tell", "new.jsonl", "--from", path)
    assert told.code == 1
    assert "2 results" in told.out
    assert "new.jsonl 1': the result is '8O.2'" in told.err
    assert "new.jsonl 2': the result is '~70'" in told.err
    status = json.loads(metakel("status", "new.jsonl", "--json").out)
    assert [t["state"] for t in status["trials"]] == ["complete", "pending", "pending", "complete"]
    fill_in(lab, {1: 80.2, 2: 70})
    assert metakel("tell", "new.jsonl", "--from", path).code == 0


def test_suggestions_say_what_waits_and_how_far_the_best_can_be_from_the_optimum(metakel, lab):
    suggest = ("suggest", "prior.json", "--journal", "new.jsonl", "-n", 2)
    assert "best so far" not in metakel(*suggest).err
    metakel("tell", "new.jsonl", 61, "--number", 1)
    again = metakel(*suggest)
    assert "still without a result: 0" in again.err
    assert "best so far 61. Nothing is promised about the best configuration: " in again.err


def test_a_corrected_cell_is_said_and_taken_if_asked_for(metakel, lab):
    path, _, _ = lab
    metakel("suggest", "prior.json", "--journal", "new.jsonl", "--append", path)
    fill_in(lab, {0: 50.0})
    metakel("tell", "new.jsonl", "--from", path)
    fill_in(lab, {0: "55,5 %"})
    differs = metakel("tell", "new.jsonl", "--from", path)
    assert "0 differs from the journal: 55.5 instead of 50" in differs.err
    assert "--correct takes what is in the table" in differs.err
    metakel("tell", "new.jsonl", "--from", path, "--correct")
    status = json.loads(metakel("status", "new.jsonl", "--json").out)
    assert status["trials"][0]["value"] == 55.5


def test_settings_that_were_changed_after_the_result_are_said_and_taken_if_asked_for(metakel, lab):
    path, _, _ = lab
    metakel("suggest", "prior.json", "--journal", "new.jsonl", "--append", path)
    fill_in(lab, {0: 50.0})
    metakel("tell", "new.jsonl", "--from", path)
    assert metakel("tell", "new.jsonl", "--from", path).err == ""
    fill_in(lab, {0: 33.3}, "heat")
    differs = metakel("tell", "new.jsonl", "--from", path)
    assert "0 differs from the journal: heat=33.3 instead of" in differs.err
    assert "0 results" in differs.out
    assert "1 results" in metakel("tell", "new.jsonl", "--from", path, "--correct").out
    (trial,) = json.loads(metakel("status", "new.jsonl", "--json").out)["trials"]
    assert (trial["configuration"]["heat"], trial["value"]) == (33.3, 50.0)
    fill_in(lab, {0: None})
    lost = metakel("tell", "new.jsonl", "--from", path)
    assert "no yield in the table, and 50 in the journal" in lost.err
    assert "still to fill in" not in lost.err
    fill_in(lab, {0: 50.0})
    fill_in(lab, {0: 300.0}, "heat")
    refused = metakel("tell", "new.jsonl", "--from", path, "--correct")
    assert refused.code == 1
    assert "suggestion 'new.jsonl 0'" in refused.err


def test_a_table_of_something_else_is_left_alone(metakel, lab):
    path, append, read = lab
    other = Path(f"other{path.suffix}")
    append(other, [{"batch": "S1", "speed": 3, "noise": 0.5}, {"batch": "S2", "speed": 4}])
    before = other.read_bytes()
    refused = metakel("suggest", "prior.json", "--journal", "new.jsonl", "--append", other)
    assert refused.code == 1
    assert f"{other} has the columns batch, speed, noise; expected" in refused.err
    assert other.read_bytes() == before
    assert json.loads(metakel("status", "new.jsonl", "--json").out)["pending"] == []
    part = Path(f"part{path.suffix}")
    append(part, [{"heat": 3.5, "yield": 0.5}])
    said = metakel("suggest", "prior.json", "--journal", "new.jsonl", "--append", part)
    assert f"{part} had no column hours: added" in said.err
    assert "hours" in read(part)


def test_the_table_is_learned_from_with_what_was_added(metakel, lab):
    path, _, _ = lab
    metakel("suggest", "prior.json", "--journal", "new.jsonl", "-n", 2, "--append", path)
    result = metakel("learn", path, *WANTED, "-o", "next.json", "--json")
    assert result.code == 0, result.err
    assert [p["name"] for p in json.loads(result.out)["parameters"]] == ["heat", "hours"]


def test_suggestions_that_wait_for_a_result_are_no_failed_runs(metakel, lab):
    path, _, _ = lab
    read = History.from_excel if path.suffix == ".xlsx" else History.from_csv
    metakel("suggest", "prior.json", "--journal", "new.jsonl", "-n", 2, "--append", path)
    fill_in(lab, {0: "failed"})
    failed = [t.failed for t in read(path, task="substrate", output="yield") if t.name == "new"]
    assert failed == []  # a task needs a value
    fill_in(lab, {0: 50.0})
    (new,) = [t for t in read(path, task="substrate", output="yield") if t.name == "new"]
    assert new.n == 1
    assert new.failed is None or not len(new.failed)


def test_what_cannot_be_written_leaves_nothing_pending(metakel, lab):
    Path("not.xlsx").write_text("no workbook")
    refused = metakel("suggest", "prior.json", "--journal", "new.jsonl", "--append", "not.xlsx")
    assert refused.code == 1
    assert json.loads(metakel("status", "new.jsonl", "--json").out)["pending"] == []


def test_sheets_are_of_workbooks(metakel, lab):
    path, _, _ = lab
    result = metakel("learn", path, *WANTED, "--sheet", "nowhere")
    assert result.code == (1 if path.suffix == ".xlsx" else 2)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.93", 0.93),
        ("0,93", 0.93),
        ("87,5 %", 87.5),
        ("49.4 °C", 49.4),
        ("-3e-2V", -0.03),
        ("0,125", 0.125),
        ("12 mg/l", 12.0),
        ("14:05:33", None),
        ("1 234.5", None),
        ("- 0.5", None),
        ("1_000", None),
        ("x", None),
        ("", None),
    ],
)
def test_numbers_as_people_write_them(text, number):
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["1,234", "12,345 ml"])
def test_a_comma_that_may_separate_thousands_is_refused(text):
    with pytest.raises(InputError, match="expected a decimal point, or no comma"):
        quantity(text)


def test_a_value_far_beyond_the_limits_of_the_output_is_refused(metakel, lab_prior):
    table = rows()
    columns = {name: [row[name] for row in table] for name in table[0]}
    columns["yield [%]"] = [min(max(float(y), 0), 100) for y in columns.pop("yield")]  # type: ignore[arg-type]
    history = History.from_frame(columns, task="substrate", output="yield [%]")
    learn_prior(history, certify="none").save("share.json")
    metakel("suggest", "share.json", "--journal", "new.jsonl", "-n", 2)
    wrong = metakel("tell", "new.jsonl", 690, "--number", 0)
    assert wrong.code == 1
    assert "yield [%] is 690, far beyond its limits of 0 to 100" in wrong.err
    assert metakel("tell", "new.jsonl", 101.2, "--number", 0).code == 0
    assert metakel("tell", "new.jsonl", -50, "--number", 0, "--correct").code == 1
    assert metakel("suggest", "share.json", "--journal", "new.jsonl").code == 0
    # A journal of an earlier version, which did not note the limits, goes on.
    events = [json.loads(line) for line in Path("new.jsonl").read_text().splitlines()]
    assert events[0].pop("outputs") == [0, 100]
    events[0]["version"] = 1
    lines = [json.dumps({n: v for n, v in event.items() if n != "crc"}) for event in events]
    Path("old.jsonl").write_text("\n".join(lines) + "\n")
    again = metakel("suggest", "share.json", "--journal", "old.jsonl")
    assert again.code == 0, again.err


def test_decimal_commas_and_units_in_tell(metakel, lab):
    metakel("suggest", "prior.json", "--journal", "new.jsonl")
    told = metakel("tell", "new.jsonl", "71,5 %", "--number", 0, "--set", "heat=49,4 °C")
    assert told.code == 0, told.err
    assert "read '71,5 %' as 71.5" in told.err
    (trial,) = json.loads(metakel("status", "new.jsonl", "--json").out)["trials"]
    assert (trial["configuration"]["heat"], trial["value"]) == (49.4, 71.5)
