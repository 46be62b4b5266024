"""The CPU time until something happens: of ``import metakel``, its first use, and ``--help``.

``python -m benchmarks.start [--quick] [--rounds 9] [--update-docs]``

Each number is that of a whole new process, the start of Python included.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np

from benchmarks.command import run
from benchmarks.docs import markdown
from benchmarks.solver_table import machine

# What is started, and the seconds of CPU that it may take.
STARTS = {
    "import metakel": (["-c", "import metakel"], 0.35),
    "import metakel, all of it": (["-c", "from metakel import *"], 0.6),
    "metakel --help": (["-m", "metakel", "--help"], 0.5),
}
BESIDE = {
    "Python alone": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import scipy.linalg": ["-c", "import scipy.linalg"],
    "metakel tune --help, which loads what it runs": ["-m", "metakel", "tune", "--help"],
}


def cpu_seconds(words: list[str]) -> float:
    """CPU time of a new process, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int) -> str:
    """The section of the documentation."""
    everything = {**BESIDE, **{name: words for name, (words, _) in STARTS.items()}}
    seconds: dict[str, list[float]] = {name: [] for name in everything}
    for _ in range(rounds):
        for name, words in everything.items():
            seconds[name].append(cpu_seconds(words))
    middle = {name: float(np.median(values)) for name, values in seconds.items()}
    spread = {name: f"{min(v):.3f} to {max(v):.3f} s" for name, v in seconds.items()}
    goals = [
        [name, f"{middle[name]:.3f} s", f"<= {limit:g} s", spread[name],
         "met" if middle[name] <= limit else "missed"]
        for name, (_, limit) in STARTS.items()
    ]  # fmt: skip
    beside = ", ".join(f"{name} {middle[name]:.3f} s" for name in BESIDE)
    return (
        f"Medians of the CPU time of {rounds} new processes, which take turns. For comparison: "
        f"{beside}.\n\n"
        + markdown(["goal", "measured", "floor", "lowest to highest", "verdict"], goals)
        + f"\n\n{machine()}"
    )


if __name__ == "__main__":
    run("start", "start", __doc__, measure, rounds=9, title="The time to start")
