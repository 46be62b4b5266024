"""The GLMNET tuning tasks of Figure 6: the bundled table, and the published one of the paper.

The bundled table is a re-computation on public data sets, not the table of Kuehn et al. 2018 that
the paper used; ``data/README.md`` says how it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd

from metakel._arrays import Array
from metakel.data import Task
from metakel.errors import InputError

# Appendix D. The text speaks of 38 tasks, 25 of them for learning; these lists hold 20 and 13.
TRAIN_IDS = (
    3, 1036, 1038, 1043, 1046, 151, 1176, 1049, 1050, 31, 1570, 37, 4134, 1063, 1067, 44, 1068,
    50, 1461, 1462,
)  # fmt: skip
TEST_IDS = (335, 1489, 1486, 1494, 1504, 1120, 1510, 1479, 1480, 333, 1485, 1487, 334)

PUBLISHED = "OpenMLRandomBotResultsFinal_mlr.classif.glmnet.csv"
WHERE = (
    f"download {PUBLISHED} from https://doi.org/10.6084/m9.figshare.5882230.v2 (Kuehn et al. 2018, "
    "CC BY 4.0) and give its path"
)


@dataclass(frozen=True)
class Tuning:
    """Tuning tasks: X has the columns alpha and log2(lambda) / 10, y is the AUC.

    Attributes
    ----------
    tasks : tuple of Task
    ids : tuple of int
        OpenML numbers of the data sets, -1 where there is none.
    """

    tasks: tuple[Task, ...]
    ids: tuple[int, ...]

    def named(self, wanted: Sequence[int]) -> tuple[Task, ...]:
        """The tasks with these OpenML numbers, in this order."""
        missing = [number for number in wanted if number not in self.ids]
        if missing:
            raise InputError(f"the table has no task with OpenML number {missing[0]}")
        return tuple(self.tasks[self.ids.index(number)] for number in wanted)

    def split(
        self, rng: np.random.Generator, *, test: int
    ) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
        """Past tasks and ``test`` new ones, at random."""
        if not 0 < test < len(self.tasks):
            raise InputError(f"cannot keep {test} of {len(self.tasks)} tasks for testing")
        order = rng.permutation(len(self.tasks))
        return (
            tuple(self.tasks[i] for i in order[test:]),
            tuple(self.tasks[i] for i in order[:test]),
        )


def bundled() -> Tuning:
    """The table that comes with the package, 37 tasks of 1000 configurations each."""
    with as_file(files("metakel") / "data" / "glmnet.csv.gz") as path:
        table = pd.read_csv(path)
    names = list(dict.fromkeys(table["task"]))
    groups = dict(list(table.groupby("task")))
    ids = tuple(int(groups[name]["openml_id"].iloc[0]) for name in names)
    return Tuning(tuple(_task(groups[name], name) for name in names), ids)


def read_published(path: str | Path) -> Tuning:
    """The table of Kuehn et al. 2018 as published, one csv file for GLMNET.

    Columns ``data_id`` (the OpenML number of the data set), ``alpha``, ``lambda`` and ``auc`` are
    used. Rows without a value are dropped: the robot did not record the defaults of its first runs.
    """
    file = Path(path)
    if not file.exists():
        raise InputError(f"there is no file {file}; {WHERE}")
    table = pd.read_csv(file, na_values=["NA", ""])
    needed = ["data_id", "alpha", "lambda", "auc"]
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise InputError(
            f"{file} has no column {missing[0]!r} (found: {', '.join(map(str, table.columns))}); "
            f"{WHERE}"
        )
    table = table[needed].dropna()
    if not len(table):
        raise InputError(f"{file} holds no complete row; {WHERE}")
    if not table["auc"].between(0, 1).all() or not (table["lambda"] > 0).all():
        raise InputError(f"{file}: expected 0 <= auc <= 1 and lambda > 0 in every row")
    groups = {int(number): part for number, part in table.groupby("data_id")}
    return Tuning(tuple(_task(part, f"data {n}") for n, part in groups.items()), tuple(groups))


def transformed(alpha: Array, lam: Array) -> Array:
    """(n, 2) inputs: alpha, and log2(lambda) / 10 as in the paper."""
    return np.column_stack([alpha, np.log2(lam) / 10])


def _task(part: pd.DataFrame, name: str) -> Task:
    alpha, lam = (part[column].to_numpy(dtype=float) for column in ("alpha", "lambda"))
    return Task(transformed(alpha, lam), part["auc"].to_numpy(dtype=float), name)
