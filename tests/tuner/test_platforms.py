"""Windows and macOS, as far as they can be played on another system."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import threading
import types
from collections import Counter

import pytest
from tuning_history import measure, small_prior

from metakel.cli import program
from metakel.tuner import Tuner, lock
from metakel.tuner.lock import is_alive, start_of, this_process

PRIOR = small_prior()
ME = os.getpid()
BORN = 0x1DB0123_456789AB  # a FILETIME
UNKNOWN_NUMBER, NOT_ALLOWED = 87, 5


class Msvcrt(types.ModuleType):
    """Locks of bytes, as the C library of Windows offers them; one lock for all descriptors."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held_by, self.calls = None, Counter()

    def locking(self, descriptor: int, mode: int, length: int) -> None:
        where = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert where > os.fstat(descriptor).st_size + (1 << 30), "the text would be unreadable"
        assert length == 1
        self.calls[mode] += 1
        if mode == self.LK_UNLCK:
            assert self.held_by == descriptor
            self.held_by = None
        elif self.held_by is not None:
            raise PermissionError(errno.EACCES, "Permission denied")
        else:
            self.held_by = descriptor


class Kernel32:
    """The processes of a Windows machine: this one, one that ended, and one of the system."""

    ended, system, other = 4444, 4, 5555

    def __init__(self) -> None:
        self.open_handles, self.error = set(), 0

    def OpenProcess(self, access, inherit, pid):
        if pid == self.other:
            self.error = UNKNOWN_NUMBER
            return None
        if pid == self.system:
            self.error = NOT_ALLOWED
            return None
        self.open_handles.add(pid)
        return pid

    def WaitForSingleObject(self, process, milliseconds):
        assert milliseconds == 0, "it would wait for the end of the process"
        return 0 if process.value == self.ended else 258

    def GetProcessTimes(self, process, born, *others):
        born._obj.dwHighDateTime, born._obj.dwLowDateTime = BORN >> 32, BORN & 0xFFFFFFFF
        return 1

    def CloseHandle(self, process):
        self.open_handles.remove(process.value)

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if name[0].isupper():  # functions of a library take attributes as `restype`
            return type("Function", (), {"__call__": lambda _, *words: found(*words)})()
        return found


@pytest.fixture
def windows(monkeypatch):
    """Windows has msvcrt and kernel32, and `os.kill(pid, 0)` there sends Ctrl-C."""
    kernel = Kernel32()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())
    monkeypatch.setattr(ctypes, "WinDLL", lambda name, **_: kernel, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: kernel.error, raising=False)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill would interrupt a process"))
    lock._own_start.cache_clear()
    yield kernel
    lock._own_start.cache_clear()


@pytest.fixture
def no_proc(monkeypatch, tmp_path):
    """As on macOS; `ps` is the same."""
    monkeypatch.setattr(lock, "PROC", tmp_path / "proc")
    lock._own_start.cache_clear()
    yield
    lock._own_start.cache_clear()


@pytest.fixture
def gone() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_on_windows_a_process_is_known_by_its_time_of_birth_and_is_not_disturbed(windows):
    me = this_process()
    assert me["start"] == str(BORN)
    assert is_alive(me)
    assert is_alive({**me, "start": "1"}) is False  # another process has the number by now
    assert is_alive({**me, "pid": windows.ended}) is False
    assert is_alive({**me, "pid": windows.other}) is False
    assert is_alive({**me, "pid": windows.system}) is None  # it may not be looked at
    assert not windows.open_handles


def test_on_windows_a_lock_is_taken_given_back_and_waited_for(windows, tmp_path, monkeypatch):
    msvcrt = sys.modules["msvcrt"]
    monkeypatch.setattr(lock, "_explain", lambda *_: None)
    path = tmp_path / "j"
    path.write_text("text\n")
    with path.open("rb+") as one, path.open("rb+") as two:
        entered = threading.Event()

        def wait() -> None:
            with lock.locked(two.fileno(), "j"):
                entered.set()

        with lock.locked(one.fileno(), "j"):
            waiting = threading.Thread(target=wait)
            waiting.start()
            while msvcrt.calls[msvcrt.LK_NBLCK] < 4:
                pass
            assert not entered.is_set()
        waiting.join()
        assert entered.is_set()
    assert msvcrt.held_by is None


def test_an_error_of_the_lock_that_is_no_holder_is_not_waited_for(windows, monkeypatch):
    def broken(*_):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(sys.modules["msvcrt"], "locking", broken)
    with pytest.raises(OSError, match="Bad file"), lock.locked(0, "j"):
        pass


def test_on_windows_a_tuner_works_and_opens_its_journal_in_binary_mode(
    windows, tmp_path, monkeypatch
):
    binary, opened, real = 1 << 29, [], os.open

    def opening(path, flags, *mode, **more):
        opened.append((str(path), flags))
        return real(path, flags & ~binary, *mode, **more)

    monkeypatch.setattr(os, "O_BINARY", binary, raising=False)
    monkeypatch.setattr(os, "open", opening)
    tuner = Tuner(PRIOR, tmp_path / "j")
    x = tuner.ask()
    tuner.tell(x, measure(x))
    assert len(Tuner(PRIOR, tmp_path / "j").trials.observed) == 1
    journal = [flags for path, flags in opened if path == str(tmp_path / "j")]
    assert journal
    assert all(flags & binary for flags in journal)
    assert b"\r" not in (tmp_path / "j").read_bytes()


def test_on_windows_a_program_ends_with_those_that_it_started(windows, monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: ran.append(words))
    process = types.SimpleNamespace(pid=77, wait=lambda seconds: 0, kill=pytest.fail)
    program._end(process)
    assert ["taskkill", "/T", "/F", "/PID", "77"] in ran


@pytest.mark.skipif(sys.platform == "win32", reason="there is no ps")
def test_without_proc_the_dead_are_told_from_the_living(no_proc, gone):
    me = this_process()
    assert me["start"]
    assert is_alive(me)
    assert is_alive({**me, "pid": gone}) is False
    assert is_alive({**me, "start": "Thu Jan 1 00:00:00 1970"}) is False
    assert is_alive({**me, "start": ""})  # noted where no time was known
    assert lock.holding(0) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no zombies")
def test_a_zombie_is_dead_with_and_without_proc(monkeypatch, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        process.stdout.read()  # its end, and then it waits to be asked how it went
        while start_of(process.pid):
            pass
        monkeypatch.setattr(lock, "PROC", tmp_path / "proc")
        assert start_of(process.pid) == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signal 0 is Ctrl-C there")
def test_without_proc_and_ps_only_the_absent_are_known(no_proc, monkeypatch, gone):
    monkeypatch.setenv("PATH", "")
    assert start_of(ME) is None
    assert start_of(gone) == ""
    assert is_alive(this_process()) is None


def test_names_that_a_windows_pipe_cannot_hold_are_spelled(tmp_path):
    table = tmp_path / "runs.csv"
    rows = [
        f"{t},{i / 9:.2f},{-((i / 9 - 0.4) ** 2) + 0.01 * t:.4f}"
        for t in range(4)
        for i in range(9)
    ]
    table.write_text("task,Ω,y\n" + "\n".join(rows), encoding="utf-8")
    words = ["learn", str(table), "--task", "task", "--output", "y", "--out", f"{table}.json"]
    done = subprocess.run(
        [sys.executable, "-m", "metakel", *words],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )
    assert done.returncode == 0, done.stderr.decode("cp1252")
    assert b"\\u03a9" in done.stdout
