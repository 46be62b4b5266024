"""A process that ends the program of `metakel tune` where that is killed by force."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

GRACE = 3.0  # seconds between the request to end and force
# It reads whom to watch, 0 for nobody. The end of its input is the end of `metakel tune`.
WATCH = f"""
import os, signal, sys, time
group = 0
for line in sys.stdin:
    group = int(line)
try:
    os.killpg(group, signal.SIGTERM) if group else sys.exit()
    end = time.monotonic() + {GRACE}
    while time.monotonic() < end:
        os.killpg(group, 0)
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
except OSError:
    pass
"""


class Guard:
    """Outlives this process for as long as it takes to end the program, with all its children.

    Nothing is watched outside of the block, nor on Windows.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guard:
        with suppress(OSError):
            if sys.platform != "win32":
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", WATCH],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a signal to the group of this process passes it by
                )
        return self

    def __exit__(self, *error: object) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            process.wait()

    @property
    def watches(self) -> bool:
        """Whether there is somebody to watch."""
        return self._process is not None

    def watch_this(self) -> None:
        """Called in the process that becomes the program."""
        self._say(os.getpid())

    def rest(self) -> None:
        """The program has ended."""
        self._say(0)

    def _say(self, group: int) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed as well
                os.write(self._process.stdin.fileno(), f"{group}\n".encode())
