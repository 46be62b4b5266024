"""Past and new GLMNET tasks of one split, and the kernels that the past ones give (Figure 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from metakel.data import History, Task
from metakel.kernels import KernelDictionary, KernelSum, random_fourier, squared_exponential
from metakel.learn import learn_kernel
from metakel.paper import glmnet
from metakel.paper.choice import choose_fixed, choose_learned
from metakel.paper.settings import Settings
from metakel.paper.streams import Streams

TESTS = 13


@dataclass(frozen=True)
class Tuning(Settings):
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
    centre: float
    spread: float


@lru_cache(maxsize=2)
def tuning_tasks(path: str) -> glmnet.Tuning:
    """The published table, or the bundled one."""
    return glmnet.read_published(path) if path else glmnet.bundled()


@lru_cache(maxsize=2)
def learner(settings: Tuning, seed: int, run: int) -> Learner:
    """Split the tasks and learn; shared by the test tasks of one seed."""
    streams = Streams(seed, 0, run)
    tasks = tuning_tasks(settings.table)
    if settings.table:
        train, tests = tasks.named(glmnet.TRAIN_IDS), tasks.named(glmnet.TEST_IDS)
    else:
        train, tests = tasks.split(streams.rng("split"), test=TESTS)
    rng = streams.rng("history")
    seen = [rng.choice(t.n, min(settings.n, t.n), replace=False) for t in train]
    values = np.concatenate([t.y[i] for t, i in zip(train, seen, strict=True)])
    centre, spread = (values.mean(), values.std()) if settings.reading.centred else (0.0, 1.0)
    history = History.from_pairs(
        [(t.X[i], (t.y[i] - centre) / spread) for t, i in zip(train, seen, strict=True)]
    )
    base = partial(_features, settings, streams)
    lam, length, full, smooth = _choice(settings, history, base)
    learned = learn_kernel(
        history,
        base(length),
        lam=lam,
        noise_std=settings.noise_std,
        weights="eta",
        scale=settings.reading.scale,
    )
    kernels = learned.kernel, KernelSum.uniform(base(full))
    return Learner(*kernels, smooth, lam, length, tests, float(centre), float(spread))


def _features(settings: Tuning, streams: Streams, lengthscale: float) -> KernelDictionary:
    """The same directions at every lengthscale."""
    return random_fourier(settings.p, 2, lengthscales=lengthscale, rng=streams.rng("features"))


def _choice(
    settings: Tuning, history: History, base: Callable[[float], KernelDictionary]
) -> tuple[float, float, float, float]:
    """Lambda and lengthscale of k-hat, lengthscales of k_full and of the squared exponential."""
    if not settings.reading.centred:
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
