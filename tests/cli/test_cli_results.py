"""Results as people write them: decimal commas, units, values beyond the limits of the output."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from metakel import History, learn_prior
from metakel.errors import InputError
from metakel.space.configurations import quantity


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
    assert "yield [%] is 690, far beyond its range of 0 to 100" in wrong.err
    assert metakel("tell", "new.jsonl", 101.2, "--number", 0).code == 0
    assert metakel("tell", "new.jsonl", -50, "--number", 0, "--correct").code == 1
    assert metakel("suggest", "share.json", "--journal", "new.jsonl").code == 0


def test_decimal_commas_and_units_in_tell(metakel, lab_prior):
    Path("prior.json").write_bytes(lab_prior)
    metakel("suggest", "prior.json", "--journal", "new.jsonl")
    told = metakel("tell", "new.jsonl", "71,5 %", "--number", 0, "--set", "heat=49,4 °C")
    assert told.code == 0, told.err
    assert "read '71,5 %' as 71.5" in told.err
    (trial,) = json.loads(metakel("status", "new.jsonl", "--json").out)["trials"]
    assert (trial["configuration"]["heat"], trial["value"]) == (49.4, 71.5)


def test_observed_runs_and_candidates_are_read_from_workbooks_too(metakel, lab_prior):
    openpyxl = pytest.importorskip("openpyxl")
    Path("prior.json").write_bytes(lab_prior)
    book = openpyxl.Workbook()
    for row in (["Notes", "Author"], ["sixty is too hot", "B"]):
        book.active.append(row)
    page = book.create_sheet("runs")  # found by its columns
    for row in (["heat", "hours", "yield"], [60.5, 6, 71.5], [49.4, 5, 66.1]):
        page.append(row)
    book.save("runs.xlsx")
    seen = metakel("suggest", "prior.json", "--observed", "runs.xlsx")
    assert seen.code == 0, seen.err
    assert "2 runs of runs.xlsx added" in seen.err
    chosen = metakel("suggest", "prior.json", "--candidates", "runs.xlsx", "--json")
    assert chosen.code == 0, chosen.err
    assert json.loads(chosen.out)[0]["configuration"]["heat"] in (60.5, 49.4)
