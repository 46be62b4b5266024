"""A run that stops because nothing much better is left: elastic nets on one more data set.

Real data: 37 data sets with 1000 recorded elastic nets each, which come with metakel. One data set
is new; "training" looks its recorded value up. ``python stopping.py`` plays the story; ``--small``
a short one; ``train`` is the program that is tuned.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from math import log
from pathlib import Path

import numpy as np
from shell import metakel

from metakel import History, datasets

NEXT = "magic"
NAMES = ("alpha", "lambda")


def write_tables(folder: Path, history: History, tasks: int, rows: int) -> None:
    """``past.csv``: data sets with their runs; ``new.csv``: those of the new one."""
    assert history.space is not None
    past, new = [], []
    for task in history:
        step = task.n // rows
        X = history.space.decode(task.X[::step])
        found = [(task.name, *x.values(), auc) for x, auc in zip(X, task.y[::step], strict=True)]
        (new if task.name == NEXT else past).append(found)
    kept = [row for found in past[:tasks] for row in found]
    widest = max(row[1] for row in kept)
    listed = [row for row in new[0] if row[1] <= widest]  # a few are beyond, in the short story
    for name, table in (("past.csv", kept), ("new.csv", listed)):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("data", *NAMES, "auc"), *table])


def recorded(alpha: float, lam: float) -> float:
    """The recorded AUC of the configuration, or of the one that is nearest to it."""
    with Path("new.csv").open(encoding="utf-8") as file:
        rows = [[float(row[name]) for name in (*NAMES, "auc")] for row in csv.DictReader(file)]
    table = np.array(rows)
    distance = abs(table[:, 0] - alpha) + abs(np.log(table[:, 1]) - log(lam)) / 10
    return float(table[distance.argmin(), 2])


def story(folder: Path, tasks: int, rows: int) -> None:
    """Learn; search the recorded configurations; then all that there can be."""
    write_tables(folder, datasets.load_glmnet(), tasks, rows)
    metakel(folder, "learn", "past.csv", "--task", "data", "--output", "auc", "-v")
    program = (sys.executable, Path(__file__).resolve(), "train", "{alpha}", "{lambda}")
    listed = ("--candidates", "new.csv")
    metakel(folder, "tune", "prior.json", *listed, "--stop-at", 0.005, "--", *program)
    metakel(folder, "report", "prior.json", "--journal", "metakel-run.jsonl", *listed)
    options = ("--journal", "space.jsonl", "--stop-at", "5%")
    metakel(folder, "tune", "prior.json", *options, "--", *program)
    with (folder / "new.csv").open(encoding="utf-8") as file:
        best = max(float(row["auc"]) for row in csv.DictReader(file))
    print(f"(the best of all recorded values is {best:g})")


def main() -> None:
    if sys.argv[1:2] == ["train"]:
        print("auc:", recorded(*map(float, sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as folder:
        story(Path(folder), *((14, 100) if small else (36, 1000)))


if __name__ == "__main__":
    main()
