"""Configurations that should do well on most data sets: ``python -m library.refine``.

Thirty random configurations seldom hold one that is good nearly everywhere. So a regression learns
from all runs of a model how the loss over that of the defaults depends on the configuration. Those
that it expects to do best on average, apart from one another, are written to
``library/refined.json`` for `library.run`, which then measures them on every data set. Beside them
stand the numbers of the best among the thirty, which are measured on few rows, too.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from typing import Any

import numpy as np

from library.models import MODELS, Model
from library.run import OWN, REFINED, SEED, SHARED, read_runs

METRICS = {"classification": "log_loss", "regression": "rmse"}
COUNT = 6  # configurations for each model and kind of task
DRAWN, APART = 20_000, 0.35  # candidates; distance in units of the ranges
WORST, TINY = math.log(2.0), 1e-4  # a larger factor counts as this, and a smaller loss as that
SMALLER = 10  # of the thirty shared configurations are measured on few rows


def encoded(model: Model, parameters: dict[str, Any]) -> list[float]:
    """A configuration in units of its ranges; choices as indicators, -1 where it has none."""
    found: list[float] = []
    for name, given in model.ranges.items():
        value = parameters.get(name)
        if isinstance(given, list):
            found += [float(value == choice) for choice in given]
        elif value is None:
            found.append(-1.0)
        else:
            low, high, value = (
                (math.log(v) if given[0] == "log" else v) for v in (*given[-2:], value)
            )
            found.append((value - low) / (high - low))
    return found


def ratios(name: str, kind: str) -> tuple[list[dict[str, str]], np.ndarray[Any, Any]]:
    """Runs of a model but the defaults, and the logarithms of their losses over the defaults'."""
    metric = METRICS[kind]
    rows = [r for r in read_runs(name) if r["kind"] == kind and r[metric]]
    base = {r["dataset"]: float(r[metric]) for r in rows if r["configuration"] == "0"}
    rows = [r for r in rows if 0 < int(r["configuration"]) <= OWN[-1] and r["dataset"] in base]
    found = [math.log(max(float(r[metric]), TINY) / max(base[r["dataset"]], TINY)) for r in rows]
    return rows, np.clip(found, -WORST, WORST)


def best_expected(model: Model, kind: str) -> list[dict[str, Any]]:
    """The best expected mean logarithm of the loss over that of the defaults."""
    from sklearn.ensemble import ExtraTreesRegressor

    rows, found = ratios(model.name, kind)
    X = [encoded(model, json.loads(row["parameters"])) for row in rows]
    forest = ExtraTreesRegressor(500, min_samples_leaf=3, random_state=SEED).fit(X, found)
    rng = np.random.default_rng([SEED, zlib.crc32(f"refined {model.name} {kind}".encode())])
    drawn = [model.sample(rng) for _ in range(DRAWN)]
    points = np.array([encoded(model, parameters) for parameters in drawn])
    chosen: list[int] = []
    for i in np.argsort(forest.predict(points), kind="stable"):
        if all(np.linalg.norm(points[i] - points[j]) >= APART for j in chosen):
            chosen.append(int(i))
        if len(chosen) == COUNT:
            break
    return [drawn[i] for i in chosen]


def best_shared(name: str, kind: str) -> list[int]:
    """Numbers of those of the thirty that add most to one another, one after the other."""
    rows, found = ratios(name, kind)
    tasks = sorted({row["dataset"] for row in rows})
    table = np.full((SHARED + 1, len(tasks)), WORST)
    for row, ratio in zip(rows, found, strict=True):
        if int(row["configuration"]) <= SHARED:
            table[int(row["configuration"]), tasks.index(row["dataset"])] = ratio
    best, chosen = np.zeros(len(tasks)), []
    for _ in range(SMALLER):
        chosen.append(int(np.minimum(best, table).mean(axis=1).argmin()))
        best = np.minimum(best, table[chosen[-1]])
        table[chosen[-1]] = np.inf
    return sorted(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", required=True, choices=list(MODELS))
    options = parser.parse_args()
    known = json.loads(REFINED.read_text(encoding="utf-8"))
    for name in options.models:
        for kind in MODELS[name].kinds:
            found = {"configurations": best_expected(MODELS[name], kind)}
            known[f"{name}, {kind}"] = {**found, "best": best_shared(name, kind)}
    REFINED.write_text(f"{json.dumps(known, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
