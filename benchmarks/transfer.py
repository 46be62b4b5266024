"""Decisions on real histories: how fast each method finds good rows of tables it has not seen.

``python -m benchmarks.transfer [--quick] [--tables glmnet] [--rows 50] [--update-docs]``

All rows of a test task are candidates, 50 steps, noise-free look-ups, no repeats. Regret is
r_t = (best - best so far) / (best - median); ev05 and ev01 count evaluations to 0.05 and 0.01,
censored at 50.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.docs import PAGES, update_section
from benchmarks.transfer_data import Case, Pairs, cases, corrupted, load_tables
from benchmarks.transfer_ours import OURS
from benchmarks.transfer_report import report
from benchmarks.transfer_rivals import (
    Method,
    cold_gp,
    history_gp,
    portfolio,
    random_search,
    rgpe,
    tpe,
)

HORIZON = 50
COLD: dict[str, Method] = {
    "random": random_search,
    "cold GP, UCB": cold_gp("ucb"),
    "cold GP, logEI": cold_gp("ei"),
    "Optuna TPE, cold": tpe,
}
RIVALS: dict[str, Method] = {"portfolio": portfolio, "history GP + mean": history_gp, "RGPE": rgpe}
METHODS = {**OURS, **RIVALS, **COLD}
MISLED = ("shuffled", "mirrored")
MORE = range(1000, 1045)  # splits for our method alone: how much five of them scatter


@dataclass(frozen=True)
class Run:
    """One search: ``regret`` (50,) and what it cost in CPU seconds."""

    table: str
    rows: int
    kind: str
    method: str
    split: int
    task: int
    regret: tuple[float, ...]
    fit: float
    search: float


def search(table: str, tasks: Pairs, case: Case, method: str, rows: int, kind: str) -> list[Run]:
    """All test tasks of a split with one method."""
    rng = np.random.default_rng([case.split, rows, sum(map(ord, method))])
    history = corrupted(case.history, kind, case.split)
    start = time.process_time()
    searcher = METHODS[method](history, rng)
    fit = time.process_time() - start
    runs = []
    for task in case.test:
        X, y = tasks[task]
        start = time.process_time()
        tried = searcher(X, lambda i, y=y: float(y[i]), HORIZON, rng)
        cost = time.process_time() - start
        best = np.maximum.accumulate(y[tried])
        regret = (y.max() - best) / (y.max() - np.median(y))
        runs.append(
            Run(table, rows, kind, method, case.split, task, tuple(regret.tolist()), fit, cost)
        )
    return runs


def jobs(tables: dict[str, Pairs], sizes: list[int], splits: int, more: int) -> Iterator[tuple]:
    """Cold methods do not read the history: once per split.

    Misled histories and ``more`` splits: ours only.
    """
    for table, tasks in tables.items():
        for rows in sizes:
            for case in cases(tasks, splits=range(splits), rows=rows):
                for method in METHODS:
                    if method not in COLD or rows == max(sizes):
                        yield table, tasks, case, method, rows, "related"
                if rows == max(sizes):
                    for kind in MISLED:
                        yield table, tasks, case, "metakel", rows, kind
        for case in cases(tasks, splits=MORE[:more], rows=max(sizes)):
            yield table, tasks, case, "metakel", max(sizes), "more splits"


def run_all(todo: list[tuple], workers: int) -> list[Run]:
    """Every search of the list, with its progress on standard error."""
    runs: list[Run] = []
    with ProcessPoolExecutor(workers) as pool:
        for i, found in enumerate(pool.map(search, *zip(*todo, strict=True))):
            runs += found
            print(f"{i + 1}/{len(todo)} {todo[i][0]} {todo[i][3]}", file=sys.stderr)
    return runs


def main() -> None:
    """Run, print the report, and write it to the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="", help="comma-separated; all that are at hand")
    parser.add_argument("--rows", default="20,50", help="recorded rows per past task")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--more", type=int, default=len(MORE), help="splits for metakel alone")
    parser.add_argument("--quick", action="store_true", help="2 splits, 50 rows")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    tables = load_tables()
    if options.tables:
        tables = {name: tables[name] for name in options.tables.split(",")}
    sizes = [50] if options.quick else [int(n) for n in options.rows.split(",")]
    splits, more = (2, 4) if options.quick else (options.splits, options.more)
    text = report(run_all(list(jobs(tables, sizes, splits, more)), options.workers))
    print(text)
    if options.update_docs:
        page = PAGES / "histories.md"
        update_section(page, "transfer", "Decisions on real histories", text)


if __name__ == "__main__":
    main()
