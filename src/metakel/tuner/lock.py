"""Processes that share a journal: a lock that ends with its holder, and who is still alive."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

LOG = logging.getLogger("metakel")
PATIENCE = 5.0  # seconds after which a wait is explained
FAR = 1 << 40  # Windows locks a byte far behind the text, which stays readable


@contextmanager
def locked(descriptor: int, name: str) -> Iterator[None]:
    """Hold a file; waits for whoever holds it, and after some seconds says who that is."""
    if not try_lock(descriptor):
        _wait(descriptor, name)
    try:
        yield
    finally:
        with suppress(OSError):  # a fork has closed its copy
            _unlock(descriptor)


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
            import msvcrt

            os.lseek(descriptor, FAR, os.SEEK_SET)
            while True:
                with suppress(OSError):  # it gives up after ten seconds
                    msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                    return
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        explain.cancel()


def _unlock(descriptor: int) -> None:
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
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(found.st_ino):
                pid = int(fields[4])
                if pid > 0 and Path(f"/proc/{pid}").exists():
                    return [pid]
    return [pid for pid in _pids() if pid != os.getpid() and _has_open(pid, found)]


def _pids() -> list[int]:
    with suppress(OSError):
        return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return []


def _has_open(pid: int, file: os.stat_result) -> bool:
    with suppress(OSError):
        return any(_same(entry, file) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _same(entry: Path, file: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(entry.stat(), file)
    return False


def this_process() -> dict[str, Any]:
    """What the journal notes of whoever asked."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": _start(os.getpid())}


def is_dead(owner: Mapping[str, Any] | None) -> bool:
    """Whether the process is certainly gone; one on another host is taken to be alive."""
    if owner is None or owner.get("host") != socket.gethostname():
        return False
    pid = int(owner["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    # The number may belong to another process by now.
    return owner.get("start") != _start(pid) or _state(pid) == "Z"


def _fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _start(pid: int) -> str:
    """When the process began, in ticks of the system; empty where there is no /proc."""
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def _state(pid: int) -> str:
    fields = _fields(pid)
    return fields[0] if fields else ""
