"""Waiting for a journal ends when its holder does, and is explained until then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tuning_history import measure, small_prior

from metakel.tuner import Journal, Tuner, lock

fcntl = pytest.importorskip("fcntl", reason="Windows: test_platforms.py")

PRIOR = small_prior()
# It forks while it holds the journal, and is killed; the fork goes on without it.
FORKED_AND_KILLED = """
import os, signal, sys, time
from metakel.tuner import Journal
def turn():
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        time.sleep(600)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
Journal(sys.argv[1]).exclusively(turn)
"""
# Without Python's fork, so that nothing of ours runs in the child.
HOLDS = """
import fcntl, sys
stream = open(sys.argv[1], "ab")
fcntl.flock(stream, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def free(path: Path) -> bool:
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_fork_of_a_killed_process_does_not_keep_the_journal(tmp_path):
    path = tmp_path / "j"
    command = [sys.executable, "-c", FORKED_AND_KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        fork = int(parent.stdout.readline())
        try:
            assert parent.wait() == -signal.SIGKILL
            assert free(path)
        finally:
            os.kill(fork, signal.SIGKILL)


def test_a_fork_goes_on_with_the_journal_of_its_parent(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    child = os.fork()
    if child == 0:
        x = tuner.ask()
        tuner.tell(x, measure(x))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(tuner.trials.observed) == 1


@pytest.fixture
def holder(tmp_path):
    path = tmp_path / "j"
    path.touch()
    command = [sys.executable, "-c", HOLDS, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline()
        yield process
        process.stdin.close()


def test_a_wait_says_who_holds_the_journal_and_then_ends(tmp_path, monkeypatch, caplog, holder):
    monkeypatch.setattr(lock, "PATIENCE", 0.01)
    entered = threading.Event()
    waiting = threading.Thread(target=Journal(tmp_path / "j").exclusively, args=(entered.set,))
    waiting.start()
    while "waiting for" not in caplog.text:
        time.sleep(0.01)
    assert not entered.is_set()
    assert f"{tmp_path / 'j'}, which process {holder.pid} holds" in caplog.text
    holder.stdin.close()
    waiting.join()
    assert entered.is_set()
