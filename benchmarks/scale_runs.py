"""One measurement in a process of its own, so that its peak memory is its own.

``python -m benchmarks.scale_runs learn FOLDER [NEW]`` prints JSON; so do ``rounds M`` and
``prior FOLDER [WORKERS]``.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import metakel as mk
from benchmarks.scale_data import NOISE, base_kernels, dense_history, write
from metakel.learn import LearnedKernel
from metakel.priors.storage import to_dict
from metakel.scale import Progress, ShardedProblem, distribute
from metakel.scale.executors import DaskExecutor

TOL = 1e-8
MEMORY = "1 GB"


class Stages:
    """Processor seconds by stage of a learning in this process, from its progress."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.process_time()

    def __call__(self, step: Progress) -> None:
        later = step.stage.startswith("round ") and step.stage != "round 1"
        now = time.process_time()
        self.seconds["later rounds" if later else step.stage] += now - self._last
        self._last = now


def timed(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result, with wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return result, spent


def learn(folder: str, new: str | None) -> dict[str, Any]:
    """Scan, learn, and with ``new`` tasks update and learn all of them from scratch."""
    base = base_kernels()
    with tempfile.TemporaryDirectory() as small:  # the first call imports what reading needs
        write(Path(small), 10)
        mk.learn_kernel(mk.History.scan(small), base, noise_std=NOISE)

    def from_scratch(paths: list[str]) -> LearnedKernel:
        scan = mk.History.scan(paths, memory=MEMORY, progress=stages)
        return mk.learn_kernel(scan, base, noise_std=NOISE, tol=TOL)

    stages = Stages()
    learned, spent = timed(lambda: from_scratch([folder]))
    problem = learned.problem
    assert isinstance(problem, ShardedProblem)
    out = {
        "m": learned.history.m,
        "rows": learned.history.total,
        **spent,
        "rounds": problem.rounds,
        "passes": problem.executor.calls,
        "floats": problem.executor.numbers_received,
        "shards": len(problem.shards),
        "work": int(problem.work.size),
        "gap": learned.solution.gap,
        "active": learned.active.tolist(),
        "stages": dict(stages.seconds),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if new is not None:
        stages.seconds.clear()
        updated, out["update"] = timed(lambda: learned.update(mk.History.scan(new)))
        out["update"] |= {"gap": updated.solution.gap, "stages": dict(stages.seconds)}
        scratch, out["scratch"] = timed(lambda: from_scratch([folder, new]))
        off = np.abs(updated.solution.eta - scratch.solution.eta).max()
        out["update"]["off"] = float(off / scratch.solution.eta.max())
    return out


def prior(folder: str, workers: int | None) -> dict[str, Any]:
    """`learn_prior` on a scan: a sample of the tasks teaches, all are read."""
    scan = mk.History.scan(folder, workers=workers)
    _, read = timed(scan.sample)
    learned, spent = timed(lambda: mk.learn_prior(scan))
    users = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return {
        "m": scan.m,
        "rows": scan.total,
        "workers": workers,
        "reading": read["cpu"],
        **spent,
        # Of the largest of our processes.
        "peak": max(resource.getrusage(who).ru_maxrss for who in users) * 1024,
        "digest": hashlib.sha256(json.dumps(to_dict(learned)).encode()).hexdigest(),
    }


def rounds(m: int, *, repeats: int = 9) -> dict[str, Any]:
    """Seconds of a round in one process and on two workers, and what two processes can do here.

    Both take turns, so that other users of the machine disturb them alike.
    """
    places = {"one process": None, "two workers": 2}
    scans = {
        name: distribute(dense_history(m), shards=4, workers=workers, memory="4 GB")
        for name, workers in places.items()
    }
    races = {name: Race(scan.as_problem(base_kernels())) for name, scan in scans.items()}
    for i in range(repeats):
        for race in races.values():
            race.round(1.1 + 0.1 * i)
    out: dict[str, Any] = {name: race.result() for name, race in races.items()}
    one, two = races.values()
    out["same"] = one.found == two.found
    for scan in scans.values():
        scan.close()
    scan = distribute(dense_history(8), shards=4, workers=2)
    latency = Race(scan.as_problem(base_kernels()))
    for i in range(repeats):
        latency.round(1.1 + 0.1 * i)
    out["latency"] = latency.result()["wall"]
    scan.close()
    out["capacity"] = capacity()
    return out


class Race:
    """Rounds with all groups active, from statistics that were made before."""

    def __init__(self, problem: ShardedProblem) -> None:
        self.problem = problem
        self.found: list[tuple[float, bytes]] = []
        self._evaluator = problem.evaluator()
        self._active = np.arange(problem.p)
        self._evaluator.extend(self._active)
        self._spent: list[dict[str, float]] = []
        self.round(1.0)
        self._spent.clear()

    def round(self, scale: float) -> None:
        before, begin = processor_seconds(self.problem), time.perf_counter()
        value, scores = self._evaluator.at(self._active, scale / self._evaluator.curvature)
        wall, after = time.perf_counter() - begin, processor_seconds(self.problem)
        self.found.append((value, scores.tobytes()))
        self._spent.append({"wall": wall, "cpu": max(after[k] - before[k] for k in before)})

    def result(self) -> dict[str, float]:
        """Medians of the clock and of the processor seconds of the busiest process."""
        return {
            key: float(np.median([spent[key] for spent in self._spent])) for key in ("wall", "cpu")
        }


def processor_seconds(problem: ShardedProblem) -> dict[str, float]:
    """Of every process that holds shards."""
    if isinstance(problem.executor, DaskExecutor):
        found: dict[str, float] = problem.executor.client.run(time.process_time)
        return found
    return {"here": time.process_time()}


def burn(count: int) -> float:
    """Seconds for work like that of a round, without sharing anything."""
    A = np.eye(40) + np.full((500, 40, 40), 0.01)
    begin = time.perf_counter()
    for _ in range(count):
        np.linalg.inv(A)
    return time.perf_counter() - begin


def capacity() -> float:
    """How much faster two independent processes are than one after the other, just now."""
    with get_context("spawn").Pool(2) as pool:
        pool.map(burn, [1, 1])
        alone = [pool.apply(burn, (40,)) for _ in range(3)]
        together = [max(pool.map(burn, [40, 40], chunksize=1)) for _ in range(3)]
    return 2 * float(np.median(alone) / np.median(together))


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    if task == "learn":
        result: dict[str, Any] = learn(arguments[0], arguments[1] if arguments[1:] else None)
    elif task == "prior":
        result = prior(arguments[0], int(arguments[1]) if arguments[1:] else None)
    else:
        result = rounds(int(arguments[0]))
    print(json.dumps(result))
