"""Processes that share a journal: a lock that ends with its holder, and who is still alive."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

from metakel._files import writing

LOG = logging.getLogger("metakel")
PATIENCE = 5.0  # seconds after which a wait is explained
INITIAL_NAMESPACE = "pid:[4026531836]"  # of processes outside of containers, on every Linux
PROC = Path("/proc")  # not on macOS and Windows
FAR = 1 << 40  # Windows locks a byte far behind the text, which stays readable


@contextmanager
def locked(descriptor: int, name: str) -> Iterator[None]:
    """Hold a file."""
    take_lock(descriptor, name)
    try:
        yield
    finally:
        unlock(descriptor)


@contextmanager
def reserved(file: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a file by another one beside it, which is removed; False where it is another's.

    Where there is no folder yet, the lock stands for it.
    """
    place = Path(os.path.realpath(file))
    while not place.parent.is_dir():
        place = place.parent
    lock = place.with_name(f".{place.name}.lock")
    while True:
        with writing(file):  # a link in its place is not followed
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            if not wait and not try_lock(descriptor):
                yield False
                return
            with locked(descriptor, str(file)):
                if not _is_this(lock, descriptor):
                    continue  # whoever held it has removed it
                try:
                    yield True
                    return
                finally:
                    with suppress(OSError):
                        os.unlink(lock)
        finally:
            os.close(descriptor)


def _is_this(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def take_lock(descriptor: int, name: str) -> None:
    """Wait for whoever holds a file, and after some seconds say who that is."""
    if not try_lock(descriptor):
        _wait(descriptor, name)


def try_lock(descriptor: int) -> bool:
    """Take the lock if it is free; it ends with the process, or when the file is closed."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _wait(descriptor: int, name: str) -> None:
    explain = Timer(PATIENCE, _explain, (descriptor, name))
    explain.daemon = True
    explain.start()
    try:
        if sys.platform == "win32":
            # LK_LOCK looks once a second and gives up after ten times.
            while not try_lock(descriptor):
                time.sleep(0.02)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        explain.cancel()


def unlock(descriptor: int) -> None:
    """Let others have it; also where a fork has closed its copy."""
    with suppress(OSError):
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _explain(descriptor: int, name: str) -> None:
    holders = holding(descriptor)
    who = f"process {' or '.join(map(str, holders))}" if holders else "another process"
    LOG.warning("waiting for %s, which %s holds; end it if it is stuck", name, who)


def holding(descriptor: int) -> list[int]:
    """Processes that may hold the lock of a file, as far as /proc says.

    The one that took the lock; if it is gone, those that have the file open, forks of it for
    instance.
    """
    found = os.fstat(descriptor)
    with suppress(OSError):
        for line in (PROC / "locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(found.st_ino):
                pid = int(fields[4])
                if pid > 0 and (PROC / str(pid)).exists():
                    return [pid]
    return [pid for pid in _pids() if pid != os.getpid() and _has_open(pid, found)]


def _pids() -> list[int]:
    with suppress(OSError):
        return sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return []


def _has_open(pid: int, file: os.stat_result) -> bool:
    with suppress(OSError):
        return any(_same(entry, file) for entry in (PROC / str(pid) / "fd").iterdir())
    return False


def _same(entry: Path, file: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(entry.stat(), file)
    return False


# Processes that evaluate


def this_process() -> dict[str, Any]:
    """What the journal notes of whoever asked."""
    pid = os.getpid()
    return {"pid": pid, "start": _own_start(pid), **_place()}


@cache
def _own_start(pid: int) -> str:
    return start_of(pid) or ""


def is_alive(owner: Mapping[str, Any] | None) -> bool | None:
    """Whether a process is running; None where that cannot be known from here.

    Process numbers mean something only to processes that share a boot of one machine and a process
    namespace: a container has its own, whatever its host name. A host that was started again since
    runs nothing of before; that is taken for granted outside of containers only, where a machine
    is told from others.
    """
    if owner is None:
        return None
    here = _place()
    # Journals of before lack boot and namespace: these go by the host name.
    if any(owner.get(name, here[name]) != here[name] for name in ("host", "boot", "namespace")):
        return False if _was_before_this_boot(owner, here) else None
    began = start_of(int(owner["pid"]))
    # The number may belong to another process by now.
    return began if began is None else bool(began) and owner.get("start") in ("", began)


def _was_before_this_boot(owner: Mapping[str, Any], here: Mapping[str, str]) -> bool:
    names = ("host", "machine", "namespace")
    same = all(owner.get(name) == here[name] for name in names)
    known = bool(here["machine"]) and here["namespace"] == INITIAL_NAMESPACE
    return same and known and owner.get("boot") != here["boot"]


@cache
def _place() -> dict[str, str]:
    """Where this process runs, as far as the system says."""
    machine = _text("/etc/machine-id")
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        # It identifies a machine to everybody, so that only a digest of it is written.
        "machine": hashlib.sha256(f"metakel {machine}".encode()).hexdigest()[:12]
        if machine
        else "",
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "namespace": namespace,
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


# When a process began, which tells it from a later one with the same number


def start_of(pid: int) -> str | None:
    """When the process began, in the system's own words.

    Empty where no process has this number or it only waits to be buried; None where that cannot be
    known. Nothing is sent to the process: on Windows ``os.kill(pid, 0)`` would interrupt it.
    """
    if sys.platform == "win32":
        return _start_on_windows(pid)
    if not (PROC / "self" / "stat").exists():
        return _start_by_ps(pid)
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None if _exists(pid) else ""  # it may be hidden from other users
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _start_by_ps(pid: int) -> str | None:
    """Without /proc, as on macOS: to the second, which suffices to tell processes apart."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        )
    except OSError:
        return None if _exists(pid) else ""
    state, _, began = found.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else " ".join(began.split())


def _start_on_windows(pid: int) -> str | None:
    if sys.platform == "win32":
        import ctypes
        from ctypes import wintypes

        query, wait = 0x1000, 0x100000  # PROCESS_QUERY_LIMITED_INFORMATION, SYNCHRONIZE
        unknown_number, still_running = 87, 258  # ERROR_INVALID_PARAMETER, WAIT_TIMEOUT
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenProcess.restype = wintypes.HANDLE
        handle = kernel.OpenProcess(query | wait, False, pid)
        if not handle:
            return "" if ctypes.get_last_error() == unknown_number else None
        process = wintypes.HANDLE(handle)
        try:
            if kernel.WaitForSingleObject(process, 0) != still_running:
                return ""
            times = [wintypes.FILETIME() for _ in range(4)]
            if kernel.GetProcessTimes(process, *map(ctypes.byref, times)):
                return str(times[0].dwHighDateTime << 32 | times[0].dwLowDateTime)
        finally:
            kernel.CloseHandle(process)
    return None
