"""``metakel tune`` leaves no program behind, mixes up no values, and says why it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import SECOND_WAITS, TUNE, read_pid, usual_signals, wait_until_gone

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

# A program that does not mind being asked to stop, and says when that has happened.
STUBBORN = """
import os, pathlib, signal, time
def asked(*_):
    pathlib.Path("asked").touch()
for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(sign, asked)
pathlib.Path("begun").write_text(f"{os.getpid()}\\n")
for _ in range(60_000):
    time.sleep(0.01)
"""
# The first to run writes its value, then waits until it may end; the others are quick.
WRITES = """
import os, pathlib, sys, time
first = not pathlib.Path("begun").exists()
pathlib.Path(sys.argv[1]).write_text("1" if first else "2")
pathlib.Path("begun").write_text(f"{os.getpid()}\\n")
for _ in range(60_000 if first else 0):
    if pathlib.Path("go").exists():
        break
    time.sleep(0.01)
"""


def start(prior: Path, *words: object, **options) -> subprocess.Popen:
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    usual["preexec_fn"] = usual_signals
    return subprocess.Popen([*TUNE, str(prior), *map(str, words)], **{**usual, **options})


def python(code: str, *words: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code, *words)


def values(path: str) -> list[tuple[int, float]]:
    if not Path(path).exists():
        return []
    events = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [(e["number"], e["value"]) for e in events if e["event"] == "told"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_the_program_too(metakel, prior, name):
    tune = start(prior, "--budget", 3, *python(SECOND_WAITS))
    program = read_pid(Path("begun"))
    tune.send_signal(getattr(signal, name))
    _, err = tune.communicate()
    assert tune.returncode == 130
    assert "the same command goes on" in err
    wait_until_gone(program)


@pytest.mark.parametrize("second", ["SIGINT", "SIGHUP"])
def test_a_second_signal_does_not_save_a_stubborn_program(metakel, prior, second):
    tune = start(prior, "--budget", 3, *python(STUBBORN))
    program = read_pid(Path("begun"))
    tune.send_signal(signal.SIGINT)
    while not Path("asked").exists():  # tune waits for it to end
        time.sleep(0.01)
    tune.send_signal(getattr(signal, second))
    tune.communicate()
    assert tune.returncode == 130
    wait_until_gone(program)


def test_a_hang_up_that_nohup_ignores_is_ignored(metakel, prior):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    tune = start(prior, "--budget", 2, *python(SECOND_WAITS), preexec_fn=ignore)
    read_pid(Path("begun"))
    tune.send_signal(signal.SIGHUP)
    Path("go").touch()
    tune.communicate()
    assert tune.returncode == 0
    assert len(values("metakel-run.jsonl")) == 2


def test_a_reader_that_leaves_stops_the_run_and_is_not_success(metakel, prior):
    tune = start(prior, "--budget", 9, *python("print(1.5)"))
    assert tune.stdout.readline()
    tune.stdout.close()
    with tune.stderr as stream:
        err = stream.read()
    assert tune.wait() == 4
    assert "nobody reads the output" in err
    assert "goes on with metakel-run.jsonl" in err
    assert "Traceback" not in err
    assert 0 < len(values("metakel-run.jsonl")) < 9


def test_a_reader_that_has_seen_enough_of_a_list_is_no_error(metakel, prior):
    metakel("suggest", prior, "-n", 2, "--journal", "j")
    command = [sys.executable, "-m", "metakel", "status", "j"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as status:
        status.stdout.close()
        err = status.stderr.read()
    assert (status.returncode, err) == (0, b"")


@pytest.mark.parametrize(
    ("value_file", "other_journal", "code"),
    [
        ("value.txt", "j", 1),
        ("value.txt", "k", 1),
        ("value-{number}.txt", "j", 0),
        ("value-{number}.txt", "k", 1),
    ],
)
def test_two_runs_mix_up_no_values(metakel, prior, value_file, other_journal, code):
    options = ("--budget", 2, "--value-file", value_file, *python(WRITES, value_file))
    first = start(prior, "--journal", "j", *options)
    read_pid(Path("begun"))
    other = metakel("tune", prior, "--journal", other_journal, *options)
    Path("go").touch()
    _, err = first.communicate()
    assert first.returncode == 0, err
    assert other.code == code, other.err
    if code:
        assert "is in use by another `metakel tune`" in other.err
        assert "--value-file 'value-{number}.txt'" in other.err
    assert dict(values("j")) == {0: 1.0, 1: 2.0}


def test_no_lock_is_left_behind_and_no_link_is_followed(metakel, prior, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('0.5')"
    options = ("--budget", 2, "--value-file", "v-{number}", *python(code, "v-{number}"))
    assert metakel("tune", prior, "--journal", "j", *options).code == 0
    assert not [*Path.cwd().glob(".*.lock"), *(tmp_path / "temporary").iterdir()]
    Path(".v-0.lock").symlink_to("elsewhere")
    assert metakel("tune", prior, "--journal", "k", *options).code == 4
    assert not Path("elsewhere").exists()


def test_a_value_file_of_one_name_is_free_again_after_the_run(metakel, prior):
    code = "import pathlib; pathlib.Path('v').write_text('0.5')"
    for budget in (1, 2):
        result = metakel("tune", prior, "--budget", budget, "--value-file", "v", *python(code))
        assert result.code == 0, result.err
