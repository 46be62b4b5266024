"""Methods of `benchmarks.transfer`, and one split of a table searched with one of them."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from benchmarks.seeds import bench
from benchmarks.transfer_data import cases, corrupted, load_table
from benchmarks.transfer_ours import OURS
from benchmarks.transfer_peers import (
    botorch_cold,
    botorch_rgpe,
    gp_sampler,
    multi_task,
    smac,
    tpe,
    tpe_best_first,
    warm_cma,
)
from benchmarks.transfer_rivals import (
    Method,
    cold_gp,
    empirical,
    history_gp,
    portfolio,
    random_search,
    rgpe,
)

HORIZON, ROWS, SPLITS = 50, 50, 5
# Methods that take seconds per search: fewer searches, on all tables.
SLOW_SPLITS, SLOW_TESTS = 2, 3
MISLED = ("shuffled", "mirrored")
PAIRED: dict[str, Method] = {
    "empirical mean + covariance": empirical,
    "history GP + mean": history_gp,
    "RGPE": rgpe,
    "portfolio": portfolio,
    "Optuna TPE, ten best first": tpe_best_first,
    "Optuna CMA-ES, warm start": warm_cma,
    "cold GP, UCB": cold_gp("ucb"),
    "cold GP, logEI": cold_gp("ei"),
    "Optuna TPE, cold": tpe,
    "random": random_search,
}
SLOW: dict[str, Method] = {
    "BoTorch RGPE": botorch_rgpe,
    "BoTorch MultiTaskGP": multi_task,
    "BoTorch SingleTaskGP, cold": botorch_cold,
    "Optuna GPSampler, cold": gp_sampler,
    "SMAC, cold": smac,
}
METHODS: dict[str, Method] = {**OURS, **PAIRED, **SLOW}
NEEDS = {
    "SMAC, cold": "smac",
    "Optuna CMA-ES, warm start": "cmaes",
    **{name: "botorch" for name in SLOW if name.startswith("BoTorch")},
}
DATA = ("benchmarks/transfer_data.py", "benchmarks/fresh_tables.py", "benchmarks/package_tables.py")
PEER_FILES = (*DATA, "benchmarks/transfer_rivals.py", "benchmarks/transfer_peers.py")
OUR_FILES = (*DATA, "benchmarks/transfer_ours.py")


@dataclass(frozen=True)
class Run:
    """One search: ``regret`` (50,) and what it cost in CPU seconds."""

    table: str
    kind: str
    method: str
    split: int
    task: int
    regret: tuple[float, ...]
    fit: float
    search: float


def search_split(
    table: str, seed: int, method: str, kind: str, tests: int | None, split: int
) -> dict[str, Any]:
    """The test tasks of a split with one method; JSON."""
    logging.disable(logging.WARNING)  # alarms are part of what is measured
    warnings.simplefilter("ignore")
    tasks = load_table(table, seed)
    (case,) = cases(tasks, splits=[split], rows=ROWS)
    rng = np.random.default_rng([split, ROWS, sum(map(ord, method))])
    history = corrupted(case.history, kind, split)
    start = time.process_time()
    searcher = METHODS[method](history, rng)
    fit = time.process_time() - start
    runs = []
    for task in case.test[:tests]:
        X, y = tasks[task]
        start = time.process_time()
        tried = searcher(X, lambda i, y=y: float(y[i]), HORIZON, rng)
        cost = time.process_time() - start
        best = np.maximum.accumulate(y[tried])
        regret = (y.max() - best) / (y.max() - np.median(y))
        regret = np.append(regret, np.full(HORIZON - len(regret), regret[-1]))
        runs.append({"task": task, "regret": regret.tolist(), "search": cost})
    return {"fit": fit, "runs": runs}


def measure(
    tables: Iterable[str],
    *,
    seed: int,
    methods: Iterable[str],
    splits: int,
    slow_splits: int,
    jobs: int,
    minutes: float = inf,
) -> list[Run]:
    """All searches for which there is time; those that were made before are not made again.

    Those of other methods are kept apart, so that a change of the package leaves them as they are.
    """
    chosen, found = list(methods), []
    todo = []
    for table in tables:
        for method in chosen:
            kinds = ("related", *MISLED) if method == "metakel" else ("related",)
            todo += [(table, method, kind) for kind in kinds]
    todo.sort(key=lambda job: job[1] in SLOW)  # if time runs out, at the cost of these
    start = time.monotonic()
    for ours in (True, False):
        files, left = OUR_FILES if ours else PEER_FILES, minutes - (time.monotonic() - start) / 60
        with bench("transfer", *files, jobs=jobs, minutes=left, package=ours) as place:
            for table, method, kind in todo:
                if (method in OURS) != ours:
                    continue
                slow = method in SLOW
                tests, count = (SLOW_TESTS, slow_splits) if slow else (None, splits)
                once = partial(search_split, table, seed, method, kind, tests)
                name = f"{table}-{seed}-{method}-{kind}".replace(" ", "_")
                for split, result in enumerate(place.measured(name, once, range(count))):
                    found += [
                        Run(
                            table,
                            kind,
                            method,
                            split,
                            run["task"],
                            tuple(run["regret"]),
                            result["fit"],
                            run["search"],
                        )
                        for run in result["runs"]
                    ]
    return found
