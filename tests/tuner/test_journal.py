"""The journal: nothing told is lost, whatever happens to the writer or the disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tuning_history import measure, small_prior

from metakel import InputError
from metakel.tuner import Journal, JournalError, Tuner

PRIOR = small_prior()
HERE = Path(__file__).parent
BEGUN = {"event": "started", "format": "metakel.journal"}
EVENT = {"event": "told", "configuration": {"a": 0.1 + 0.2}, "value": 1e-320}


def append(journal: Journal, *events) -> None:
    journal.exclusively(lambda: journal.append(events))


def test_events_come_back_bit_by_bit_and_once(tmp_path):
    journal = Journal(tmp_path / "j")
    append(journal, EVENT, {"event": "x"})
    assert journal.read() == [EVENT, {"event": "x"}]
    assert journal.read() == []
    append(Journal(tmp_path / "j"), {"event": "y"})
    assert journal.read() == [{"event": "y"}]
    assert len(Journal(tmp_path / "j").read()) == 3


@pytest.mark.parametrize("tail", [-2, -7, -30, b"\0\0\0"])
def test_a_torn_last_line_is_not_seen_and_is_gone_after_the_next_write(tmp_path, tail):
    path = tmp_path / "j"
    append(Journal(path), BEGUN, EVENT)
    line = json.dumps(EVENT).encode() + b"\n"
    with path.open("ab") as stream:
        stream.write(line[:tail] if isinstance(tail, int) else tail)
    journal = Journal(path)
    assert journal.read() == [BEGUN, EVENT]
    append(journal, {"event": "next"})
    assert Journal(path).read() == [BEGUN, EVENT, {"event": "next"}]


def test_a_last_line_that_lacks_nothing_but_its_end_is_kept(tmp_path):
    path = tmp_path / "j"
    append(Journal(path), BEGUN, EVENT)
    path.write_bytes(path.read_bytes()[:-1])  # as some editors save a file
    reader, journal = Journal(path), Journal(path)
    assert reader.read() == [BEGUN, EVENT]
    assert journal.exclusively(journal.read) == [BEGUN, EVENT]  # before anything is decided
    append(journal, {"event": "next"})
    append(reader, {"event": "last"})
    assert reader.read() == [{"event": "next"}, {"event": "last"}]
    assert Journal(path).read() == [BEGUN, EVENT, {"event": "next"}, {"event": "last"}]
    assert reader.line == 4


def test_a_writer_that_has_not_read_removes_nobody_elses_events(tmp_path):
    lazy = Journal(tmp_path / "j")
    append(Journal(tmp_path / "j"), EVENT, EVENT)
    append(lazy, {"event": "late"})
    assert lazy.read() == [EVENT, EVENT, {"event": "late"}]


@pytest.mark.skipif(sys.platform == "win32", reason="flock")
def test_a_turn_within_a_turn_does_not_let_others_in(tmp_path):
    import fcntl

    journal = Journal(tmp_path / "j")

    def turn() -> None:
        journal.exclusively(lambda: None)
        with (tmp_path / "j").open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    journal.exclusively(turn)


def test_the_folder_that_gets_the_new_file_is_synced(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "j").symlink_to(tmp_path / "real" / "j")
    synced = []
    monkeypatch.setattr("metakel.tuner.journal.sync_folder", synced.append)
    append(Journal(tmp_path / "j"), EVENT)
    assert synced == [tmp_path / "real"]


def test_a_file_that_is_no_journal_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(InputError, match="line 1"):
        Tuner(PRIOR, path)
    path.write_text('{"event": "told"}\n')
    with pytest.raises(InputError, match=r"line 1 .is it a journal.*no checksum"):
        Tuner(PRIOR, path)
    assert path.read_text() == '{"event": "told"}\n'


@pytest.mark.parametrize("after", [0, 10])
def test_a_full_disk_loses_nothing_that_was_confirmed(tmp_path, monkeypatch, after):
    tuner = Tuner(PRIOR, tmp_path / "j")
    x = tuner.ask()
    before = (tmp_path / "j").read_bytes()
    write = os.write

    def full(descriptor: int, text: bytes) -> int:
        if after and len(text) > after:
            return write(descriptor, text[:after])  # what still fits, torn
        raise OSError(errno.ENOSPC, "No space left on device")

    # A second write fails even where the first one wrote a part.
    calls = iter([full, lambda d, t: full(d, b"")])
    monkeypatch.setattr(os, "write", lambda d, t: next(calls)(d, t))
    with pytest.raises(JournalError, match="No space left"):
        tuner.tell(x, 0.5)
    monkeypatch.undo()
    assert (tmp_path / "j").read_bytes() == before
    assert tuner.pending == (x,)
    tuner.tell(x, 0.5)  # there is room again
    assert Tuner(PRIOR, tmp_path / "j").best.value == 0.5


def test_a_value_that_can_neither_be_kept_nor_removed_is_said_to_be_in_doubt(tmp_path, monkeypatch):
    tuner = Tuner(PRIOR, tmp_path / "j")
    x = tuner.ask()

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    monkeypatch.setattr(os, "ftruncate", broken)
    with pytest.raises(JournalError, match="others may see it") as caught:
        tuner.tell(x, 0.5)
    assert "nothing was recorded" not in str(caught.value)
    monkeypatch.undo()
    assert tuner.best.value == Tuner(PRIOR, tmp_path / "j").best.value == 0.5


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_tuner_that_waits_for_a_value_holds_no_descriptor(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    tuners = [Tuner(PRIOR, tmp_path / f"j{i}") for i in range(3)]
    for tuner in tuners:
        tuner.tell(tuner.ask(), 0.5)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero"])
def test_a_device_is_no_journal(device):
    for look in (lambda: Tuner(PRIOR, device), lambda: Journal(device).read()):
        with pytest.raises(JournalError, match="not a regular file"):
            look()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_disk_that_really_is_full(tmp_path):
    code = """
