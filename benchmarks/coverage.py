"""Coverage and width of every confidence method, and what GP-UCB makes of them.

``python -m benchmarks.coverage [--quick] [--jobs 2] [--seed 0] [--records FILE] [--update-docs]``

Every run has random streams of its own, so the numbers do not depend on the number of processes.
With ``--records`` the measurements are kept in a file, from which tables and picture can be made
again.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from benchmarks.coverage_report import draw, report
from benchmarks.coverage_results import CELLS, GAMES, PAPER, Results, goals
from benchmarks.coverage_runs import (
    missing_kernel_alarm,
    noisy_game,
    noisy_run,
    paper_run,
    regret_run,
)
from benchmarks.docs import update_section
from benchmarks.solver_table import machine

ROOT = Path(__file__).parents[1]
FIGURE = Path("docs/img/coverage.png")
T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """How many runs of the paper's example for each scaling, of the others for each cell."""

    uniform: int = 1000
    ucb: int = 500
    noisy: int = 334
    missing: int = 500
    games: int = 100
    noisy_games: int = 200


QUICK = Effort(uniform=20, ucb=20, noisy=20, missing=20, games=10, noisy_games=10)


def measure(effort: Effort, seed: int, pool: ProcessPoolExecutor) -> Results:
    """All experiments, spread over the processes."""

    def runs(what: str, count: int, once: Callable[[int, int], T]) -> list[T]:
        start = time.perf_counter()
        found = list(pool.map(once, range(count), [seed] * count, chunksize=max(1, count // 40)))
        print(f"{what}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        return found

    return Results(
        paper={
            (scaling, sampling): runs(
                f"paper's example, {scaling}, {sampling}",
                effort.uniform if sampling == "uniform" else effort.ucb,
                partial(paper_run, scaling, sampling),
            )
            for scaling, sampling in PAPER
        },
        noisy={
            (d, norm): runs(f"noise, d={d}, B={norm:g}", effort.noisy, partial(noisy_run, d, norm))
            for d, norm in CELLS
        },
        missing={
            scaling: runs(
                f"alarm, {scaling}", effort.missing, partial(missing_kernel_alarm, scaling)
            )
            for scaling in ("sup", "l2")
        },
        games={
            (scaling, everything): runs(
                f"GP-UCB, {scaling}", effort.games, partial(regret_run, scaling, everything)
            )
            for scaling, everything in GAMES
        },
        noisy_games=runs("GP-UCB, noise", effort.noisy_games, noisy_game),
    )


def one_thread_each(jobs: int) -> ProcessPoolExecutor:
    """Processes that start anew, so that they read how many threads the linear algebra may use."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def recorded(options: argparse.Namespace) -> tuple[Results, str]:
    """The measurements and where they were made, new or from the records."""
    if options.records and options.records.exists():
        found: tuple[Results, str] = pickle.loads(options.records.read_bytes())
        return found
    start, where = time.perf_counter(), machine()
    with one_thread_each(options.jobs) as pool:
        results = measure(QUICK if options.quick else Effort(), options.seed, pool)
    minutes = (time.perf_counter() - start) / 60
    where = f"{where}; {options.jobs} processes, {minutes:.0f} minutes"
    if options.records:
        options.records.write_bytes(pickle.dumps((results, where)))
    return results, where


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs, for a look")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=Path, help="written, or read where it exists already")
    parser.add_argument("--update-docs", action="store_true", help="rewrite its page")
    return parser.parse_args(arguments)


def command(options: argparse.Namespace) -> str:
    """What gives the same numbers again."""
    words = ["python -m benchmarks.coverage"]
    words += ["--quick"] if options.quick else []
    words += [f"--seed {options.seed}"] if options.seed else []
    return " ".join(words)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results, where = recorded(options)
    section = report(
        results,
        command=command(options),
        where=where,
        figure=f"../{FIGURE}",
    )
    print(section)
    if options.update_docs:
        draw(results, ROOT / FIGURE)
        update_section("coverage", "Confidence", section)
    return 0 if all(goal.met for goal in goals(results)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
