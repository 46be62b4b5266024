"""Tables, splits and histories of `benchmarks.transfer`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from metakel.data import History

ROOT = Path(__file__).resolve().parents[1]
Pairs = list[tuple[np.ndarray, np.ndarray]]


def data_folder() -> Path:
    """Where tables that are not bundled lie: METAKEL_DATA, or shared/data beside the project."""
    return Path(os.environ.get("METAKEL_DATA", ROOT.parent / "shared" / "data"))


def load_tables() -> dict[str, Pairs]:
    """Tasks (X, y) of every table at hand; inputs in [-1, 1], larger y is better.

    Log scales are those that `History.from_csv` proposes; they are the protocol's.
    """
    bundled = Path(str(files("metakel") / "data" / "glmnet.csv.gz"))
    tables = {"glmnet": History.from_csv(bundled, task="task", output="auc")}
    xgboost = data_folder() / "xgboost.csv.gz"
    if xgboost.exists():
        tables["xgboost"] = History.from_csv(xgboost, task="task", output="value", minimize=True)
    else:
        print(f"no {xgboost}: glmnet only; METAKEL_DATA names its folder", file=sys.stderr)
    return {name: searchable(history) for name, history in tables.items()}


def searchable(history: History) -> Pairs:
    """Tasks (X, y) whose best is better than their median."""
    return [(t.X, t.y) for t in history if t.y.max() > np.median(t.y)]


@dataclass(frozen=True, eq=False)
class Case:
    """A split of a table's tasks and a history of n rows per training task."""

    split: int
    history: Pairs
    test: list[int]


def cases(tasks: Pairs, *, splits: Iterable[int], rows: int) -> Iterator[Case]:
    """Two thirds of the tasks teach, one third is searched; seeded by the number of the split."""
    m = len(tasks)
    for split in splits:
        order = np.random.default_rng(1000 + split).permutation(m)
        teach, test = order[: round(2 * m / 3)], order[round(2 * m / 3) :]
        rng = np.random.default_rng([split, rows])
        history = []
        for s in teach:
            X, y = tasks[s]
            chosen = rng.choice(len(y), min(rows, len(y)), replace=False)
            history.append((X[chosen], y[chosen]))
        yield Case(split, history, [int(s) for s in test])


def corrupted(history: Pairs, kind: str, split: int) -> Pairs:
    """A history that misleads: values shuffled within tasks, or inputs mirrored and reversed."""
    if kind == "shuffled":
        rng = np.random.default_rng([split, 7])
        return [(X, rng.permutation(y)) for X, y in history]
    if kind == "mirrored":
        return [(-X[:, ::-1], y) for X, y in history]
    return history
