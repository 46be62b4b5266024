"""``metakel look`` says what a table is taken for, and the options that it prints say the same."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import Roles, Schema, propose, read, read_csv


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
