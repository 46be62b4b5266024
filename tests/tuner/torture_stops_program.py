"""What `torture_stops.py` lets `metakel tune` run: two of three runs are hopeless, and wait.

Every second one does not mind being asked to end; a child of each sleeps on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

STEPS, WAITS_AFTER = 20, 12
STARTED, ASKED = "started", "asked"


def note(file: Path, pid: int) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{pid}\n")


def main() -> None:
    folder, number = Path(sys.argv[1]), int(os.environ["METAKEL_NUMBER"])

    def asked_to_end(sign: int, frame: FrameType | None) -> None:
        note(folder / ASKED, os.getpid())
        if number % 2 == 0:
            sys.exit(1)

    signal.signal(signal.SIGTERM, asked_to_end)
    note(folder / STARTED, os.getpid())
    hopeless = number % 3 != 2
    if hopeless:
        note(folder / STARTED, subprocess.Popen(["sleep", "600"]).pid)
    level = -50.0 if hopeless else 0.3 * number
    for epoch in range(STEPS):
        while hopeless and epoch == WAITS_AFTER:
            time.sleep(0.01)
        sys.stdout.write(f"epoch={epoch} val={level - 2.0**-epoch!r}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{level!r}\n")


if __name__ == "__main__":
    main()