import resource, signal, sys
from metakel.tuner import JournalError, Tuner
from tuning_history import small_prior
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
tuner = Tuner(small_prior(), sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
told = 0
try:
    for x in tuner:
        tuner.tell(x, 0.5)
        told += 1
except JournalError as error:
    print(told, "cannot be written" in str(error))
"""
    path = tmp_path / "j"
    run = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, cwd=HERE, check=False
    )
    told, said = run.stdout.split()
    assert said == "True", run.stderr
    assert int(told) > 2
    assert path.stat().st_size <= 6000
    assert len(Tuner(PRIOR, path).trials.observed) == int(told)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(JournalError, match="cannot be opened: No such file"):
        Tuner(PRIOR, tmp_path / "absent" / "j")
    with pytest.raises(JournalError, match="cannot be opened: Is a directory"):
        Tuner(PRIOR, tmp_path)
    if Path("/proc/self").exists():
        with pytest.raises(JournalError, match="/proc/j cannot be opened"):  # even for root
            Tuner(PRIOR, "/proc/j")


def test_threads_that_share_a_tuner_get_different_configurations(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=12)

    def work(_: int) -> int:
        count = 0
        for x in tuner:
            tuner.tell(x, measure(x))
            count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(work, range(3))) == 12
    asked = [json.dumps(t.point, sort_keys=True) for t in tuner.trials]
    assert len(set(asked)) == 12


def test_processes_that_tell_at_once_lose_nothing(tmp_path):
    code = """
import sys
from metakel.tuner import Tuner
from tuning_history import measure, small_prior
tuner = Tuner(small_prior(), sys.argv[1], budget=30)
count = 0
for x in tuner:
    tuner.tell(x, measure(x))
    count += 1
print(count)
"""
    path = tmp_path / "j"
    workers = [
        subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, cwd=HERE)
        for _ in range(2)
    ]
    counts = [int(worker.communicate()[0]) for worker in workers]
    assert sum(counts) == 30
    trials = Tuner(PRIOR, path, budget=30).trials
    assert len(trials.observed) == 30
    assert not trials.pending
    assert all(trial.value == measure(trial.point) for trial in trials.observed)
    asked = {json.dumps(trial.point, sort_keys=True) for trial in trials}
    assert len(asked) == 30  # nobody asked for what the other was at
