"""Mistakes on the command line: said in a line, with an exit code, and nothing lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from paper_extra import needs_paper
from strangers_table import OUTPUT, TASK

import metakel as package
from metakel.cli.program import read_value

COLUMNS = ("--task", TASK, "--output", OUTPUT)
SEEN = "learning rate,n=layers,opt imizer,acc %"
ECHO = ("--", sys.executable, "-c", "print(80)", "{n=layers}")


def seen(*rows: str) -> Path:
    path = Path("seen.csv")
    path.write_text("\n".join([SEEN, *rows]))
    return path


# What is lost


@pytest.mark.parametrize(
    "words",
    [
        ("suggest", "prior.json", "--journal", "prior.json"),
        ("tune", "prior.json", "--journal", "prior.json", *ECHO),
        ("report", "prior.json", "-o", "prior.json"),
        ("learn", "past runs.csv", *COLUMNS, "-o", "past runs.csv"),
    ],
)
def test_no_command_overwrites_what_it_reads(metakel, prior, history, words):
    before = prior.read_bytes(), history.read_bytes()
    result = metakel(*words)
    assert result.code in (1, 4)
    assert "metakel: " in result.err
    assert (prior.read_bytes(), history.read_bytes()) == before


@pytest.mark.parametrize(
    "command", [("suggest", "prior.json"), ("tune", "prior.json", "--budget", 1)]
)
def test_text_among_observed_values_is_refused_and_named(metakel, prior, command):
    path = seen("0.01,4,adam,80", "0.02,4,adam,rather good", "0.03,4,adam,82")
    result = metakel(*command, "--observed", path, *(ECHO if command[0] == "tune" else ()))
    assert result.code == 1
    assert f"seen.csv: output column {OUTPUT!r} holds 'rather good'" in result.err


def test_every_observed_row_is_accounted_for(metakel, prior):
    rows = ["0.01,4,adam,80", "0.02,4,adam,", "0.02,4,adam,inf", "0.03,,adam,82", "0.03,5,sgd,83"]
    first = metakel("suggest", prior, "--observed", seen(*rows), "--journal", "j")
    expected = "2 runs of seen.csv added; left out: 2 without a finite value, 1 with a missing"
    assert expected in first.err
    again = metakel("suggest", prior, "--observed", "seen.csv", "--journal", "j")
    assert "0 runs of seen.csv added; left out: 2 known already, 2 without" in again.err
    none = metakel("suggest", prior, "--observed", seen("0.01,4,adam,", "0.02,4,adam,nan"))
    assert none.code == 1
    assert "none of the 2 rows can be used: 2 without a finite value" in none.err


@pytest.mark.parametrize(("value", "code"), [("nan", 0), ("inf", 0), ("-inf", 0)])
def test_a_value_that_is_not_finite_is_said_to_have_failed(metakel, prior, value, code):
    metakel("suggest", prior, "-n", 2, "--journal", "j")
    told = metakel("tell", "j", value, "--number", 0)
    assert told.code == code
    assert f"failed (the value is {value}); 0 values" in told.out
    data = json.loads(metakel("tell", "j", value, "--number", 1, "--json").out)
    assert (data["state"], data["complete"]) == ("failed", 0)


# What is read


@pytest.mark.parametrize(
    "line",
    [
        *("1,234.5", "0,93", "auc: 0,93", "1__0", "3,0.9", "1_", "_1", "3, 0.93", "epoch 3 +2"),
        *("Finished at 14:05:33", "14:05", "took 0:00:12", "2026-11-17", "on 2026-11-17 14:05"),
        *("loss 1 234.5", "1 234.5", "loss: - 0.5", "- 0.5", "loss -- 0.5", "version 1.2.3"),
        *("epoch 12/100", "acc 93%", "12.5 s", "loss: nan", "0x1F", "loss 1e5 2"),
        *("3_3", "run 12_1", "loss: 1_0000", "1000_000", "loss 1_000_0"),
    ],
)
def test_what_is_not_clearly_one_number_is_none(line):
    outcome = read_value(line)
    assert outcome.value is None
    assert outcome.reason.startswith(f"found {line!r}; expected a number, alone or after its name")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("0.93", 0.93),
        ("auc,0.93", 0.93),
        ("auc, 0.93", 0.93),
        ("auc:-.5e-3", -0.0005),
        ("loss=1_000.", 1000.0),
        ("loss = -0.5", -0.5),
        ("loss -0.5", -0.5),
        ("+2 ", 2.0),
        ("epoch 3: loss 0.25", 0.25),
        ("epoch 3/3, top5: 0.91", 0.91),
        ("f1 0.93", 0.93),
        ("2026-11-17 14:05:33 INFO test accuracy (5-fold) = 91", 91.0),
        ("gen\u00fcgend: 4", 4.0),
    ],
)
def test_a_number_alone_or_after_its_name_is_read(line, value):
    assert read_value(line).value == value


# What is typed wrongly


@pytest.mark.parametrize(
    "words",
    [
        ("suggest", "prior.json", "--seed", "-1"),
        ("demo", "--seed", "-1"),
        ("tune", "prior.json", "--seed", "-1", *ECHO),
        ("tune", "prior.json", "--timeout", "-1", *ECHO),
        ("tune", "prior.json", "--timeout", "0", *ECHO),
        ("tune", "prior.json", "--timeout", "nan", *ECHO),
        ("learn", "sqlite:///x.db", "--task", "study"),
        ("learn", "sqlite:///x.db", "--output", "value"),
        ("learn", "sqlite:///x.db", "--maximize"),
        ("learn", "sqlite:///x.db", "--minimize"),
        ("learn", "sqlite:///x.db", "--log", "a"),
        ("learn", "past runs.csv", *COLUMNS, "--space", "s.toml", "--log", "learning rate"),
    ],
)
def test_an_option_that_cannot_be_meant_is_wrong_usage(metakel, prior, history, words):
    before = set(Path().iterdir())
    result = metakel(*words)
    assert result.code == 2, result.err
    assert "Traceback" not in result.err
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tune", "prior.json", "--value-file", "{nmber}", *ECHO), "{nmber} in --value-file"),
        (("tune", "prior.json", "--delta", "1.5", *ECHO), "delta is 1.5; expected a number"),
        (("tune", "prior.json", "--delta", "nan", *ECHO), "delta is nan; expected a number"),
        (("learn", "past runs.csv", *COLUMNS, "--default", "zz=3"), "'zz'"),
        (("learn", "past runs.csv", *COLUMNS, "--log", "opt imizer"), "'opt imizer'"),
        (("learn", "past runs.csv", *COLUMNS, "--space", "s.toml"), "s.toml: parameter 'x' is 1"),
        (("learn", "past.parquet", *COLUMNS), "past.parquet is no Parquet file"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(metakel, prior, history, words, message):
    Path("s.toml").write_text("x = 1\n")
    Path("past.parquet").write_text("not at all\n")
    if "past.parquet" in words:
        pytest.importorskip("pyarrow")
    result = metakel(*words)
    assert result.code == 1
    assert message in result.err
    assert "Traceback" not in result.err
    assert not Path("metakel-run.jsonl").exists()


@pytest.mark.parametrize("url", ["sqlite:///absent.db", "sqlite:///text.db", "nonsense://x"])
def test_a_storage_that_is_none_is_named_and_not_made(metakel, url):
    pytest.importorskip("optuna")
    Path("text.db").write_text("no database at all, but long enough to be taken for one\n" * 30)
    result = metakel("learn", url)
    assert result.code == 1
    assert result.err.startswith("metakel: ")
    assert url.rpartition("/")[2] in result.err
    assert [path.name for path in Path().iterdir()] == ["text.db"]


# What is offered


def test_what_messages_advise_can_be_typed(metakel, prior):
    beyond = ("--fix", "learning rate=5")
    refused = metakel("suggest", prior, *beyond)
    assert refused.code == 1
    assert "allow other values by --extrapolate" in refused.err
    assert "=True" not in refused.err
    allowed = metakel("suggest", prior, *beyond, "--extrapolate", "--json")
    assert json.loads(allowed.out)[0]["configuration"]["learning rate"] == 5
    run = ("tune", prior, "--budget", 2, "--stop-at", 100)
    refused = metakel(*run, "--delta", 0.01, *ECHO)
    assert refused.code == 1
    advised = float(refused.err.partition("a delta of at least ")[2].split()[0])
    done = metakel(*run, "--delta", advised, *ECHO)
    assert done.code == 0
    assert "stops once nothing can be better by more than 100" in done.err


def test_the_version_is_said(metakel):
    result = metakel("--version")
    assert (result.code, result.out) == (0, f"metakel {package.__version__}\n")
    assert "--version" in metakel("--help").out


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ("paper", "fig2", "--quick", "--jobs", "1", "--out", "file/x"), marks=needs_paper
        ),
        ("demo", "--out", "file/x"),
    ],
)
def test_a_place_that_cannot_be_written_has_its_exit_code(metakel, words):
    Path("file").touch()
    result = metakel(*words)
    assert result.code == 4
    assert "cannot be written" in result.err
