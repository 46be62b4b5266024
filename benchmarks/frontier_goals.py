"""The quadrotor."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import metakel as mk
from benchmarks.frontier_rules import Process, safe_opt
from benchmarks.seeds import Result


@lru_cache
def lesson(history: int):
    """What 80 vehicles teach, and a Gaussian process of each output for SafeOpt's rule."""
    from examples import quadrotor as example

    rng = np.random.default_rng(history)
    learned = example.Lesson.learn(rng)
    rng = np.random.default_rng((history, 1))
    tasks = []
    for vehicle in example.vehicles(10, rng):
        rows = rng.choice(len(example.DOMAIN), example.RECORDS, replace=False)
        noise = example.NOISE * rng.normal(size=(2, len(rows)))
        values = vehicle.y[rows] + noise[0], -vehicle.peak[rows] + noise[1]
        tasks.append([mk.Task(example.DOMAIN.X[rows], y) for y in values])
    points = example.DOMAIN.X
    fits = [Process.fitted(points, [t[i] for t in tasks], example.NOISE) for i in (0, 1)]
    return learned, fits


def quadrotor(history: int | None, seed: int) -> Result:
    """A new vehicle of the example, 20 flights by every rule.

    With ``history`` None, every twenty seeds have a history of their own.
    """
    from examples import quadrotor as example

    learned, (error, peak) = lesson(seed // 20 if history is None else history)
    rng = np.random.default_rng((seed, 2))
    vehicle = example.vehicles(1, rng)[0]
    flown = learned.tune(vehicle, rng)
    start = learned.start.contains(example.DOMAIN.X)
    dangerous = vehicle.peak > example.PEAK

    def measure(row: int) -> list[float]:
        noise = example.NOISE * rng.normal(size=2)
        return [vehicle.y[row] + noise[0], noise[1] - vehicle.peak[row]]

    tried = {"metakel": flown}
    for beta in (2.0, 3.0):
        tried[f"SafeOpt rule, SE, beta {beta:g}"] = safe_opt(
            error, peak, -example.PEAK, flown[0], measure, example.FLIGHTS, beta
        )
    found: Result = {"start": bool(dangerous[start].any()), "size": int(start.sum())}
    for name, rows in tried.items():
        extra = [example.extra_error(vehicle, rows[:t]) for t in (1, 3, 5, 20)]
        found[name] = {"unsafe": bool(dangerous[rows].any()), "extra": extra}
    return found
