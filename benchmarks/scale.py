"""More tasks than memory, more work than one machine: what it costs.

``python -m benchmarks.scale [--tasks 1000,10000,100000] [--json FILE] [--update-docs]``

Every measurement runs in a process of its own with one BLAS thread. Seconds are those of the
processor, which other users of the machine do not lengthen; the clock's stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import metakel as mk
from benchmarks.docs import markdown, update_section
from benchmarks.scale_data import NOISE, base_kernels, write
from benchmarks.solver_table import machine
from metakel.scale import Scan, scan

ROOT = Path(__file__).parents[1]
SIZES = (1000, 10_000, 100_000)
ROUND_TASKS = 20_000  # of the race of two workers against one process
TOL = 1e-8
# Dask lets workers return freed memory at once; every array of a round is then faulted in again.
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 26)}
FLOORS = {"memory": 2e9, "slope": (0.85, 1.15), "workers": 1.35}


def timed(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result, with wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return result, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def learn(folder: str) -> dict[str, Any]:
    """Scan, learn, and draw a sample."""
    base = base_kernels()
    with tempfile.TemporaryDirectory() as small:  # the first call imports what reading needs
        write(Path(small), 10)
        mk.learn_kernel(scan(small, base), noise_std=NOISE)
    tasks, reading = timed(lambda: scan(folder, base))
    learned, learning = timed(lambda: mk.learn_kernel(tasks, noise_std=NOISE, tol=TOL))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    _, sampling = timed(lambda: scan(folder).sample())
    return {
        "m": tasks.m,
        "rows": tasks.total,
        "reading": reading,
        "learning": learning,
        "sampling": sampling,
        "stored": sum(os.path.getsize(file.path) for file in tasks.factors),
        "gap": learned.solution.gap,
        "active": learned.active.tolist(),
        "peak": peak,
    }


def race(folder: str, *, repeats: int = 5) -> dict[str, Any]:
    """Seconds of a round with all groups active, in one process and on two Dask workers.

    They take turns, so that other users of the machine disturb them alike. Processor seconds are
    those of the busiest process.
    """
    from distributed import Client

    base = base_kernels()
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "env": KEEP}
    with Client(**options) as client:
        tasks = {
            "one process": scan(folder, base),
            "two workers": scan(folder, base, client=client),
        }
        spent: dict[str, list[dict[str, float]]] = {name: [] for name in tasks}
        found: dict[str, list[Any]] = {name: [] for name in tasks}
        for i in range(repeats + 1):
            for name, one in tasks.items():
                before = client.run(time.process_time)
                answer, seconds = timed(partial(one_round, one, 1 + 0.1 * i))
                after = client.run(time.process_time)
                if one.client is not None:
                    seconds["cpu"] = max(after[k] - before[k] for k in before)
                found[name].append(answer)
                spent[name].append(seconds)
    pairs = zip(found["one process"], found["two workers"], strict=True)
    off = max(float(np.abs(a[1] - b[1]).max() / np.abs(a[1]).max()) for a, b in pairs)
    medians = {
        name: {key: float(np.median([one[key] for one in each[1:]])) for key in ("wall", "cpu")}
        for name, each in spent.items()
    }
    return {"off": off, **medians}


def one_round(tasks: Scan, scale: float) -> tuple[float, Any]:
    """Value and scores with weights on all groups."""
    problem = tasks.as_problem()
    assert problem.evaluator is not None
    evaluator = problem.evaluator(problem)
    evaluator.extend(np.arange(problem.p))
    found: tuple[float, Any] = evaluator.at(np.arange(problem.p), scale / evaluator.curvature)
    return found


def measure(*arguments: str) -> dict[str, Any]:
    """One measurement in a new process."""
    command = [sys.executable, "-m", "benchmarks.scale", *arguments]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | threads, stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def run(sizes: list[int], folder: Path) -> dict[str, Any]:
    """All measurements."""
    runs = []
    for m in sizes:
        write(folder / str(m), m)
        runs.append(measure("--learn", str(folder / str(m))))
    write(folder / "race", ROUND_TASKS)
    return {"learn": runs, "race": measure("--race", str(folder / "race"))}


def report(results: dict[str, Any], command: str) -> str:
    """The section of TABLES.md, which is also what is printed."""
    runs, found = results["learn"], results["race"]
    head = ["tasks", "rows", "reading", "learning", "sample of 1,000", "clock, all", "factors",
            "peak memory", "relative gap"]  # fmt: skip
    stages = ("reading", "learning", "sampling")
    rows = [
        [f"{r['m']:,}", f"{r['rows']:,}", *(f"{r[stage]['cpu']:.2f} s" for stage in stages),
         f"{sum(r[stage]['wall'] for stage in stages):.1f} s", f"{r['stored'] / 1e9:.2f} GB",
         f"{r['peak'] / 1e9:.2f} GB", f"{r['gap']:.0e}"]
        for r in runs
    ]  # fmt: skip
    seconds = [r["reading"]["cpu"] + r["learning"]["cpu"] for r in runs]
    growth = float(np.polyfit(np.log([r["m"] for r in runs]), np.log(seconds), 1)[0])
    low, high = FLOORS["slope"]
    by_clock, faster = (
        found["one process"][key] / found["two workers"][key] for key in ("wall", "cpu")
    )
    verdicts = {True: "met", False: "MISSED"}
    floors = [
        ["peak memory at the largest size", f"{runs[-1]['peak'] / 1e9:.2f} GB", "< 2 GB",
         verdicts[runs[-1]["peak"] < FLOORS["memory"]]],
        ["exponent of time in the number of tasks", f"{growth:.2f}", f"{low} to {high}",
         verdicts[low <= growth <= high]],
        ["a round on two Dask workers over one process, processor seconds of the busier worker",
         f"{faster:.2f}x", ">= 1.35x", verdicts[faster >= FLOORS["workers"]]],
        ["- by the clock, with whatever else runs on the machine", f"{by_clock:.2f}x", "-", "-"],
        ["largest relative difference of its scores", f"{found['off']:.0e}", "<= 1e-09",
         verdicts[found["off"] <= 1e-9]],
    ]  # fmt: skip
    return "\n\n".join(
        [
            f"Made by `{command}` on {machine()}.",
            markdown(head, rows),
            markdown(["what", "measured", "floor", "verdict"], floors),
        ]
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--tasks", default=",".join(map(str, SIZES)), help="numbers of tasks")
    parser.add_argument("--json", type=Path, help="file for every measured number")
    parser.add_argument("--update-docs", action="store_true", help="write into TABLES.md")
    parser.add_argument("--learn", help="one measurement: a folder of rows")
    parser.add_argument("--race", help="one measurement: a folder of rows")
    options = parser.parse_args(arguments)
    if options.learn or options.race:
        print(json.dumps(learn(options.learn) if options.learn else race(options.race)))
        return
    with tempfile.TemporaryDirectory() as folder:
        results = run([int(m) for m in options.tasks.split(",")], Path(folder))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    section = report(results, f"python -m benchmarks.scale --tasks {options.tasks}")
    print(section)
    if options.update_docs:
        update_section("scale", "Measured", section)


if __name__ == "__main__":
    main(sys.argv[1:])
