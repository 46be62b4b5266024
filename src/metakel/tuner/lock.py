"""One process at a time: an advisory lock on an open file, released when its owner dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the file for oneself; waits for whoever holds it."""
    if sys.platform == "win32":
        import msvcrt
        import os

        os.lseek(descriptor, 1 << 40, os.SEEK_SET)  # far behind the text, which stays readable
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        try:
            yield
        finally:
            os.lseek(descriptor, 1 << 40, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
