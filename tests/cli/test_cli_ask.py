"""``metakel suggest`` and ``tell``: tuning by hand, with a journal or with one file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from strangers_table import OUTPUT, TASK

from metakel.cli.options import read_space
from metakel.errors import InputError
from metakel.io import csv_columns
from metakel.space import Categorical, Float, Ordinal, Space


def test_suggestions_are_noted_and_told(metakel, prior):
    first = json.loads(metakel("suggest", prior, "-n", 2, "--journal", "j", "--json").out)
    assert [s["number"] for s in first] == [0, 1]
    assert metakel("tell", "j", "-3.5", "--number", 1).code == 0
    told = metakel("tell", "j", "88.5")  # the only one left
    assert "2 values" in told.out
    events = [json.loads(line) for line in Path("j").read_text().splitlines()]
    values = {e["number"]: e["value"] for e in events if e["event"] == "told"}
    assert values == {1: -3.5, 0: 88.5}
    third = json.loads(metakel("suggest", prior, "--journal", "j", "--json").out)
    assert third[0]["number"] == 2
    assert third[0]["configuration"] not in [s["configuration"] for s in first]


def test_one_suggestion_is_explained_in_full(metakel, prior):
    found = metakel("suggest", prior)
    assert "past tasks had" in found.err
    assert "where" in found.err
    assert "afer" in found.err
    (entry,) = json.loads(metakel("suggest", prior, "--json").out)
    assert entry["low"] <= entry["mean"] <= entry["high"]
    assert entry["why"] in found.err


def test_observed_runs_move_the_suggestion(metakel, prior, tmp_path):
    rows = ["learning rate,n=layers,opt imizer,acc %,note"]
    rows += [f"{rate},4,adam,{value},x" for rate, value in ((0.01, 20), (0.02, 21), (0.3, 95))]
    rows += ["0.5,4,adam,,failed"]
    (tmp_path / "seen.csv").write_text("\n".join(rows))
    plain = json.loads(metakel("suggest", prior, "--json").out)
    result = metakel("suggest", prior, "--observed", "seen.csv", "--json")
    assert "3 runs of seen.csv added" in result.err
    assert json.loads(result.out)[0]["configuration"] != plain[0]["configuration"]
    (tmp_path / "seen.csv").write_text("\n".join([*rows[:3], "0.4,4,adam,930,slip"]))
    refused = metakel("suggest", prior, "--observed", "seen.csv")
    assert "seen.csv: acc % is 930, far beyond its range" in refused.err
    assert metakel("suggest", prior, "--observed", "seen.csv", "--confirm").code == 0
    (tmp_path / "seen.csv").write_text("learning rate,acc %\n0.1,3\n")
    assert "no column 'n=layers'" in metakel("suggest", prior, "--observed", "seen.csv").err


def test_names_of_columns_may_differ_in_case_and_spaces(metakel, prior, tmp_path):
    rows = ["Learning  Rate,N=Layers,opt imizer,ACC %", "0.01,4,adam,80", "0.02,5,sgd,70"]
    (tmp_path / "seen.csv").write_text("\n".join(rows))
    seen = metakel("suggest", prior, "--observed", "seen.csv")
    assert "2 runs of seen.csv added" in seen.err
    listed = metakel("suggest", prior, "--candidates", "seen.csv", "--json")
    assert json.loads(listed.out)[0]["configuration"]["n=layers"] in (4, 5)


def test_observed_runs_of_several_tasks_are_refused_or_those_of_the_task_taken(
    metakel, prior, history
):
    refused = metakel("suggest", prior, "--observed", history)
    assert refused.code == 1
    assert "expected runs of this task only" in refused.err
    assert "--task NAME" in refused.err
    names = csv_columns(history)[TASK]
    name, count = names[0], names.count(names[0])
    taken = metakel("suggest", prior, "--observed", history, "--task", name)
    assert taken.code == 0, taken.err
    assert f"{count} rows are of {name}" in taken.err


def test_runs_of_a_past_task_count_twice_and_a_sheet_may_be_named(
    metakel, prior, history, tmp_path
):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["learning rate", "n=layers", "opt imizer", "acc %"])
    book.active.append([0.01, 4, "adam", 80])
    book.active.title = "task, 0"
    page = book.create_sheet("new")
    page.append(["learning rate", "n=layers", "opt imizer", "acc %"])
    for rate in (0.02, 0.03):
        page.append([rate, 4, "adam", 70])
    book.save(tmp_path / "seen.xlsx")
    assert "count twice" in metakel("suggest", prior, "--observed", "seen.xlsx").err
    found = metakel("suggest", prior, "--observed", "seen.xlsx", "--sheet", "new").err
    assert "2 runs of seen.xlsx added" in found
    assert "count twice" not in found
    listed = metakel("suggest", prior, "--candidates", "seen.xlsx", "--sheet", "new", "--json")
    assert json.loads(listed.out)[0]["configuration"]["learning rate"] in (0.02, 0.03)


def test_tell_without_a_pending_trial_says_how_to_tell_a_run_of_its_own(metakel, prior):
    metakel("suggest", prior, "--journal", "run.jsonl")
    metakel("tell", "run.jsonl", 50)
    again = metakel("tell", "run.jsonl", 51)
    assert again.code == 1
    assert "no trial is pending" in again.err
    assert "--set name=value" in again.err


def test_what_is_possible_may_change_within_a_journal(metakel, prior, caplog):
    def asked(*said):
        found = metakel("suggest", prior, "--journal", "j", *said, "--json")
        assert found.code == 0, found.err
        return json.loads(found.out)[0]["configuration"]

    assert asked("--fix", "n=layers=5")["n=layers"] == 5
    assert asked("--range", "learning rate=0.001..0.002")["learning rate"] <= 0.002
    assert asked("--exclude", "opt imizer=adam")["opt imizer"] != "adam"
    free = metakel("suggest", prior, "--journal", "j")
    assert free.code == 0
    assert "begun with parameters held fixed" in caplog.text
    assert metakel("report", prior, "--journal", "j").code == 0


def test_parameters_can_be_held(metakel, prior):
    result = metakel("suggest", prior, "--fix", "n=layers=5", "--fix", "opt imizer=sgd", "--json")
    x = json.loads(result.out)[0]["configuration"]
    assert (x["n=layers"], x["opt imizer"]) == (5, "sgd")
    assert "expected name=value" in metakel("suggest", prior, "--fix", "layers=5").err
    assert "expected one of" in metakel("suggest", prior, "--fix", "opt imizer=no").err


def test_another_configuration_can_be_told(metakel, prior):
    metakel("suggest", prior, "--journal", "j")
    words = ("--set", "learning rate=0.1", "--set", "n=layers=3", "--set", "opt imizer=sgd")
    assert metakel("tell", "j", "50", *words).code == 0
    assert "parameter 'n=layers' is missing" in metakel("tell", "j", "50", *words[:2]).err
    half = (*words[:2], "--set", "n=layers=2.5", *words[4:])
    assert "n=layers is 2.5, beside integer" in metakel("tell", "j", "1", *half).err


def test_mistakes_are_said_and_change_nothing(metakel, prior):
    metakel("suggest", prior, "-n", 2, "--journal", "j")
    before = Path("j").read_text()
    assert "Say its number: 0, 1" in metakel("tell", "j", "1").err
    assert "trial 7 is not pending" in metakel("tell", "j", "1", "--number", 7).err
    assert "expected a number" in metakel("tell", "j", "good", "--number", 0).err
    assert metakel("tell", "j").code == 2
    assert metakel("tell", "j", "1", "--failed").code == 2
    assert metakel("tell", "j", "1", "--drop", "--number", 0).code == 2
    assert metakel("tell", "j", "--drop").code == 2
    assert metakel("tell", "j", "1", "--correct").code == 2
    assert "trial 0 has no result" in metakel("tell", "j", "1", "--correct", "--number", 0).err
    assert metakel("tell", "absent", "1").code == 1
    assert "prior.json is not a journal: it holds no event" in metakel("tell", prior, "1").err
    assert Path("j").read_text() == before
    assert metakel("tell", "j", "--failed", "--number", 0, "--reason", "oom").code == 0
    assert "trial 0 is not pending" in metakel("tell", "j", "1", "--number", 0).err


def test_several_choices_are_left_out_at_once():
    solvent = Categorical("solvent", ("THF", "DMF", "a,b", "MeOH"))
    space = Space((solvent, Ordinal("depth", (2, 4, 6, 8)), Float("T", 30, 100)))

    def left(name, *said):
        return read_space(space, None, [f"{name}={text}" for text in said], None)[name].choices

    assert left("solvent", "THF, dmf") == ("a,b", "MeOH")
    assert left("solvent", "a,b") == ("THF", "DMF", "MeOH")
    assert left("solvent", "THF", "MeOH") == ("DMF", "a,b")
    assert left("depth", "3..6") == (2, 8)
    assert left("depth", "2,8") == (4, 6)
    for said in ("T=60..80", "T=60"):
        with pytest.raises(InputError, match="only choices can be left out") as found:
            read_space(space, None, [said], None)
        assert "--range T=LOW..HIGH, once below and once above" in found.value.as_typed()
    with pytest.raises(InputError, match="'solvent' without 'NMP'; expected one of its choices"):
        left("solvent", "THF,NMP")


def rows_of(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_twelve_experiments_with_one_file_and_one_command(metakel, prior, tmp_path):
    path, known = tmp_path / "runs.csv", set()
    for _ in range(3):
        found = metakel("suggest", prior, "--table", path, "-n", 4)
        assert found.code == 0, found.err
        assert "fill in" in found.err
        rows = rows_of(path)
        text = path.read_text(encoding="utf-8-sig").splitlines()
        known |= {line.rstrip(",") for line in text[-4:]}
        for k, row in enumerate(rows[-4:]):
            row[OUTPUT] = 50 + k
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    assert len(rows) == len(known) == 12
    found = metakel("suggest", prior, "--table", path, "--json")
    (answer,) = json.loads(found.out)
    assert answer["place"] == "line 14 of runs.csv"
    assert answer["number"] == 12


@pytest.mark.parametrize("option", ["--journal", "--observed"])
def test_the_table_is_the_only_record(metakel, prior, option):
    found = metakel("suggest", prior, "--table", "runs.csv", option, "other.csv")
    assert found.code == 2
    assert "the table is the record" in found.err


def test_a_sheet_needs_a_table(metakel, prior):
    found = metakel("suggest", prior, "--sheet", "runs")
    assert found.code == 2
    assert "--sheet without --table" in found.err
