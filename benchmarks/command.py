"""The command line of benchmarks that measure in rounds and write one section of the docs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from collections.abc import Callable

from benchmarks.docs import update_section
from benchmarks.solver_worker import ONE_THREAD


def run(
    module: str,
    section: str,
    about: str | None,
    measure: Callable[[int], str],
    *,
    rounds: int,
    title: str,
) -> None:
    """Measure with one thread, print what was found, and write it into the docs if asked to.

    ``module`` is the name within `benchmarks`, ``section`` that of the markers in the docs.
    """
    name = f"benchmarks.{module}"
    parser = argparse.ArgumentParser(prog=name, description=about)
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--update-docs", action="store_true", help="write into TABLES.md")
    options = parser.parse_args()
    if any(os.environ.get(variable) != number for variable, number in ONE_THREAD.items()):
        # Threads are fixed when numpy is imported, so start again.
        command = [sys.executable, "-m", name, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, **ONE_THREAD}).returncode)
    warnings.simplefilter("ignore")
    found = measure(2 if options.quick else options.rounds)
    print(found)
    if options.update_docs:
        update_section(section, title, found)
