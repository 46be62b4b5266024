"""More tasks than memory, more work than one machine: what it costs.

``python -m benchmarks.scale [--tasks 1000,10000,100000] [--json FILE] [--update-docs]``

Every learning runs in a process of its own with one BLAS thread. Seconds are those of the
processor, which other users of the machine do not lengthen; the clock's stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.docs import markdown, update_section
from benchmarks.scale_data import ACTIVE, N_POINTS, NEW_TASKS, P, write
from benchmarks.solver_table import machine

ROOT = Path(__file__).parents[1]
SIZES = (1000, 10_000, 100_000)
REPEATED_TASKS = 30_000  # small sizes are measured several times, and the least time counts
ROUND_TASKS = 24_000  # of the race of two workers against one process
PRIOR_HEADING = (
    "`learn_prior` on a scan (floor 2 GB and linear in tasks, goal 1 GB and 60 s of the processor; "
    "with two workers, the seconds are those of the driver):"
)
PRIOR_ROWS = 100  # of a task that a prior is learned from
FLOORS = {"memory": 2e9, "slope": (0.9, 1.1), "update": 10.0, "workers": 1.35}


def measure(*arguments: str) -> dict[str, Any]:
    """One measurement of `scale_runs` in a new process."""
    command = [sys.executable, "-m", "benchmarks.scale_runs", *arguments]
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
        new = []
        if m == max(sizes):
            write(folder / "new", m // 100, first=NEW_TASKS)
            new = [str(folder / "new")]
        repeats = min(9, max(1, REPEATED_TASKS // m))
        found = [measure("learn", str(folder / str(m)), *new) for _ in range(repeats)]
        runs.append(min(found, key=lambda run: run["cpu"]))
    return {
        "learn": runs,
        "rounds": measure("rounds", str(ROUND_TASKS)),
        "prior": prior_runs(max(sizes), folder),
    }


def prior_runs(m: int, folder: Path) -> list[dict[str, Any]]:
    """`learn_prior` on scans of a tenth of the tasks, of all, and of all on two workers."""
    few, all_of_them = (str(folder / f"prior-{count}") for count in (m // 10, m))
    write(Path(few), m // 10, n=PRIOR_ROWS)
    write(Path(all_of_them), m, n=PRIOR_ROWS)
    return [
        measure("prior", few),
        measure("prior", all_of_them),
        measure("prior", all_of_them, "2"),
    ]


def slope(runs: list[dict[str, Any]]) -> float:
    """Exponent of the growth of the time with the number of tasks."""
    m, seconds = ([run[key] for run in runs] for key in ("m", "cpu"))
    return float(np.polyfit(np.log(m), np.log(seconds), 1)[0])


def learning_table(runs: list[dict[str, Any]]) -> str:
    head = ["tasks", "rows", "seconds (processor)", "seconds (clock)", "rounds", "passes",
            "peak memory", "numbers received", "relative gap"]  # fmt: skip
    rows = [
        [f"{r['m']:,}", f"{r['rows']:,}", f"{r['cpu']:.2f}", f"{r['wall']:.2f}", str(r["rounds"]),
         str(r["passes"]), f"{r['peak'] / 1e9:.2f} GB", f"{r['floats']:,}", f"{r['gap']:.0e}"]
        for r in runs
    ]  # fmt: skip
    return markdown(head, rows)


def prior_table(runs: list[dict[str, Any]]) -> str:
    head = ["tasks", "rows", "where", "seconds (processor)", "of them reading", "peak memory",
            "the prior"]  # fmt: skip
    same = len({run["digest"] for run in runs[1:]}) == 1
    where = {None: "one process", 2: "two workers"}
    rows = [
        [f"{r['m']:,}", f"{r['rows']:,}", where[r["workers"]],
         f"{r['cpu']:.1f}", f"{r['reading']:.1f}", f"{r['peak'] / 1e9:.2f} GB",
         "" if r is runs[0] else ("same to the last bit" if same else "DIFFERS")]
        for r in runs
    ]  # fmt: skip
    return markdown(head, rows)


def floors_table(results: dict[str, Any]) -> str:
    largest, race = results["learn"][-1], results["rounds"]
    low, high = FLOORS["slope"]
    growth = slope(results["learn"])
    cheaper = largest["scratch"]["cpu"] / largest["update"]["cpu"]
    rows = [
        ["peak memory at the largest size", f"{largest['peak'] / 1e9:.2f} GB", "< 2 GB",
         largest["peak"] < FLOORS["memory"]],
        ["exponent of time in the number of tasks", f"{growth:.2f}", f"{low} to {high}",
         low <= growth <= high],
        ["update with 1 % new tasks against from scratch",
         f"{cheaper:.1f}x ({largest['update']['cpu']:.2f} s of {largest['scratch']['cpu']:.2f} s)",
         ">= 10x", cheaper >= FLOORS["update"]],
        *race_rows(race),
    ]  # fmt: skip
    return verdicts_table(rows)


def race_rows(race: dict[str, Any]) -> list[list[Any]]:
    """A round on two workers against one process."""
    one, two = race["one process"], race["two workers"]
    faster, floor = one["wall"] / two["wall"], FLOORS["workers"]
    return [
        ["round on two workers against one process",
         f"{faster:.2f}x ({two['wall']:.2f} s of {one['wall']:.2f} s)",
         f">= {floor}x", faster >= floor],
        ["- processor seconds, of the busier worker against one process",
         f"{one['cpu'] / two['cpu']:.2f}x ({two['cpu']:.2f} s of {one['cpu']:.2f} s)", "-", None],
        ["- two processes that share nothing, at the same time", f"{race['capacity']:.2f}x",
         "-", None],
        ["- answers of both", "same to the last bit" if race["same"] else "DIFFER", "same",
         race["same"]],
    ]  # fmt: skip


def verdicts_table(rows: list[list[Any]]) -> str:
    verdicts = {True: "met", False: "MISSED", None: "-"}
    lines = [[name, value, floor, verdicts[met]] for name, value, floor, met in rows]
    return markdown(["what", "measured", "floor", "verdict"], lines)


def unit_costs(results: dict[str, Any]) -> dict[str, float]:
    """Processor seconds per number that a pass makes, or per task and round."""
    largest, race = results["learn"][-1], results["rounds"]
    values = largest["rows"] * P  # features of all points
    stages = largest["stages"]
    return {
        "read": stages["reading"] / values,
        "certify": stages["certificate"] / values,
        "compress": stages["round 1"] / (largest["rows"] * largest["work"]),
        "small round": stages["later rounds"] / (largest["m"] * (largest["rounds"] - 1)),
        "large round": race["one process"]["cpu"] / ROUND_TASKS,
        "latency": race["latency"] / 4,
    }


def cost_table(costs: dict[str, float]) -> str:
    rows = [
        ["reading: features, eigenvalues, correlations", "N d", f"{1e9 * costs['read']:.1f} ns"],
        ["certificate: features, residuals, all scores", "N d", f"{1e9 * costs['certify']:.1f} ns"],
        ["statistics of the working set", "N d_W", f"{1e9 * costs['compress']:.0f} ns"],
        [f"round, {len(ACTIVE)} active columns", "m", f"{1e6 * costs['small round']:.1f} us"],
        [f"round, {P} active columns", "m", f"{1e6 * costs['large round']:.0f} us"],
        ["asking one shard on Dask", "shards", f"{1e3 * costs['latency']:.1f} ms"],
    ]
    return markdown(["step", "grows with", "cost of one"], rows)


def extrapolation(costs: dict[str, float]) -> str:
    """10^6 tasks of 50 points, p = 10^4, 100 active, on 100 workers of 4 shards each."""
    m, p, workers, shards, active, work = 10**6, 10**4, 100, 400, 100, 200
    rows_each = m * N_POINTS / workers
    read = rows_each * p * costs["read"]
    certify = rows_each * p * costs["certify"]
    compress = rows_each * work * costs["compress"]
    # n x n factorisations and an n x p_A whitening per task: quadratic in the active groups.
    step = m / workers * costs["large round"] * (active / P) ** 2 + shards * costs["latency"]
    received = shards * (1 + work + active**2) * 8
    passes = 5 * (certify + compress) + read
    lines = [
        ["reading, once", f"{read:.0f} s", f"{shards * 7 * p * 8 / 1e6:.0f} MB"],
        ["certificate, each", f"{certify:.0f} s", f"{shards * p * 8 / 1e6:.0f} MB"],
        ["statistics of 200 groups, each time the set grows", f"{compress:.0f} s", "-"],
        ["round, each", f"{step:.1f} s", f"{received / 1e6:.0f} MB"],
        ["all: 5 growths and certificates, 25 rounds", f"{(passes + 25 * step) / 60:.0f} min", "-"],
        ["held by a worker: points", "-", f"{rows_each * 2 * 8 / 1e6:.0f} MB"],
        ["held by a worker: features of the working set", "-",
         f"{rows_each * work * 8 / 1e9:.1f} GB"],
    ]  # fmt: skip
    return markdown(["step", "time", "bytes to the driver, or held"], lines)


def report(results: dict[str, Any], command: str) -> str:
    """The section of docs/scale.md, which is also what is printed."""
    costs = unit_costs(results)
    return "\n\n".join(
        [
            f"Made by `{command}` on {machine()}.",
            learning_table(results["learn"]),
            floors_table(results),
            PRIOR_HEADING,
            prior_table(results["prior"]),
            "Unit costs, in processor seconds of the largest run:",
            cost_table(costs),
            "Extrapolated to 10^6 tasks of 50 points, p = 10^4, 100 active groups, 100 workers:",
            extrapolation(costs),
        ]
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--tasks", default=",".join(map(str, SIZES)), help="numbers of tasks")
    parser.add_argument("--json", type=Path, help="file for every measured number")
    parser.add_argument("--update-docs", action="store_true", help="rewrite docs/scale.md")
    parser.add_argument("--only", choices=["prior", "rounds"], help="print one part of it")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.only == "prior":
            print(prior_table(prior_runs(int(options.tasks.split(",")[-1]), Path(folder))))
            return
        if options.only == "rounds":
            print(verdicts_table(race_rows(measure("rounds", str(ROUND_TASKS)))))
            return
        results = run([int(m) for m in options.tasks.split(",")], Path(folder))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    section = report(results, f"python -m benchmarks.scale --tasks {options.tasks}")
    print(section)
    if options.update_docs:
        update_section(ROOT / "docs" / "scale.md", "scale", "Measured", section)


if __name__ == "__main__":
    main(sys.argv[1:])
