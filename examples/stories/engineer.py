"""An engineer with a messy table of runs tunes the next two data sets.

Real data: one digit against the others, from scikit-learn's `load_digits`; every digit is a task.
``python engineer.py`` plays the story; ``--small`` a short one; ``train`` is the program that the
engineer tunes.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from shell import metakel
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.metrics import accuracy_score, roc_auc_score

MODELS = {
    "boosting": GradientBoostingClassifier,
    "extra": ExtraTreesClassifier,
    "forest": RandomForestClassifier,
}
NEXT = ("digit8", "digit9")


def train(data: str, model: str, depth: int, features: float, share: float, **own: float) -> dict:
    """Fit on 300 images with noise, and measure on 600 others."""
    X, digits = load_digits(return_X_y=True)
    X = X + np.random.default_rng(0).normal(0, 3, X.shape)
    y = digits == int(data.removeprefix("digit"))
    settings = {"max_depth": depth, "max_features": features, "n_estimators": 30, **own}
    name = "subsample" if model == "boosting" else "max_samples"
    more = {} if model == "boosting" else {"bootstrap": True}
    start = time.perf_counter()
    fitted = MODELS[model](**settings, **{name: share}, **more, random_state=0).fit(
        X[:300], y[:300]
    )
    chance = fitted.predict_proba(X[300:900])[:, 1]
    return {
        "fit_seconds": round(time.perf_counter() - start, 3),
        "val_accuracy": round(accuracy_score(y[300:900], chance > 0.5), 4),
        "val_auc": round(roc_auc_score(y[300:900], chance), 5),
    }


def write_past_runs(path: Path, tasks: int, runs: int) -> None:
    """The table as the team keeps it: ids, dates, hosts, a second metric, gaps, remarks."""
    rng = random.Random(0)
    rows = []
    for task in range(tasks):
        for run in range(runs):
            model = rng.choice(list(MODELS))
            setting = {
                "model": model,
                "depth": rng.randint(1, 10),
                "features": round(rng.uniform(0.05, 1), 2),
                "share": round(rng.uniform(0.3, 0.95), 2),
            }
            rate = round(10 ** rng.uniform(-2, 0), 3)
            own = {"learning_rate": rate} if model == "boosting" else {}
            failed = rng.random() < 0.05
            found = {} if failed else train(f"digit{task}", **setting, **own)
            rows.append(
                {
                    "run_id": f"{rng.getrandbits(48):012x}",
                    "started": f"{1 + run % 28:02d}.03.2024 1{run % 10}:05",
                    "host": rng.choice(["node-a", "node-b"]),
                    "data": f"digit{task}",
                    **setting,
                    "learning_rate": own.get("learning_rate", ""),
                    "seed": rng.randrange(2**31),
                    **(found or {"fit_seconds": "", "val_accuracy": "", "val_auc": ""}),
                    "status": "timeout" if failed else "ok",
                    "comment": rng.choice(["", f"Müller: again, no. {run} of {task}"]),
                }
            )
    with path.open("w", newline="", encoding="cp1252") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter=";")
        table.writeheader()
        table.writerows(rows)


def story(folder: Path, tasks: int, runs: int, budget: int) -> None:
    """Learn at the first try, tune a data set, be stopped before the next one goes astray."""
    write_past_runs(folder / "runs.csv", tasks, runs)
    metakel(folder, "learn", "runs.csv", "--task", "data", "--output", "val_auc", "-v")
    for data, journal in ((NEXT[0], ()), (NEXT[1], ()), (NEXT[1], ("--journal", "digit9.jsonl"))):
        program = (sys.executable, Path(__file__).resolve(), "train", data)
        places = ("{model}", "{depth}", "{features}", "{share}", "{learning_rate}")
        options = ("--budget", budget, *journal)
        metakel(folder, "tune", "prior.json", *options, "--", *program, *places)


def main() -> None:
    if sys.argv[1:2] == ["train"]:
        data, model, depth, features, share, rate = sys.argv[2:]
        own = {"learning_rate": float(rate)} if rate else {}  # empty for the other models
        found = train(data, model, int(depth), float(features), float(share), **own)
        print("val_auc:", found["val_auc"])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as folder:
        story(Path(folder), *((4, 6, 1) if small else (8, 30, 5)))


if __name__ == "__main__":
    main()
