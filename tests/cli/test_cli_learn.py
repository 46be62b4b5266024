"""``metakel learn``, ``look`` and ``show``: on a stranger's table, and what they print again."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import numpy as np
import pytest
from strangers_table import OUTPUT, TASK

import metakel as mk
from metakel.data import History
from metakel.errors import InputError
from metakel.io import Roles, Schema, propose, read, read_csv

COLUMNS = ("--task", TASK, "--output", OUTPUT)


def test_a_strangers_table_is_learned_from_and_every_guess_is_said(metakel, history):
    result = metakel("learn", "-v", history, *COLUMNS, "-o", "p.json")
    assert result.code == 0
    assert "read 1" in result.out
    assert "with a missing input" in result.out
    assert "without a finite output" in result.out
    assert "learning rate is taken on a log scale" in result.out
    assert "machine never varies and is kept fixed at 7" in result.out
    assert "büild has one value in every task" in result.out
    assert "The history is used" in result.out
    assert "\x1b" not in result.out  # plain text in a pipe
    for words in ("integer in [1, 8]", "log scale", "one of $(touch", "fixed at 7"):
        assert words in result.out.partition("parameters\n")[2].partition("Prior from")[0]
    shown = metakel("show", "p.json", "-v")
    assert shown.code == 0
    assert "n=layers" in shown.out
    assert "integer in [1, 8]" in shown.out


def test_no_file_a_folder_or_a_picture(metakel, tmp_path):
    assert "there is no file" in metakel("learn", "-v", "absent.csv", *COLUMNS).err
    assert metakel("learn", "-v", tmp_path, *COLUMNS).code == 1
    (tmp_path / "p.csv").write_bytes(bytes(range(256)))
    picture = metakel("learn", "-v", "p.csv", *COLUMNS)
    assert picture.code == 1
    assert "Traceback" not in picture.err
    assert "is not a saved prior" in metakel("show", _written(tmp_path / "x.json", "{")).err
    assert (
        "expected 'metakel.Prior', version" in metakel("show", _written(tmp_path / "y", "{}")).err
    )


def _written(path, text):
    path.write_text(text)
    return path


def test_a_result_that_cannot_be_written(metakel, history):
    result = metakel("learn", "-v", history, *COLUMNS, "-o", f"{history}/prior.json")
    assert result.code == 4
    assert "Traceback" not in result.err
    if Path("/dev/full").exists():
        assert metakel("learn", "-v", history, *COLUMNS, "-o", "/dev/full").code == 4


def test_help_is_short_and_names_the_exit_codes(metakel):
    result = metakel("--help")
    assert result.code == 0
    for name in ("learn", "show", "suggest", "tell", "tune", "report", "demo", "paper"):
        assert f"  {name} " in result.out
    assert "130 interrupted" in " ".join(result.out.split())
    assert "--install-completion" in result.out
    assert metakel("lern").code == 2


# A table of somebody who does not write Python


def lab_table(delimiter=",", decimal=".", stray=""):
    """Three substrates with ten runs each; a run number and a flag beside the parameters."""
    lines = [delimiter.join(["run", "substrate", "hours", "stirred", "yield"])]
    for i in range(30):
        hours, stirred = 1.5 + (7 * i) % 10, i % 3 == 0
        value = f"{50 - (hours - 5) ** 2 + 3 * stirred + i // 10}".replace(".", decimal)
        cells = [str(i + 1), f"S{i // 10}", str(hours).replace(".", decimal), str(stirred), value]
        lines.append(delimiter.join(cells))
    text = "\n".join(lines) + "\n"
    return text.replace(
        delimiter.join(["", "5.5", ""]), delimiter.join(["", stray or "5.5", ""]), 1
    )


LAB = ("lab.csv", "--task", "substrate", "--output", "yield")
SPACE = """
[hours]
type = "float"
low = 0.5
high = 8
[stirred]
type = "categorical"
values = [true, false]
"""


@pytest.mark.parametrize(
    ("text", "words", "notes"),
    [
        (lab_table(";", ","), (), ("cells are separated by ';'", "decimal commas")),
        (
            lab_table("|"),
            ("--delimiter", "|"),
            ("left out: run is a running number", "to use such a column anyway"),
        ),
        (lab_table("\t"), ("--delimiter", "tab"), ()),
        (lab_table(), ("--input", "hours,stirred"), ()),
        (lab_table(), ("--input", "hours", "--input", "stirred"), ()),
    ],
)
def test_a_table_of_a_spreadsheet_is_learned_from(metakel, tmp_path, text, words, notes):
    (tmp_path / "lab.csv").write_text(text)
    result = metakel("learn", "-v", *LAB, *words)
    assert result.code == 0, result.err
    assert "  hours    float in [1.5, 10.5]\n  stirred  one of False, True\n" in result.out
    for note in notes:
        assert note in result.out
    fixed = metakel("suggest", "prior.json", "--fix", "stirred=true", "--json")
    assert json.loads(fixed.out)[0]["configuration"]["stirred"] is True


def test_a_column_whose_name_has_a_comma_is_one_column(metakel, tmp_path):
    text = lab_table(";").replace("hours", "hours, net", 1)
    (tmp_path / "lab.csv").write_text(text)
    result = metakel("learn", "-v", *LAB, "--delimiter", ";", "--input", "hours, net")
    assert result.code == 0, result.err
    assert "  hours, net  float" in result.out


@pytest.mark.parametrize(
    ("text", "words", "messages"),
    [
        (
            lab_table(stray="x"),
            (),
            ("'hours' holds 'x' in line 4 of lab.csv", "--category 'hours'"),
        ),
        (
            lab_table(),
            ("--space", "s.toml"),
            (
                "line 3 of lab.csv, task S0: parameter 'hours' is 8.5",
                "allow other values by --extrapolate",
            ),
        ),
        (
            "substrate,hours,heat,yield\nA,1,,3\nA,2,,4\nB,3,,4\nB,3,,1\n",
            ("--input", "hours,heat"),
            ("with an empty 'heat'", "--default 'heat=value'", "--exclude heat"),
        ),
    ],
)
def test_advice_can_be_typed(metakel, tmp_path, text, words, messages):
    (tmp_path / "lab.csv").write_text(text)
    (tmp_path / "s.toml").write_text(SPACE)
    refused = metakel("learn", "-v", *LAB, *words)
    assert refused.code == 1
    for message in messages:
        assert message in refused.err
    assert "=[" not in refused.err
    assert "=True" not in refused.err


def test_what_was_advised_works(metakel, tmp_path):
    (tmp_path / "lab.csv").write_text(lab_table())
    (tmp_path / "s.toml").write_text(SPACE)
    allowed = metakel("learn", "-v", *LAB, "--space", "s.toml", "--extrapolate")
    assert allowed.code == 0, allowed.err
    assert "9 rows lie outside of the ranges of the space" in allowed.out
    (tmp_path / "lab.csv").write_text(lab_table(stray="x"))
    assert "  hours    one of 1.5, " in metakel("learn", "-v", *LAB, "--category", "hours").out
    for words in (("--extrapolate",), ("--space", "s.toml", "--category", "hours")):
        assert metakel("learn", "-v", *LAB, *words).code == 2


def with_bookkeeping() -> str:
    """The table of the laboratory with a seed and a host."""
    header, *rows = lab_table().splitlines()
    more = [f"{row},{i * 7 % 13},node{i % 2}" for i, row in enumerate(rows)]
    return "\n".join([f"{header},seed,host", *more]) + "\n"


def test_suspects_are_left_out_with_a_line_to_paste_that_takes_them(metakel, tmp_path):
    (tmp_path / "lab.csv").write_text(with_bookkeeping())
    result = metakel("learn", "-v", *LAB)
    assert result.code == 0, result.err
    assert "seed looks like bookkeeping" in result.out
    assert "--input hours,stirred,seed,host" in result.out
    taken = metakel("learn", "-v", *LAB, "--input", "hours,stirred,seed,host", "--json")
    names = [p["name"] for p in json.loads(taken.out)["parameters"]]
    assert names == ["hours", "stirred", "seed", "host"]
    fewer = metakel("learn", "-v", *LAB, "--exclude", "stirred,seed", "--json")
    assert [p["name"] for p in json.loads(fewer.out)["parameters"]] == ["hours"]


def test_a_person_at_a_terminal_is_asked_about_suspects(metakel, tmp_path, monkeypatch):
    (tmp_path / "lab.csv").write_text(with_bookkeeping())
    monkeypatch.setattr("metakel.cli.learn.at_terminal", lambda: True)
    questions = []

    def confirm(question, **_):
        questions.append(question)
        return question.startswith("host")

    monkeypatch.setattr("typer.confirm", confirm)
    result = metakel("learn", "-v", *LAB)
    assert [q.split()[0] for q in questions] == ["seed", "host"]
    assert "  host     one of node0, node1" in result.out
    assert "  seed " not in result.out


def test_several_files_with_other_columns_are_learned_from_together(metakel, tmp_path):
    (tmp_path / "one.csv").write_text("data,rate,score\na,0.1,5\na,0.2,6\nb,0.3,7\nb,0.15,4\n")
    (tmp_path / "two.csv").write_text("data,rate,drop,score\nc,0.1,0.5,5\nc,0.2,0.25,6\n")
    words = ("learn", "one.csv", "two.csv", "--task", "data", "--output", "score")
    result = metakel(*words)
    assert result.code == 0, result.err
    assert "read 6 of 6 rows from one.csv and two.csv" in result.out
    assert "drop is not recorded in 2 of 3 tasks" in result.out
    assert "not recorded" not in metakel(*words, "--default", "drop=0").out
    refused = metakel("learn", "-v", "one.csv", "sqlite:///past.db")
    assert refused.code == 2
    assert "expected files, or one storage" in refused.err


def test_learn_prints_ten_lines_that_a_practitioner_acts_on(metakel, history):
    result = metakel("learn", history, *COLUMNS)
    lines = result.out.splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith("read 1")
    assert lines[1].startswith("parameters: learning rate (float in")
    assert any("The history is used" in line for line in lines)
    held = mk.Prior.load("prior.json").heldout
    worth = np.exp(np.median(held.log_scores))  # over white noise with the task's level and spread
    said = f"{held.better_than_cold} of {held.tasks.size} held-out tasks. Held-out values are"
    assert any(f"{said} typically {worth:.2g} times as likely" in line for line in lines)
    assert any(line.startswith("tried first: learning rate=") for line in lines)
    assert any(line.startswith("note: left out:") for line in lines)
    assert "metakel show -v" in lines[-1]
    assert "next: metakel suggest" in result.err
    short = metakel("show", "prior.json").out.splitlines()
    assert short[1:] == lines[1:]
    assert len(metakel("show", "prior.json", "-v").out.splitlines()) > len(short)


def test_what_somebody_has_to_answer_is_said_first(metakel, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["data,rate,host,seed,comment,auc"]
    lines += [
        f"d{i % 4},{rng.uniform():.3f},h{i % 3},{i * 7 % 60},c{i % 5},{rng.uniform(0.6, 0.9):.3f}"
        for i in range(60)
    ]
    lines[30] = lines[30].rpartition(",")[0] + ",999"
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    said = metakel("learn", "runs.csv", "--task", "data", "--output", "auc").out
    notes = [line for line in said.splitlines() if line.startswith("note: ")]
    assert notes[0].startswith("note: auc is 999 in line 31")
    assert notes[1].startswith("note: left out")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    lines = ["set;kind;rate;depth;min_gain;seed;auc"]
    for i in range(60):
        kind = rng.choice("AB")
        depth = rng.randint(1, 9) if kind == "A" else ""
        rate = f"{10 ** rng.uniform(-4, 0):.6f}".replace(".", ",")
        gain, value = (f"{rng.random():.5f}".replace(".", ",") for _ in range(2))
        lines.append(f"t{i % 5};{kind};{rate};{depth};{gain};{rng.randint(0, 10**9)};{value}")
    Path("runs.csv").write_text("\n".join(lines))
    return "runs.csv"


def test_the_options_that_are_printed_say_the_same(metakel, table):
    found = metakel("look", table, "--task", "set", "--output", "auc", "--json")
    assert found.code == 0, found.err
    shown = json.loads(found.out)
    assert set(shown["parameters"]) == {"kind", "rate", "depth", "min_gain"}
    assert "seed" in shown["doubtful"]
    words = shlex.split(shown["command"])
    assert words[:3] == ["metakel", "learn", table]
    assert metakel(*words[1:], "-o", "a.json").code == 0
    again = metakel("look", *words[2:7], "--json")
    assert json.loads(again.out)["parameters"] == shown["parameters"]
    plain = metakel("look", table, "--task", "set", "--output", "auc")
    assert "only where kind is A" in plain.out
    assert "has decimal commas" in plain.err


def test_without_a_task_the_columns_are_named(metakel, table):
    found = metakel("look", table)
    assert found.code == 2
    assert "rate" in found.err
    assert "min_gain" in found.err


def test_reading_obeys_what_was_proposed(table):
    source = read_csv(table, task="set", output="auc")
    schema = propose(source)
    tasks, space, report = read(source, schema)
    history = History.from_csv(table, task="set", output="auc")
    assert space == history.space
    assert report == history.report
    for task, known in zip(tasks, history, strict=True):
        assert task["X"].tolist() == known.X.tolist()
        assert task["y"].tolist() == known.y.tolist()


def test_reading_refuses_what_does_not_fit_with_its_line(table):
    schema = propose(read_csv(table, task="set", output="auc"))
    text = Path(table).read_text()
    Path("more.csv").write_text(text + "\nt1;C;0,5;;0,5;1;0,5")
    with pytest.raises(InputError, match=r"line 62 of more.csv, task t1: parameter 'kind' is 'C'"):
        read(read_csv("more.csv", task="set", output="auc"), schema)
    with pytest.raises(InputError, match="propose"):
        read(read_csv(table, task="set", output="auc"), Schema(Roles("set", "auc")))


def test_several_sheets_and_other_names(metakel, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    rng, book = random.Random(0), openpyxl.Workbook()
    for k, name in enumerate(("rate", "learning_rate")):
        page = book.create_sheet(f"week {k}")
        page.append([name, "auc"])
        for _ in range(12):
            page.append([rng.random(), rng.random()])
    book.save("runs.xlsx")
    words = ["runs.xlsx", "--output", "auc", "--rename", "learning_rate=rate"]
    both = metakel("look", *words, "--sheet", "week 0", "--sheet", "week 1", "--json")
    assert both.code == 0, both.err
    shown = json.loads(both.out)
    assert set(shown["parameters"]) == {"rate"}
    assert "--sheet 'week 0' --sheet 'week 1' --rename learning_rate=rate" in shown["command"]
    learned = metakel(*shlex.split(shown["command"])[1:])
    assert learned.code == 0, learned.err
    assert "read 24 of 24 rows" in learned.out
    every = metakel("look", *words, "--sheet", "*", "--json")
    assert set(json.loads(every.out)["parameters"]) == {"rate"}
