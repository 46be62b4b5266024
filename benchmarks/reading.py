"""CPU time and memory of reading a history from a table, against pandas on the same file.

``python -m benchmarks.reading [--quick] [--rounds 9] [--update-docs]``

A table of 300,000 rows: 100 tasks, four numbers, a whole number, a choice and an output. Pandas
only makes a frame of it. A history also settles types, infers the space, looks for copies and
missing values, and encodes all rows. One process, one thread; the readers take turns, and medians
are compared. Memory is the rise of the peak of a fresh process, after all imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.command import run
from benchmarks.docs import markdown
from benchmarks.solver_table import machine
from metakel.data import History

ROWS, TASKS = 300_000, 100
WANTED = {"task": "task", "output": "score"}
MOST_TIME, MOST_MEMORY = 10, 5

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "pandas.read_csv": ("csv", pd.read_csv),
    "History.from_csv": ("csv", lambda path: History.from_csv(path, **WANTED)),
    "pandas.read_parquet": ("parquet", pd.read_parquet),
    "History.from_parquet": ("parquet", lambda path: History.from_parquet(path, **WANTED)),
    "History.from_frame": ("frame", lambda frame: History.from_frame(frame, **WANTED)),
}

# `ru_maxrss` would not do: a process begins with the peak of the one that started it.
CHILD = """
import re, sys
from pathlib import Path
import scipy.io
from benchmarks.reading import READERS, table
def peak(): return int(re.search("VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
name, folder = sys.argv[1:]
kind, read = READERS[name]
source = table() if kind == "frame" else Path(folder) / f"table.{kind}"
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = peak()
kept = read(source)
print(peak() - before)
"""


def table() -> pd.DataFrame:
    """Rows in the order of their tasks, numbers with all their digits."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "task": np.repeat([f"task {s}" for s in range(TASKS)], ROWS // TASKS),
            "rate": 10 ** rng.uniform(-4, 0, ROWS),
            "dropout": rng.uniform(0, 1, ROWS),
            "momentum": rng.normal(size=ROWS),
            "temperature": rng.uniform(-50, 50, ROWS),
            "depth": rng.integers(1, 17, ROWS),
            "activation": rng.choice(["relu", "tanh", "elu", "gelu"], ROWS),
            "score": rng.normal(size=ROWS),
        }
    )


def cpu_seconds(read: Callable[[Any], Any], source: Any) -> float:
    start = time.process_time()
    read(source)
    return time.process_time() - start


def peak_memory(name: str, folder: Path) -> float:
    """Bytes by which a fresh process grows at most (Linux)."""
    command = [sys.executable, "-c", CHILD, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = 1024 * float(done.stdout)
    if found <= 0:
        raise RuntimeError(f"{name} seems to need no memory; the peak cannot be measured here")
    return found


def measure(rounds: int) -> str:
    """All measurements, as a section of the documentation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = table()
        frame.to_csv(folder / "table.csv", index=False)
        frame.to_parquet(folder / "table.parquet")
        size = {kind: (folder / f"table.{kind}").stat().st_size for kind in ("csv", "parquet")}
        sources: dict[str, Any] = {kind: folder / f"table.{kind}" for kind in size}
        sources["frame"] = frame
        seconds: dict[str, list[float]] = {reader: [] for reader in READERS}
        for turn in range(rounds + 1):  # the first turn imports
            for reader, (kind, read) in READERS.items():
                seconds[reader].append(cpu_seconds(read, sources[kind]))
            print(f"round {turn} of {rounds}", file=sys.stderr, flush=True)
        memory = {reader: peak_memory(reader, folder) for reader in READERS}
    medians = {reader: float(np.median(found[1:])) for reader, found in seconds.items()}
    return report(medians, memory, size, rounds)


def report(
    medians: dict[str, float], memory: dict[str, float], size: dict[str, int], rounds: int
) -> str:
    rows = []
    for reader, (kind, _) in READERS.items():
        rival = f"pandas.read_{'csv' if kind == 'frame' else kind}"
        ratio = medians[reader] / medians[rival]
        of_file = f"{memory[reader] / size['csv']:.1f}x"
        rows.append(
            [
                reader,
                f"{1e3 * medians[reader]:.0f}",
                f"{ratio:.1f}x" + (" (of read_csv)" if kind == "frame" else ""),
                f"{memory[reader] / 2**20:.0f}",
                of_file,
            ]
        )
    time_ratio = medians["History.from_csv"] / medians["pandas.read_csv"]
    memory_ratio = memory["History.from_csv"] / size["csv"]
    floors = [
        ("CPU time of from_csv over pandas", time_ratio, MOST_TIME),
        ("memory of from_csv over the size of the file", memory_ratio, MOST_MEMORY),
    ]
    verdicts = [
        [goal, f"{ratio:.1f}x", f"<= {most}x", "met" if ratio <= most else "MISSED"]
        for goal, ratio, most in floors
    ]
    return "\n".join(
        [
            f"A table of {ROWS:,} rows ({size['csv'] / 2**20:.0f} MB as CSV): {TASKS} tasks, four",
            "numbers with all their digits, a whole number, a choice and an output. Pandas only",
            "makes a frame; a history also settles types, infers the space, counts copies and",
            f"missing values, and encodes all rows. Medians of {rounds} rounds, in turns.",
            "",
            markdown(["reader", "CPU ms", "over pandas", "peak MB", "over the CSV"], rows),
            "",
            markdown(["goal", "measured", "floor", "verdict"], verdicts),
            "",
            machine(),
        ]
    )


if __name__ == "__main__":
    run("reading", "reading", __doc__, measure, rounds=9, title="Reading a table")
