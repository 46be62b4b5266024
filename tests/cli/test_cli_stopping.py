"""``metakel tune --stop-at``: the certificate ends a run on real data, and says why."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from metakel import History, datasets, learn_prior

NEW, ROWS = "magic", 50
LOOK_UP = (
    "import csv, sys; rows = csv.DictReader(open('new.csv')); "
    "print(*(row['auc'] for row in rows if [row['alpha'], row['lambda']] == sys.argv[1:]))"
)
PROGRAM = ("--", sys.executable, "-c", LOOK_UP, "{alpha}", "{lambda}")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A prior of 20 data sets, and the rows of another one in ``new.csv``."""
    folder = tmp_path_factory.mktemp("stopping")
    history = datasets.load_glmnet()
    tasks = {task.name: task for task in history}
    rows = []
    for name in [NEW, *(name for name in tasks if name != NEW)][:21]:
        step = tasks[name].n // ROWS
        X = history.space.decode(tasks[name].X[::step])
        values = zip(X, tasks[name].y[::step].tolist(), strict=True)
        rows += [(name, x["alpha"], x["lambda"], auc) for x, auc in values]
    # Within the ranges of the past ones.
    new = [row for row in rows if row[0] == NEW and row[1] < 0.99]
    for path, kept in (("past.csv", [row for row in rows if row[0] != NEW]), ("new.csv", new)):
        with (folder / path).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("data", "alpha", "lambda", "auc"), *kept])
    past = History.from_csv(folder / "past.csv", task="data", output="auc")
    learn_prior(past).save(folder / "prior.json")
    return folder


@pytest.fixture
def best(metakel, tables) -> float:
    """The best value there is, with the files in the folder where the command runs."""
    for name in ("prior.json", "new.csv"):
        Path(name).write_bytes((tables / name).read_bytes())
    with Path("new.csv").open(encoding="utf-8") as file:
        return max(float(row["auc"]) for row in csv.DictReader(file))


def test_the_certificate_stops_a_run_over_candidates_and_says_why(metakel, best):
    run = ("tune", "prior.json", "--candidates", "new.csv", "--stop-at", 0.01, "--budget", 40)
    found = metakel(*run, *PROGRAM)
    assert found.code == 0, found.err
    values = re.findall(r"^ +\d+  ([.\d]+)", found.out, re.M)
    assert 1 < len(values) < 20
    said = re.search(r"^done: no candidate is .*\(stop_at=0.01\): (.*)$", found.out, re.M)
    assert said, found.out
    assert "wrong in about 1 of 5 searches that stop" in said[1]
    promised = re.search(r"^(none of the candidates is .*)$", found.out, re.M)
    assert promised, found.out

    again = metakel(*run, "--json", *PROGRAM)  # done already: it only tells the end
    (end,) = [json.loads(line) for line in again.out.splitlines()]
    certificate = end["certificate"]
    # Replays of past tasks have promised it, not the limit of an AUC.
    assert (certificate["basis"], certificate["range_end"]) == ("folds", None)
    assert end["alarm"] is None
    assert certificate["regret"] > 0
    assert best - end["best"]["value"] <= 0.01
    assert end["best"]["value"] + certificate["regret"] < 1
    assert end["best"]["value"] == max(map(float, values))
    assert best - end["best"]["value"] <= certificate["regret"]

    assert f"{len(values)} values, 0 failed" in metakel("status", "metakel-run.jsonl").out
    report = ("report", "prior.json", "--journal", "metakel-run.jsonl")
    assert metakel(*report, "--candidates", "new.csv").code == 0
    assert promised[1].replace("none", "None") in Path("report.html").read_text(encoding="utf-8")


def test_a_report_without_the_candidates_promises_nothing(metakel, best):
    run = ("tune", "prior.json", "--candidates", "new.csv", "--budget", 2, *PROGRAM)
    assert metakel(*run).code == 0
    assert metakel("report", "prior.json", "--journal", "metakel-run.jsonl").code == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "the candidates of the run are not in its journal" in page


def test_mistakes_in_a_list_of_candidates(metakel, best):
    Path("other.csv").write_text("alpha,auc\n0.5,0.8\n", encoding="utf-8")
    Path("empty.csv").write_text("alpha,lambda\n0.5,\n", encoding="utf-8")
    run = ("tune", "prior.json", "--budget", 1)
    found = metakel(*run, "--candidates", "other.csv", *PROGRAM)
    assert found.code != 0
    assert "other.csv has no column 'lambda'" in found.err
    assert "lists no configuration" in metakel(*run, "--candidates", "empty.csv", *PROGRAM).err
    assert not Path("metakel-run.jsonl").exists()
    assert metakel(*run, "--candidates", "new.csv", *PROGRAM).code == 0
    assert "begun with candidates" in metakel(*run, *PROGRAM).err


def test_candidates_that_lack_an_input_are_left_out_aloud(metakel, best):
    with Path("new.csv").open("a", encoding="utf-8") as file:
        file.write("magic,,1.0,0.5\n")
    found = metakel("suggest", "prior.json", "--candidates", "new.csv")
    assert found.code == 0, found.err
    assert "new.csv; left out: 1 with a missing input" in found.err
