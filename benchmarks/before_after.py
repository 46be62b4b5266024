"""The CPU time of decisions in another checkout of this project and in this one, in turns.

``git worktree add ../before 59c59cd; python -m benchmarks.before_after ../before [--rounds 9]``

Each checkout runs in a process of its own with one BLAS thread; they take turns, so that a busy
machine slows both alike. Ratios are medians of the ratios of neighbours in time. The jobs use only
what both have; 59c59cd, the last commit before the engine was rebuilt, asks for rows by number,
and knows no certificates.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from math import log10
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
TASKS = 6


# Jobs, which run in either checkout and return CPU seconds


def clocked(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


@cache
def glmnet() -> tuple[Any, Any, Any]:
    """Tables of the transfer benchmark, a split of them, and the prior of its history."""
    from importlib.resources import files

    from benchmarks import transfer_data, transfer_ours

    bundled = Path(str(files("metakel") / "data" / "glmnet.csv.gz"))
    history = transfer_data.History.from_csv(bundled, task="task", output="auc")
    tasks = transfer_data.searchable(history)
    case = next(transfer_data.cases(tasks, splits=range(1), rows=50))
    return tasks, case, transfer_ours.learned(case.history, np.random.default_rng(0)).args[0]


def table() -> float:
    """50 asks and tells on a table of 1000 rows, as a benchmark of transfer counts them."""
    from benchmarks.transfer_ours import search_with

    tasks, case, prior = glmnet()
    seconds = []
    for s in case.test[:TASKS]:
        X, y = tasks[s]
        rng = np.random.default_rng(0)
        look = y.__getitem__
        seconds.append(clocked(lambda: search_with(prior, "ucb", X, look, 50, rng))[0])  # noqa: B023
    return float(np.median(seconds))


def space() -> float:
    """40 asks and tells on the whole space."""
    optimizer = glmnet()[2].optimizer(rng=np.random.default_rng(0))

    def steps() -> None:
        for _ in range(40):
            x = optimizer.ask()
            optimizer.tell(x, 0.8 - 0.1 * sum(value**2 for value in x.values()))

    return clocked(steps)[0]


def optuna_trials(t: str) -> tuple[float, float]:
    """An Optuna trial with t finished ones, and the first after a restart."""
    import optuna

    from benchmarks import optuna_sampler
    from metakel.integrations.optuna import MetaKelSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    prior = _studies()
    first, later = optuna_sampler.time_trials(
        lambda seed: MetaKelSampler(prior=prior, seed=seed), int(t), 0
    )
    return later, first


@cache
def _studies() -> Any:
    from benchmarks import optuna_sampler

    return optuna_sampler.learned(*optuna_sampler.FEW)[0]


@cache
def _tuner() -> Any:
    """A tuner with 200 values on disk."""
    from benchmarks.transfer_data import History
    from metakel import learn_prior
    from metakel.tuner import Tuner

    rng, rows = np.random.default_rng(0), []
    for s in range(20):
        for _ in range(16):
            x = {"rate": float(10 ** rng.uniform(-4, 0)), "kind": str(rng.choice(["adam", "sgd"]))}
            rows.append({"task": f"t{s}", **x, "score": score(x, 0.1 * (s % 5))})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    prior = learn_prior(History.from_frame(columns, task="task", output="score"))
    tuner = Tuner(prior, Path(mkdtemp()) / "journal.jsonl")
    for _ in range(200):
        x = tuner.ask()
        tuner.tell(x, score(x))
    return tuner


def score(x: dict[str, Any], shift: float = 0.0) -> float:
    """Best near rate 0.01 and adam."""
    return float(0.9 - 0.1 * (log10(x["rate"]) + 2 - shift) ** 2 - 0.05 * (x["kind"] != "adam"))


def tuner() -> float:
    """An ask of a tuner with 200 values, file and lock included."""
    seconds, x = clocked(_tuner().ask)
    _tuner().tell(x, score(x))
    return seconds


@cache
def _branin() -> tuple[Any, Any]:
    from benchmarks import ask

    kernel = ask.hundred_features(ask.learned_kernel(np.random.default_rng(0)))
    return kernel, ask.trajectory(kernel, 50, ask.FIRST_SEED)


def box() -> tuple[float, float]:
    """A tell and an ask of GP-UCB with 50 observations on a box, and an ask alone."""
    from benchmarks import ask

    kernel, path = _branin()
    askers = [ask.Ours(kernel, with_tell=True), ask.Ours(kernel)]
    both = [ask.cpu_seconds(*a.prepare(path.X, path.y, ask.FIRST_SEED)) for a in askers]
    return both[0], both[1]


JOBS: dict[str, tuple[str, ...]] = {
    "table": ("50 asks and tells on a table of 1000 rows",),
    "space": ("40 asks and tells on a space",),
    "optuna_trials 10": ("Optuna trial with 10 finished", "the first after a restart"),
    "optuna_trials 50": ("Optuna trial with 50 finished", "the first after a restart"),
    "optuna_trials 200": ("Optuna trial with 200 finished", "the first after a restart"),
    "tuner": ("ask of a tuner with 200 values on disk",),
    "box": ("tell and ask on a box with 50 values", "ask on a box with 50 values"),
}


# The two checkouts


def serve() -> None:
    """Answer every job on a line of input with a line of seconds."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, *arguments = line.split()
        found = np.atleast_1d(globals()[name](*arguments))
        print(*found.tolist(), file=answers, flush=True)


class Checkout:
    """A process that runs jobs with the source of one checkout."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join([str(folder / "src"), str(folder)])
        one_thread = dict.fromkeys(THREADS, "1")
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            cwd=folder,
            env={**os.environ, **one_thread, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def run(self, job: str) -> np.ndarray:
        """CPU seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{job}\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{job} failed")
        return np.array(answer.split(), dtype=float)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(before: Path, rounds: int) -> str:
    """A table in Markdown."""
    checkouts = [Checkout(folder) for folder in (before, ROOT)]
    lines = ["| what | before, ms | now, ms | now over before |", "|---|---|---|---|"]
    for job, names in JOBS.items():
        for checkout in checkouts:
            checkout.run(job)  # imports, and what is made once
        found = np.array([[c.run(job) for c in checkouts] for _ in range(rounds)])
        medians, ratios = np.median(found, axis=0), np.median(found[:, 1] / found[:, 0], axis=0)
        for i, name in enumerate(names):
            then, now = 1e3 * medians[:, i]
            lines.append(f"| {name} | {then:.3g} | {now:.3g} | {ratios[i]:.2f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    for checkout in checkouts:
        checkout.close()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return "\n".join([*lines, "", f"Medians of {rounds} rounds, {os.cpu_count()} cores{load}."])


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(measure(options.before.resolve(), options.rounds))


if __name__ == "__main__":
    main()
