"""The GLMNET tuning tasks of Figure 6, and the kernels that the past ones of a split give.

The bundled table is a re-computation on public data sets, not the table of Kuehn et al. 2018 that
the paper used; ``data/README.md`` says how it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd

from metakel._arrays import Array
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.kernels import KernelDictionary, KernelSum, random_fourier, squared_exponential
from metakel.learn import EtaWeights, learn_kernel
from reproduction.choice import choose_fixed, choose_learned
from reproduction.settings import ExperimentSettings, Streams

# Appendix D. The text speaks of 38 tasks, 25 of them for learning; these lists hold 20 and 13.
TRAIN_IDS = (
    3, 1036, 1038, 1043, 1046, 151, 1176, 1049, 1050, 31, 1570, 37, 4134, 1063, 1067, 44, 1068,
    50, 1461, 1462,
)  # fmt: skip
TEST_IDS = (335, 1489, 1486, 1494, 1504, 1120, 1510, 1479, 1480, 333, 1485, 1487, 334)

TESTS = 13  # tasks that every split keeps for testing
PUBLISHED = "OpenMLRandomBotResultsFinal_mlr.classif.glmnet.csv"
WHERE = (
    f"download {PUBLISHED} from https://doi.org/10.6084/m9.figshare.5882230.v2 (Kuehn et al. 2018, "
    "CC BY 4.0) and give its path"
)


@dataclass(frozen=True)
class TuningTasks:
    """Tasks of tuning GLMNET: X has the columns alpha and log2(lambda) / 10, y is the AUC.

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


def bundled() -> TuningTasks:
    """The table that comes with the package, 37 tasks of 1000 configurations each."""
    with as_file(files("metakel") / "data" / "glmnet.csv.gz") as path:
        table = pd.read_csv(path)
    names = list(dict.fromkeys(table["task"]))
    groups = dict(list(table.groupby("task")))
    ids = tuple(int(groups[name]["openml_id"].iloc[0]) for name in names)
    return TuningTasks(tuple(_task(groups[name], name) for name in names), ids)


def read_published(path: str | Path) -> TuningTasks:
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
    return TuningTasks(tuple(_task(part, f"data {n}") for n, part in groups.items()), tuple(groups))


def transformed(alpha: Array, lam: Array) -> Array:
    """(n, 2) inputs: alpha, and log2(lambda) / 10 as in the paper."""
    return np.column_stack([alpha, np.log2(lam) / 10])


def _task(part: pd.DataFrame, name: str) -> Task:
    alpha, lam = (part[column].to_numpy(dtype=float) for column in ("alpha", "lambda"))
    return Task(transformed(alpha, lam), part["auc"].to_numpy(dtype=float), name)


@dataclass(frozen=True)
class TuningSettings(ExperimentSettings):
    """Figure 6, right. Draws are test tasks, runs are seeds: each splits the tasks anew.

    Attributes
    ----------
    p : int
        Random Fourier features (pairs of cosine and sine).
    n : int
        Evaluations of each past task that the learner sees.
    configurations : int
        Most evaluations of a test task to choose from.
    lengthscale : float
        Of the random features and of the squared exponential, where the reading is literal.
    lams, lengthscales : tuple of float
        Otherwise chosen from these, on the past tasks of every split: for k-hat by predicting
        past tasks that were left out (``folds``), for the others by predicting all of them.
    nu, noise_var : float
        Exploration and regulariser, the same for all kernels.
    table : str
        Path of the published table; empty for the bundled one.
    """

    configurations: int = 1000
    lengthscale: float = 0.3
    lams: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003)
    lengthscales: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    folds: int = 3
    nu: float = 2.0
    noise_var: float = 0.01
    table: str = ""


@dataclass(frozen=True)
class Learner:
    """What one split gives: kernels, test tasks, and the units of the values.

    Attributes
    ----------
    smooth : float
        Lengthscale of the squared exponential.
    lam, lengthscale : float
        Those of k-hat.
    """

    learned: KernelSum
    full: KernelSum
    smooth: float
    lam: float
    lengthscale: float
    tests: tuple[Task, ...]
    center: float
    spread: float


@lru_cache(maxsize=2)
def tuning_tasks(path: str) -> TuningTasks:
    """The published table, or the bundled one."""
    return read_published(path) if path else bundled()


@lru_cache(maxsize=2)
def learner(settings: TuningSettings, seed: int, run: int) -> Learner:
    """Split the tasks and learn; shared by the test tasks of one seed."""
    streams = Streams(seed, 0, run)
    tasks = tuning_tasks(settings.table)
    if settings.table:
        train, tests = tasks.named(TRAIN_IDS), tasks.named(TEST_IDS)
    else:
        train, tests = tasks.split(streams.rng("split"), test=TESTS)
    rng = streams.rng("history")
    seen = [rng.choice(t.n, min(settings.n, t.n), replace=False) for t in train]
    values = np.concatenate([t.y[i] for t, i in zip(train, seen, strict=True)])
    center, spread = (values.mean(), values.std()) if settings.reading.centered else (0.0, 1.0)
    history = History.from_pairs(
        [(t.X[i], (t.y[i] - center) / spread) for t, i in zip(train, seen, strict=True)]
    )
    base = partial(_features, settings, streams)
    lam, length, full, smooth = _choice(settings, history, base)
    learned = learn_kernel(
        history,
        base(length),
        lam=lam,
        noise_std=settings.noise_std,
        weights=EtaWeights(settings.reading.scale),
    )
    kernels = learned.kernel, KernelSum.uniform(base(full))
    return Learner(*kernels, smooth, lam, length, tests, float(center), float(spread))


def _features(settings: TuningSettings, streams: Streams, lengthscale: float) -> KernelDictionary:
    """The same directions at every lengthscale."""
    return random_fourier(settings.p, 2, lengthscales=lengthscale, rng=streams.rng("features"))


def _choice(
    settings: TuningSettings, history: History, base: Callable[[float], KernelDictionary]
) -> tuple[float, float, float, float]:
    """Lambda and lengthscale of k-hat, lengthscales of k_full and of the squared exponential."""
    if not settings.reading.centered:
        return settings.lam, settings.lengthscale, settings.lengthscale, settings.lengthscale
    wanted = settings.lengthscales
    lam, learned = choose_learned(
        history,
        base,
        wanted,
        settings.lams,
        noise_std=settings.noise_std,
        noise_var=settings.noise_var,
        scale=settings.reading.scale,
        folds=settings.folds,
    )
    full = {length: KernelSum.uniform(base(length)) for length in wanted}
    smooth = {length: smooth_kernel(length) for length in wanted}
    best = partial(choose_fixed, history, noise_var=settings.noise_var)
    return lam, learned, best(full), best(smooth)


def smooth_kernel(lengthscale: float) -> KernelSum:
    return KernelSum(squared_exponential(lengthscale, d0=2), np.ones(1))
