"""Write requirements-ci.txt: the versions of constraints.txt, each with the hash of its file.

``python .ci/hashes.py`` asks pip which file it would install on this platform. It installs nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# The versions of constraints.txt with hashes of their files, for CPython 3.11 on Linux (x86-64).
# Made by `python .ci/hashes.py`. `make install-hashed` installs these files and no others.
# torch is the build without CUDA, from the index of PyTorch.
"""


def name_of(text: str) -> str:
    """A project in the one way in which it is compared."""
    return re.sub(r"[-_.]+", "-", text).lower()


def main() -> None:
    constraints = ROOT / "constraints.txt"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--report", "-", "-r", str(constraints)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    hashes = {
        name_of(item["metadata"]["name"]): item["download_info"]["archive_info"]["hashes"]["sha256"]
        for item in report["install"]
    }
    pins = [line.strip() for line in constraints.read_text().splitlines() if "==" in line]
    lines = [f"{pin} \\\n    --hash=sha256:{hashes[name_of(pin.split('==')[0])]}\n" for pin in pins]
    (ROOT / "requirements-ci.txt").write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
