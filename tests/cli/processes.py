"""Programs for `metakel tune` that say when they run, and how to wait for what they do."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from metakel.tuner.lock import start_of

TUNE = (sys.executable, "-m", "metakel", "tune")
# The second evaluation says that it has begun, and waits until it may end.
SECOND_WAITS = """
import os, pathlib, time
if os.environ["METAKEL_NUMBER"] == "1":
    pathlib.Path("begun").write_text(f"{os.getpid()}\\n")
    for _ in range(60_000):
        if pathlib.Path("go").exists():
            break
        time.sleep(0.01)
print(1.5)
"""


def usual_signals() -> None:
    """In a new process: as from a terminal, also if the tests run in the background or by nohup."""
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def read_pid(path: Path) -> int:
    """Of a process that notes it there, as soon as it does."""
    while not (path.exists() and path.read_text().endswith("\n")):
        time.sleep(0.01)
    return int(path.read_text())


def wait_until_gone(pid: int, patience: float = 60.0) -> None:
    """A process that was killed is gone in an instant, or is a zombie."""
    end = time.monotonic() + patience
    while start_of(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.01)
