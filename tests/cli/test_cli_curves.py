"""``metakel tune --step-pattern``: runs that would not become the best are ended early."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import TUNE, read_pid, usual_signals, wait_until_gone

from metakel import History
from metakel.curves import CurveModel
from metakel.errors import InputError
from metakel.tuner import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
STEPS, BAD = 20, 6
PATTERN = ("--step-pattern", "epoch={step} val={value}", "--curves", "curves.json")
# One run is hopeless, and with its child waits for ever after a few steps, until it is ended.
TRAINS = """
import os, pathlib, signal, subprocess, sys, time
number, bad = int(os.environ["METAKEL_NUMBER"]), int(sys.argv[1])
stubborn = len(sys.argv) > 2
if stubborn and number == bad:
    signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("asked").write_text(f"{os.getpid()}\\n"))
level = -50 if number == bad else 0.3 * number
if number == bad:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path("child").write_text(f"{child.pid}\\n")
for epoch in range(20):
    for _ in range(60_000 if number == bad and epoch == 12 else 0):
        time.sleep(0.01)
    print(f"[12:30] epoch={epoch}  val={level - 2.0 ** -epoch:.6f} (best)", file=sys.stderr)
print(level)
"""


@pytest.fixture
def curves(prior) -> Path:
    """What 30 past tasks say, beside the prior."""
    rng = np.random.default_rng(0)
    tasks = [
        [
            {e + 1: float(level - np.exp(-rate * e)) for e in range(STEPS)}
            for level, rate in rng.uniform([0, 0.3], [1, 1], (25, 2))
        ]
        for _ in range(30)
    ]
    CurveModel.learn(tasks, minimize=False).save("curves.json")
    Path("train.py").write_text(TRAINS, encoding="utf-8")
    return prior


def program(bad: int = BAD, *more: str) -> tuple[object, ...]:
    return ("--", sys.executable, "train.py", bad, *more)


def test_a_hopeless_run_is_ended_and_is_neither_failed_nor_a_value(metakel, curves):
    run = ("tune", curves, "--budget", BAD + 2, "--json", *PATTERN, *program())
    found = metakel(*run)
    assert found.code == 0, found.err
    *lines, end = [json.loads(line) for line in found.out.splitlines()]
    assert [line["event"] for line in lines] == ["complete"] * BAD + ["stopped", "complete"]
    assert (end["complete"], end["failed"], end["stopped"]) == (BAD + 1, 0, 1)
    assert end["best"]["value"] == 0.3 * (BAD + 1)
    stopped, whole = lines[BAD], lines[0]
    assert stopped["value"] is None
    assert "is to be expected" in stopped["reason"]
    assert [*whole["curve"]] == [str(step + 1) for step in range(STEPS)]
    wait_until_gone(read_pid(Path("child")))

    record = Store.open("metakel-run.jsonl").run.record  # as it is after reading it again
    trial = record[BAD]
    assert (trial.state, trial.value, trial.note.reason) == ("stopped", None, stopped["reason"])
    assert trial.number not in [t.number for t in (*record.observed, *record.failed)]
    saved = STEPS - max(trial.note.curve)
    assert record.saved == saved > 0
    said = f"1 stopped early ({saved} steps saved)"
    status = metakel("status", "metakel-run.jsonl").out
    assert said in status
    assert f"stopped: {trial.note.reason}" in status
    assert metakel("report", curves, "--journal", "metakel-run.jsonl").code == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert said in page
    assert trial.note.reason in page
    made = sum(max(curve) for curve in record.curves)
    assert "Learning curves" in page
    assert f"which saved {saved} steps ({saved / (made + saved):.0%} of all)" in page

    more = ("tune", curves, "--budget", BAD + 4, *PATTERN, *program())
    assert f"1 runs were stopped early; {saved} steps were saved" in metakel(*more).out
    after = Store.open("metakel-run.jsonl").run
    assert after.record.counts.startswith(f"{BAD + 3} values, 0 failed, 0 pending")
    key = after.space.key
    assert sum(key(t.point) == key(trial.point) for t in after.record) == 1  # not asked again


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_kill_while_a_run_is_being_ended_loses_no_value(metakel, curves, name):
    tune = subprocess.Popen(
        [*TUNE, str(curves), "--budget", "9", *PATTERN, *map(str, program(BAD, "stubborn"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=usual_signals,
    )
    stubborn = read_pid(Path("asked"))  # it was asked to end, and does not mind
    tune.send_signal(getattr(signal, name))
    tune.communicate()
    for pid in (stubborn, read_pid(Path("child"))):
        wait_until_gone(pid)
    record = Store.open("metakel-run.jsonl").run.record
    assert [t.value for t in record.observed] == [0.3 * i for i in range(BAD)]
    assert record[BAD].state == ("stopped" if name == "SIGTERM" else "pending")
    found = metakel("tune", curves, "--budget", 9, "--same-task", *PATTERN, *program(-1))
    assert found.code == 0, found.err
    left = 9 - len(Store.open("metakel-run.jsonl").run.record.observed)
    assert left == (1 if name == "SIGTERM" else 0)


def test_without_the_pattern_or_where_lines_do_not_fit_every_run_goes_to_its_end(metakel, curves):
    for i, options in enumerate(((), ("--step-pattern", "loss {step} {value}", *PATTERN[2:]))):
        journal = ("--journal", f"{i}.jsonl", "--budget", BAD + 2)
        assert metakel("tune", curves, *journal, *options, *program(-1)).code == 0
        record = Store.open(f"{i}.jsonl").run.record
        assert len(record.observed) == BAD + 2
        assert not record.curves


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--step-pattern", "epoch={step}", *PATTERN[2:]), "expected a part of a line"),
        (PATTERN[:2], "without --curves"),
        (PATTERN[2:], "without --step-pattern"),
        ((*PATTERN[:2], "--curves", "library:lightgbm"), "the curves were minimised"),
        ((*PATTERN[:2], "--curves", "library:knn"), "no curves"),
    ],
)
def test_mistakes_are_said_before_anything_runs(metakel, curves, options, said):
    found = metakel("tune", curves, *options, *program())
    assert found.code != 0
    assert said in found.err
    assert not Path("metakel-run.jsonl").exists()


def test_a_stop_is_of_what_is_pending(curves):
    from metakel import Prior, Tuner

    tuner = Tuner(Prior.load(curves), "a.jsonl", budget=3)
    x = tuner.ask()
    with pytest.raises(InputError, match="whole numbers > 0"):
        tuner.stop(x, {0: 1.0})
    tuner.stop(x, {1: 0.5, 2: float("nan")}, "bad")
    with pytest.raises(InputError, match="not pending"):
        tuner.stop(x, {1: 0.5})
    assert "stopped early (bad)" in tuner.run.describe(0)
    tuner.correct(0, 0.7)  # it was run to its end after all
    assert tuner.best.value == 0.7


def test_a_long_table_teaches_a_prior_and_how_runs_go_on(metakel, curves):
    rng = np.random.default_rng(1)
    lines = ["dataset,rate,level,epoch,score"]
    for task in range(20):
        for level, rate in rng.uniform([0, 0.3], [1, 1], (8, 2)):
            for epoch in range(STEPS):
                value = level - np.exp(-rate * epoch) + 0.1 * task
                lines.append(f"d{task},{rate},{level},{epoch},{value}")
    Path("long.csv").write_text("\n".join(lines), encoding="utf-8")
    words = ("learn", "long.csv", "--task", "dataset", "--output", "score", "--step", "epoch")
    found = metakel(*words, "--maximize", "-o", "long.json")
    assert found.code == 0, found.err
    assert "saved long.curves.json" in found.err
    model = CurveModel.load("long.curves.json")
    assert (len(model.margins), model.steps, model.minimize) == (20, STEPS, False)


def test_stopped_runs_of_journals_count_by_their_expected_ends(metakel, curves):
    from metakel import Prior, Tuner
    from metakel.cli.history import with_journals

    rng, prior = np.random.default_rng(2), Prior.load(curves)
    for k in range(3):
        tuner = Tuner(prior, f"run-{k}.jsonl", budget=10)
        for x in tuner:
            level, rate = rng.uniform([0, 0.3], [1, 1])
            curve = {e + 1: float(level - np.exp(-rate * e)) for e in range(STEPS)}
            if len(tuner.trials) % 3 == 0:
                tuner.stop(x, {e: v for e, v in curve.items() if e <= 8})
            else:
                tuner.tell(x, curve[STEPS], curve=curve)
    x = [trial.point for trial in tuner.trials]
    table = {name: [p[name] for p in x] for name in prior.space.names}
    output = prior.info.output
    table |= {"task": ["old"] * len(x), output: list(range(len(x)))}
    past = History.from_frame(
        table, task="task", output=output, minimize=False, space=prior.space, extrapolate=True
    )
    found, said = with_journals(past, [Path(f"run-{k}.jsonl") for k in range(3)])
    assert "9 of the runs were stopped early and count by their expected ends" in said
    for task in found[1:]:
        assert task.n == 10
        assert task.y.max() == task.y[:7].max()
        assert task.noise_std[7:].min() > task.noise_std[:7].max()
