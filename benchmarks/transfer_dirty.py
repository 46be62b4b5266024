"""What histories that are not clean cost: evaluations over those with a clean history.

``python -m benchmarks.transfer_dirty [--before FOLDER] [--tables glmnet] [--update-docs]``; a run
that was stopped goes on where it was.

The protocol is that of `benchmarks.transfer`, a search ends when it comes within 5 %. The scenarios
are those of `benchmarks.transfer_scenarios`. With ``--before`` a checkout of an earlier version is
measured in the same run, history by history.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path

import numpy as np

from benchmarks.docs import markdown, update_section
from benchmarks.seeds import bench
from benchmarks.transfer_data import ROOT, Case, cases
from benchmarks.transfer_runs import DATA
from benchmarks.transfer_scenarios import ROWS, SCENARIOS, Table, seeded, tables
from metakel import learn_prior
from metakel.data import History, Task
from metakel.optimize.optimizer import Optimizer
from metakel.search import candidates

HORIZON, LEVEL, DRAWS = 50, 0.05, 2000
SPLITS, TESTS = 3, 10
FIRST_SPLIT = 400  # those before were looked at while the method was changed
CLEAN = "clean"
FILES = (*DATA, "benchmarks/transfer_dirty.py", "benchmarks/transfer_scenarios.py")
WHAT = """\
Command: `make bench-transfer`, or `python -m benchmarks.transfer_dirty --before FOLDER
--update-docs` with a checkout of an earlier version. Mean evaluations to within 5 % of the spread
between best and median row, censored at 50, over those of the same version with a clean history:
the geometric mean over tables, and every table. Versions are measured in one run on the same
splits ({splits}) and seeds, ten test tasks each; after / before compares evaluations with the same
history, with a 95 % bootstrap interval over test tasks. The tables and the two families of
functions (`benchmarks/transfer_scenarios.py`) were looked at during development, on other
splits. All of it is code of ours."""


@dataclass(frozen=True)
class Run:
    """One search: evaluations needed, and CPU seconds of learning."""

    table: str
    scenario: str
    version: str
    split: int
    task: int
    evaluations: int
    learning: float


def measure(name: str, table: Table, case: Case, scenario: str, version: str) -> list[Run]:
    """Learn from one history, then search the first test tasks."""
    found = seeded(scenario, case.history, table.space, case.split)
    history = History(
        tuple(Task(X, y, str(s)) for s, (X, y) in enumerate(found.history)), table.space
    )
    start = time.process_time()
    prior = learn_prior(history, certify="none")
    learning = time.process_time() - start
    runs = []
    for task in case.test[:TESTS]:
        X, y = table.tasks[task]
        needed = evaluations(prior.task_model(), X + 0.0, found.measure(y))
        runs.append(Run(name, scenario, version, case.split, task, needed, learning))
    return runs


def evaluations(model, X: np.ndarray, y: np.ndarray) -> int:
    """How many it takes to come within 5 %; 50 where that does not happen or the model breaks."""
    value = {x.tobytes(): v for x, v in zip(X, y.tolist(), strict=True)}
    target = y.max() - LEVEL * (y.max() - np.median(y))
    rng = np.random.default_rng(0)
    optimizer = Optimizer(model, candidates(X, repeat=False), rng=rng)
    for step in range(1, HORIZON + 1):
        try:
            x = optimizer.ask()
        except ValueError:  # earlier versions come to scores that are nan
            return HORIZON
        if value[x.tobytes()] >= target:
            return step
        optimizer.tell(x, value[x.tobytes()])
    return HORIZON


def worker(job: Sequence[str]) -> None:
    """All scenarios of one split of a table; runs go to standard output."""
    name, split, version, *scenarios = job
    table = tables()[name]
    (case,) = cases(table.tasks, splits=[int(split)], rows=ROWS)
    for scenario in scenarios:
        for run in measure(name, table, case, scenario, version):
            print(json.dumps(asdict(run)))


def one_split(name: str, version: str, folder: str, scenarios: list[str], split: int) -> dict:
    """The runs of one split with the sources of a folder, in a process of their own; JSON."""
    path = os.pathsep.join([str(Path(folder) / "src"), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks.transfer_dirty", "--worker", name, str(split)]
    done = subprocess.run(
        [*command, version, *scenarios],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    print(f"{name}, split {split}, {version}", file=sys.stderr)
    return {"runs": [json.loads(line) for line in done.stdout.splitlines()]}


def run_all(
    names: list[str],
    scenarios: list[str],
    splits: int,
    before: Path | None,
    jobs: int,
    minutes: float,
) -> list[Run]:
    """Every split of every table, in both versions; those that were run before are kept."""
    versions = {"after": (ROOT, "")}
    if before is not None:
        commit = ["git", "-C", str(before), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(commit, check=True, capture_output=True, text=True)
        versions = {"before": (before, f"-{done.stdout.strip()}"), **versions}
    seeds, runs = range(FIRST_SPLIT, FIRST_SPLIT + splits), []
    chosen = "" if len(scenarios) == len(SCENARIOS) else f"-{'-'.join(scenarios)}"
    with bench("dirty", *FILES, jobs=jobs, minutes=minutes) as place:
        for name in names:
            for version, (folder, commit) in versions.items():
                once = partial(one_split, name, version, str(folder), scenarios)
                kept = f"{name}-{version}{commit}{chosen}".replace(" ", "_")
                for found in place.measured(kept, once, seeds):
                    runs += [Run(**run) for run in found["runs"]]
    return runs


def report(runs: Sequence[Run]) -> str:
    """Markdown: one line per scenario."""
    names = list(dict.fromkeys(run.table for run in runs))
    versions = list(dict.fromkeys(run.version for run in runs))
    lines = []
    for scenario in dict.fromkeys(run.scenario for run in runs):
        cells = []
        for version in versions:
            costs = [
                _mean(runs, name, scenario, version) / _mean(runs, name, CLEAN, version)
                for name in names
            ]
            cells.append(f"{_geometric(costs):.2f} ({', '.join(f'{c:.2f}' for c in costs)})")
        if len(versions) == 2:
            cells.append(_ratio(runs, names, scenario))
        lines.append([scenario, *cells])
    head = ["history or new task", *(f"{v} ({', '.join(names)})" for v in versions)]
    if len(versions) == 2:
        head.append("after / before")
    what = WHAT.format(splits=len({run.split for run in runs}))
    parts = [what, "", markdown(head, lines), "", "Means:", ""]
    for version in versions:
        own = [run for run in runs if run.version == version]
        parts.append(
            f"- {version}: learning {np.mean([r.learning for r in own]):.2f} s; evaluations with a "
            "clean history "
            + ", ".join(f"{name} {_mean(runs, name, CLEAN, version):.1f}" for name in names)
        )
    return "\n".join(parts)


def _per_task(runs: Sequence[Run], name: str, scenario: str, version: str) -> np.ndarray:
    """Mean evaluations of every test task."""
    own = [r for r in runs if (r.table, r.scenario, r.version) == (name, scenario, version)]
    tasks = sorted({run.task for run in own})
    return np.array([np.mean([r.evaluations for r in own if r.task == t]) for t in tasks])


def _mean(runs: Sequence[Run], name: str, scenario: str, version: str) -> float:
    return float(_per_task(runs, name, scenario, version).mean())


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _ratio(runs: Sequence[Run], names: list[str], scenario: str) -> str:
    """Geometric mean over tables, with its interval; test tasks are drawn anew, for both alike."""
    rng, value, draws = np.random.default_rng(0), 0.0, np.zeros(DRAWS)
    for name in names:
        new, old = (_per_task(runs, name, scenario, version) for version in ("after", "before"))
        chosen = rng.integers(len(new), size=(DRAWS, len(new)))
        value += np.log(new.mean() / old.mean()) / len(names)
        draws += np.log(new[chosen].mean(axis=1) / old[chosen].mean(axis=1)) / len(names)
    low, high = np.exp(np.quantile(draws, [0.025, 0.975]))
    return f"{np.exp(value):.2f} ({low:.2f}-{high:.2f})"


def main() -> None:
    """Run, print the report, and write it to the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="", help="comma-separated; all that are at hand")
    parser.add_argument("--scenarios", default="", help="comma-separated beginnings of their names")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--quick", action="store_true", help="1 split")
    parser.add_argument("--before", type=Path, help="checkout of the version to compare with")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=inf, help="start nothing after so many")
    parser.add_argument("--update-docs", action="store_true")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # alarms are what is measured
    if options.worker:
        worker(options.worker)
        return
    names = options.tables.split(",") if options.tables else list(tables())
    wanted = tuple(options.scenarios.split(","))
    scenarios = [name for name in SCENARIOS if name == CLEAN or name.startswith(wanted)]
    splits = 1 if options.quick else options.splits
    runs = run_all(names, scenarios, splits, options.before, options.jobs, options.minutes)
    text = report(runs)
    print(text)
    if options.update_docs:
        update_section("dirty", "Histories that are not clean", text)


if __name__ == "__main__":
    main()
