"""Long runs: opening, asking and reporting with thousands of values, and many processes at once.

``python -m benchmarks.long_runs --update-docs`` (``make bench-long``) writes the table of
docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import optuna_sampler
from benchmarks.docs import update_section
from metakel import History, Prior, learn_prior
from metakel.integrations.optuna import MetaKelSampler
from metakel.report import replay_journal, write_report
from metakel.tuner import Store, Tuner
from metakel.tuner.journal import encoded
from metakel.tuner.store import stamped

SECONDS = 1.0  # one evaluation


def measure(x: dict[str, Any], shift: float = 0.0) -> float:
    """Best near rate 0.01, depth 6 and adam."""
    rate, depth = log10(x["rate"]) + 2 - shift, (x["depth"] - 6) / 4
    return float(0.9 - 0.1 * rate**2 - 0.05 * depth**2 - 0.05 * (x["kind"] != "adam"))


def configurations(
    n: int, rng: np.random.Generator, rates: tuple[float, float] = (-3.5, -0.5)
) -> list[dict[str, Any]]:
    """Drawn at random; the logarithm of the rate between ``rates``."""
    drawn, depths = 10 ** rng.uniform(*rates, n), rng.integers(2, 11, n)
    kinds = rng.choice(["adam", "sgd"], n)
    rows = zip(drawn, depths, kinds, strict=True)
    return [{"rate": float(r), "depth": int(d), "kind": str(k)} for r, d, k in rows]


def some_prior() -> Prior:
    """Learned from 20 small tasks."""
    rng, rows = np.random.default_rng(0), []
    for s in range(20):
        shift = 0.3 * rng.standard_normal()
        for x in configurations(16, rng, (-4, 0)):
            score = measure(x, shift) + 0.002 * float(rng.standard_normal())
            rows.append({"task": f"t{s}", **x, "score": score})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return learn_prior(History.from_frame(columns, task="task", output="score"))


def long_journal(prior: Prior, path: Path, values: int) -> None:
    """A journal of a run with so many values, asked and told one after the other."""
    tuner, rng = Tuner(prior, path), np.random.default_rng(1)
    tuner.tell(tuner.ask(), 0.5)
    lines = path.read_bytes().splitlines(keepends=True)
    by = json.loads(lines[1])["by"]
    events = []
    for i, x in enumerate(configurations(values - 1, rng), start=1):
        value = measure(x) + 0.01 * float(rng.standard_normal())
        asked = {"event": "asked", "configuration": x, "by": by, "queued": False, "expected": None}
        told = {"event": "told", "number": i, "configuration": x, "value": value}
        events += [stamped(asked), stamped(told)]
    with path.open("ab") as stream:
        stream.write(encoded(events, lines[-1]))


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    """CPU seconds of this process, which do not depend on what else the machine does."""
    start = time.process_time()
    yield
    found[name] = time.process_time() - start


def ten_thousand(prior: Prior, folder: Path) -> dict[str, float]:
    """Open, ask and report with 10^4 values."""
    found: dict[str, float] = {}
    path = folder / "long.jsonl"
    long_journal(prior, path, 10_000)
    with timed(found, "open"):
        tuner = Tuner(prior, path)
    with timed(found, "ask"):
        x = tuner.ask()
    tuner.tell(x, measure(x))
    with timed(found, "report"):
        page = write_report(prior, folder / "r.html", run=replay_journal(prior, path))
    return {**found, "megabytes": page.stat().st_size / 1e6}


def two_hundred(prior: Prior, folder: Path) -> float:
    """Median seconds of an ask with about 200 values, file and lock and all."""
    path = folder / "short.jsonl"
    long_journal(prior, path, 200)
    tuner, seconds = Tuner(prior, path), []
    for _ in range(11):
        found: dict[str, float] = {}
        with timed(found, "ask"):
            x = tuner.ask()
        tuner.tell(x, measure(x))
        seconds.append(found["ask"])
    return float(np.median(seconds))


def first_optuna_trial() -> float:
    """Median CPU seconds of the first trial of a sampler that meets a study of 200 trials."""
    prior, _ = optuna_sampler.learned(*optuna_sampler.FEW)

    def sampler(seed: int) -> MetaKelSampler:
        return MetaKelSampler(prior=prior, seed=seed)

    found = [optuna_sampler.time_trials(sampler, 200, seed)[0] for seed in range(9)]
    return float(np.median(found))


def many_events(prior: Prior, folder: Path) -> tuple[float, float]:
    """CPU seconds to read a journal of 10^6 events, alone and with everything for a Tuner."""
    path, found = folder / "many.jsonl", dict[str, float]()
    long_journal(prior, path, 500_000)
    with timed(found, "read"):
        Store.open(path)
    with timed(found, "open"):
        Tuner(prior, path)
    return found["read"], found["open"]


def _work(path: str, prior: Prior, until: float) -> None:
    tuner = Tuner(prior, path)
    while time.time() < until:
        x = tuner.ask()
        time.sleep(SECONDS)
        tuner.tell(x, measure(x))


def values_per_second(prior: Prior, folder: Path, processes: int, seconds: float) -> float:
    """Of so many processes on one journal, with evaluations that take a second and no CPU."""
    path = folder / f"{processes}.jsonl"
    Tuner(prior, path)
    context, until = multiprocessing.get_context("fork"), time.time() + seconds
    workers = [
        context.Process(target=_work, args=(str(path), prior, until)) for _ in range(processes)
    ]
    start = time.time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(Store.open(path).run.record.observed) / (time.time() - start)


def table(only: Callable[[str], bool]) -> str:
    """The rows that were asked for."""
    lines = ["| work | measured | floor | before |", "|---|---|---|---|"]
    prior = some_prior()
    with TemporaryDirectory() as name:
        folder = Path(name)
        if only("ten"):
            found = ten_thousand(prior, folder)
            size = f"{found['report']:.1f} s, {found['megabytes']:.2f} MB"
            lines += [
                f"| open 10,000 values | {found['open']:.2f} s | 2 s | 2,000: > 120 s |",
                f"| one `ask` on it | {found['ask']:.3f} s | 0.5 s | 1,000: 5.2 s |",
                f"| report of 10,000 trials | {size} | 10 s, 5 MB | 400: > 150 s |",
            ]
        if only("two"):
            seconds = 1000 * two_hundred(prior, folder)
            lines.append(f"| `ask` at 200 values through `Tuner` | {seconds:.0f} ms | 30 ms | |")
        if only("optuna"):
            lines.append(
                "| first Optuna trial of a new process at 200 trials | "
                f"{1000 * first_optuna_trial():.0f} ms | 50 ms | 177 to 211 ms |"
            )
        if only("processes"):
            one, eight = (values_per_second(prior, folder, n, 20) for n in (1, 8))
            lines.append(
                "| 8 processes, evaluations of 1 s, values per second over one process | "
                f"{eight / one:.1f}x | 4x | 1x |"
            )
        if only("many"):
            read, opened = many_events(prior, folder)
            lines.append(
                f"| journal of 1,000,000 events: read / `Tuner` | {read:.1f} s / {opened:.1f} s"
                " | 30 s, announced | quadratic |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update-docs", action="store_true")
    parser.add_argument("--only", nargs="*", help="ten, two, optuna, processes, many")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    text = table(lambda name: chosen.only is None or name in chosen.only)
    print(text)
    if chosen.update_docs:
        update_section("long-runs", "Long runs", text)


if __name__ == "__main__":
    main()
