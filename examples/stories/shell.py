"""Type commands as a person would, and show what they print."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path


def metakel(folder: Path, *words: object) -> int:
    """Run ``metakel ...`` in a folder and print the command and its answer."""
    typed = [str(word) for word in words]
    shown = ["python" if word == sys.executable else Path(word).name for word in typed]
    print(f"$ metakel {shlex.join(shown)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "metakel", *typed],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print(done.stdout.replace(sys.executable, "python").replace(str(Path(__file__).parent), "."))
    return done.returncode
