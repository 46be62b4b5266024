"""A small history with a float, an integer and a category, and the task that comes next."""

from __future__ import annotations

from functools import cache
from math import log10
from typing import Any

import numpy as np

from metakel import History, Prior, learn_prior
from metakel.curves import CurveModel

KINDS = ("adam", "sgd")


def measure(x: dict[str, Any], shift: float = 0.0) -> float:
    """Best near rate 0.01, depth 6 and adam."""
    rate, depth = log10(x["rate"]) + 2 - shift, (x["depth"] - 6) / 4
    return float(0.9 - 0.1 * rate**2 - 0.05 * depth**2 - 0.05 * (x["kind"] != "adam"))


def table(tasks: int = 20, runs: int = 16, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("task", "rate", "depth", "kind", "score")}
    for s in range(tasks):
        shift, level = 0.3 * rng.standard_normal(), 0.02 * rng.standard_normal()
        for _ in range(runs):
            x = {
                "rate": float(10 ** rng.uniform(-4, 0)),
                "depth": int(rng.integers(2, 11)),
                "kind": str(rng.choice(KINDS)),
            }
            noise = 0.002 * rng.standard_normal()
            for name, value in {"task": f"t{s}", **x}.items():
                rows[name].append(value)
            rows["score"].append(measure(x, shift) + level + noise)
    return rows


@cache
def small_prior(minimize: bool = False, certified: bool = False) -> Prior:
    """Without replays on past tasks, which take longer than most tests, unless certified."""
    rows = table()
    if minimize:
        rows["score"] = [-score for score in rows["score"]]
    history = History.from_frame(rows, task="task", output="score", minimize=minimize)
    return learn_prior(history, certify="folds" if certified else "none")


def past_curves(steps: int) -> CurveModel:
    """What the curves of 30 past tasks say."""
    rng = np.random.default_rng(0)
    tasks = [
        [
            {e + 1: float(level - np.exp(-rate * e)) for e in range(steps)}
            for level, rate in rng.uniform([0, 0.3], [1, 1], (25, 2))
        ]
        for _ in range(30)
    ]
    return CurveModel.learn(tasks, minimize=False)
