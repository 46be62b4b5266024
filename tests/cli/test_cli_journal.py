"""A journal on the command line: what was really set, wrong values, failures that say nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from strangers_table import OUTPUT

from metakel import Prior
from metakel.tuner import Store, Tuner, lock

SCRIPT = "import sys; print(80 - (int(sys.argv[1]) - 4) ** 2)"


def events(path: str = "j") -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def told(path: str = "j") -> list[dict]:
    return [event for event in events(path) if event["event"] == "told"]


def looked_at(metakel, path: str = "j") -> dict:
    return json.loads(metakel("status", path, "--json").out)


def python(code: str, *words: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code, *(words or ("{n=layers}",)))


# By hand


def test_a_suggestion_can_be_told_at_the_settings_that_were_run(metakel, prior):
    metakel("suggest", prior, "-n", 2, "--journal", "j")
    asked = [event["configuration"] for event in events() if event["event"] == "asked"]
    done = metakel("tell", "j", "71.5", "--number", 1, "--set", "learning rate=0.02")
    assert done.code == 0, done.err
    assert "learning rate=0.02" in done.out
    assert told()[0]["configuration"] == {**asked[1], "learning rate": 0.02}
    assert looked_at(metakel)["pending"] == [0]
    beyond = metakel("tell", "j", "1", "--number", 0, "--set", "learning rate=77")
    assert "learning rate is 77.0" in beyond.err
    assert looked_at(metakel)["pending"] == []


def test_a_suggestion_can_be_dropped(metakel, prior):
    metakel("suggest", prior, "-n", 2, "--journal", "j")
    assert "dropped; 0 values" in metakel("tell", "j", "--drop", "--number", 0).out
    assert looked_at(metakel)["pending"] == [1]
    metakel("tell", "j", "80")
    refused = metakel("tell", "j", "--drop", "--number", 1)
    assert refused.code == 1
    assert "trial 1 is not pending: it has the value 80" in refused.err


def test_a_mistyped_value_is_named_and_can_be_corrected(metakel, prior):
    metakel("suggest", prior, "--journal", "j")
    metakel("tell", "j", "73.1")
    again = metakel("tell", "j", "71.3", "--number", 0)
    assert again.code == 1
    assert "trial 0 is not pending: it has the value 73.1" in again.err
    assert "--correct" in again.err
    before = Path("j").read_text()
    mended = metakel("tell", "j", "71.3", "--number", 0, "--correct", "--set", "n=layers=3")
    assert mended.code == 0, mended.err
    assert "71.3; 1 values" in mended.out
    assert Path("j").read_text().startswith(before)
    (trial,) = looked_at(metakel)["trials"]
    assert (trial["value"], trial["configuration"]["n=layers"]) == (71.3, 3)
    lost = metakel("tell", "j", "--failed", "--number", 0, "--correct", "--reason", "spilt")
    assert "failed (spilt); 0 values" in lost.out
    assert metakel("suggest", prior, "--journal", "j").code == 0


def test_what_a_journal_says_can_be_seen(metakel, prior):
    metakel("suggest", prior, "-n", 4, "--journal", "j")
    for number, value in enumerate(("70", "80", "--failed")):
        metakel("tell", "j", value, "--number", number, "--reason", "spilt")
    before = Path("j").read_bytes()
    lines = metakel("status", "j").out.splitlines()
    assert lines[0].split("  ")[0] == "number"
    assert lines[0].endswith(OUTPUT)
    assert lines[1].endswith("70")
    assert lines[4].split("  ")[-1].strip().startswith("pending for ")
    assert lines[2].endswith("80 *")
    assert lines[3].endswith("failed: spilt")
    assert lines[5] == "2 values, 1 failed, 1 pending; best 80, number 1"
    data = looked_at(metakel)
    assert (data["best"], data["pending"], data["complete"], data["failed"]) == (1, [3], 2, 1)
    assert Path("j").read_bytes() == before


def test_a_damaged_journal_names_its_remedy_which_keeps_every_other_value(metakel, prior):
    metakel("suggest", prior, "-n", 3, "--journal", "j")
    for number, value in ((2, 70), (0, 71), (1, 72)):
        metakel("tell", "j", value, "--number", number)
    before = Path("j").read_bytes()
    Path("j").write_bytes(before.replace(b'"value": 71.0', b'"value": 91.0'))
    for command in (("status", "j"), ("tell", "j", "50", "--number", 0)):
        assert "`metakel status j --salvage OUT`" in metakel(*command).err
    done = metakel("status", "j", "--salvage", "out")
    assert done.code == 0, done.err
    assert "out: 6 events with 2 values" in done.out
    assert "line 6: lost; it seems to be 'told' of trial 0" in done.out
    assert [t["value"] for t in looked_at(metakel, "out")["trials"]] == [None, 72.0, 70.0]
    again = metakel("status", "j", "--salvage", "out")
    assert again.code == 1
    assert "out is there already" in again.err
    found = json.loads(metakel("status", "j", "--salvage", "other", "--json").out)
    assert found["damaged"] == [{"line": 6, "what": "lost; it seems to be 'told' of trial 0"}]


def test_a_damaged_first_line_lists_the_values_that_are_whole(metakel, prior):
    metakel("suggest", prior, "--journal", "j")
    metakel("tell", "j", 70.5)
    Path("j").write_bytes(Path("j").read_bytes().replace(b'"seed": ', b'"sped": ', 1))
    result = metakel("status", "j", "--salvage", "out")
    assert result.code == 1
    assert "trial 0, {" in result.out
    assert ": 70.5" in result.out
    assert "its first line is damaged" in result.err
    assert not Path("out").exists()


def test_a_journal_with_candidates_takes_no_others(metakel, prior):
    known = Prior.load(prior)
    rows = [{"learning rate": 0.1, "n=layers": n, "opt imizer": "sgd"} for n in (3, 4)]
    tuner = Tuner(known, "j", candidates=rows, adopt_after="never")
    tuner.ask()
    refused = metakel("tell", "j", "50", "--number", 0, "--set", "n=layers=5")
    assert refused.code == 1
    assert "a list of candidates" in refused.err
    assert metakel("tell", "j", "50", "--number", 0).code == 0
    assert tuner.ask() in rows


# A command that was at fault


def test_failures_before_any_success_do_not_count_once_the_command_is_mended(metakel, prior):
    run = ("tune", prior, "--budget", 4, "--give-up", 3, "--journal", "j")
    broken = metakel(*run, *python("import sys; sys.exit('no such file')"))
    assert broken.code == 3
    assert "Fix it and start again" in broken.err
    mended = metakel(*run, "--same-task", *python(SCRIPT))
    assert mended.code == 0, mended.err
    assert "going on with j: 0 values, 3 failed so far" in mended.err
    assert "the 3 failures are taken back" in mended.err
    assert "do not count towards the budget" in mended.err
    assert len(told()) == 4
    undisturbed = ("tune", prior, "--budget", 1, "--journal", "k", *python(SCRIPT))
    metakel(*undisturbed)
    first, expected = (told(path)[0]["configuration"] for path in "jk")
    # Its draws are others, as its number is; its place is not a bad one.
    assert first["opt imizer"] == expected["opt imizer"]
    assert abs(first["n=layers"] - expected["n=layers"]) <= 1


def test_failures_after_a_success_count_and_the_message_says_so(metakel, prior):
    code = (
        "import os, sys; n = int(os.environ['METAKEL_NUMBER']); print(80) if n < 1 else sys.exit(1)"
    )
    run = ("tune", prior, "--budget", 4, "--give-up", 2, "--journal", "j")
    result = metakel(*run, *python(code))
    assert result.code == 3
    assert "count towards the budget (3 of 4 are spent)" in result.err
    assert "metakel tell j --drop --number 2" in result.err
    again = metakel(*run, "--same-task", *python(SCRIPT))
    assert "going on with j: 1 values, 2 failed so far" in again.err
    assert "taken back" not in again.err
    assert len(told()) == 2
    assert metakel("tell", "j", "--drop", "--number", 2).code == 0
    metakel(*run, "--same-task", *python(SCRIPT))
    assert len(told()) == 3


# How it is typed


def test_a_command_in_quotes_is_explained(metakel, prior):
    for quoted in ("python run.py --n {n=layers}", "python run.py"):
        result = metakel("tune", prior, "--", quoted)
        assert result.code == 1
        assert "without quotes" in result.err
        assert f"-- {quoted}" in result.err
    assert "must not depend" in metakel("tune", prior, "--", "{opt imizer}").err
    assert not Path("metakel-run.jsonl").exists()


def test_a_program_whose_name_has_a_space_can_be_run(metakel, prior):
    program = Path("my script.sh").absolute()
    program.write_text("#!/bin/sh\necho 80\n")
    program.chmod(0o755)
    assert metakel("tune", prior, "--budget", 1, "--", program).code == 0


def test_forgotten_dashes_are_explained(metakel, prior):
    forgotten = metakel("tune", prior, "python", "run.py", "--n", "{n=layers}")
    assert forgotten.code == 2
    assert "No such option" in forgotten.err
    assert "put -- before the command" in " ".join(forgotten.err.split())
    mistyped = metakel("tune", prior, "--budgt", 3, *python(SCRIPT))
    assert mistyped.code == 2
    assert "put --" not in mistyped.err


def test_status_says_what_is_pending_for_how_long_and_with_whom(metakel, prior, tmp_path):
    metakel("suggest", prior, "--journal", "j")
    assert "pending for 0 s" in metakel("status", "j").out.replace("1 s", "0 s")
    Tuner(Prior.load(prior), tmp_path / "j").ask()
    shown = metakel("status", "j").out
    assert f", process {os.getpid()} on " in shown
    assert "which has ended" not in shown
    assert [t["state"] for t in looked_at(metakel)["trials"]] == ["pending", "pending"]


def test_what_is_pending_on_another_machine_is_counted_and_named(metakel, prior, monkeypatch):
    here = {**lock._place(), "host": "pod-7", "namespace": "pid:[7]"}
    with monkeypatch.context() as patched:
        patched.setattr(lock, "_place", lambda: here)
        Tuner(Prior.load(prior), "j").ask_batch(2)
    options = ("--budget", 3, "--journal", "j")
    for _ in range(2):  # also where nothing is left to evaluate here
        ended = metakel("tune", prior, *options, *python("print(0.5)"))
        assert ended.code == 5
        assert "2 of 3 evaluations are pending on pod-7, for" in ended.err
        assert "--adopt-after SECONDS" in ended.err
    last = metakel("tune", prior, *options, "--json", *python("print(0.5)"))
    assert json.loads(last.out.splitlines()[-1])["pending"] == 2
    ended = metakel("tune", prior, *options, "--adopt-after", 0.001, *python("print(0.5)"))
    assert ended.code == 0, ended.err
    assert len(Store.open("j").run.record.observed) == 3
