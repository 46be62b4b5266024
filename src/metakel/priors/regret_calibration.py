"""Replay the optimizer on past tasks, so that its regret on the next one can be certified.

Tables are replayed on their recorded rows. Recorded rows do not stand for a whole space, whose best
point is rarely among them. There the optimizer is replayed on an emulated task: a draw of the
Gaussian processes given the task's runs, of which every point of the space has a value, and whose
maximum can be found by climbing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from metakel._arrays import Array, check_choice
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.gp.averages import mixture_weights
from metakel.gp.processes import LevelAndScale, PointCache, TaskProcess
from metakel.kernels.nystrom import spread_rows
from metakel.optimize import Mixture, Optimizer, Trial
from metakel.optimize.certificate import (
    Basis,
    RegretCalibration,
    RegretScores,
)
from metakel.optimize.mixture import TaskPrior
from metakel.optimize.optimizer import rehearse
from metakel.priors.outputs import EVALUATIONS, Replays, random_regret
from metakel.priors.prior import Prior
from metakel.priors.standardize import winsorize
from metakel.search import Domain, SearchSpace, candidates

WAYS = ("folds", "exact", "none")
FOLDS = 5
# Above this number of tasks one fold is held out; so many tasks are hardly missed.
MANY = 100
TABLE_HORIZON, TABLE_TASKS, TABLE_ROWS = 50, 50, 1000
SPACE_HORIZON, SPACE_TASKS, SPACE_ROWS = 25, 20, 200
FEATURES = 512
# Draws of a fitted process are too smooth and too sure. They deviate from its mean by so many times
# what it says, and differences below this share of the scale are not told apart.
INFLATION, RESOLUTION = 2.0, 0.02
FEWEST_ROWS, FEWEST_TASKS = 2, 4

Learn = Callable[[History], Prior]
Progress = Callable[[int, int], None]


def calibrate_folds(
    history: History, learn: Learn, progress: Progress | None = None, workers: int = 1
) -> tuple[RegretCalibration, Replays | None]:
    """Every task is replayed with a prior learned from the tasks of the other folds."""
    if len(history) < FEWEST_TASKS:
        return without_scores(history, f"fewer than {FEWEST_TASKS} past tasks"), None
    replayed = spread_rows(np.array(_calibrating(history)), TABLE_TASKS)
    count = FOLDS if len(history) <= MANY else 1
    folds = [replayed[k::count].tolist() for k in range(count)]
    parts = [
        (replace(history, tasks=tuple(t for s, t in enumerate(history) if s not in set(fold))),)
        for fold in folds
    ]
    priors = list(_spread_out(learn, parts, workers))
    jobs = [(prior, history[s]) for prior, fold in zip(priors, folds, strict=True) for s in fold]
    return _calibration(history, jobs, "folds", progress, workers)


def calibrate_split(
    prior: Prior, history: History, progress: Progress | None = None, workers: int = 1
) -> tuple[RegretCalibration, Replays | None]:
    """Replay a prior on tasks from which it was not learned: exact, if tasks are exchangeable."""
    jobs = [(prior, history[s]) for s in _calibrating(history)]
    return _calibration(history, jobs, "exact", progress, workers)


def without_scores(history: History, reason: str) -> RegretCalibration:
    """Where nothing was replayed: only the spread of the tasks."""
    return RegretCalibration(reason, reason, _spread(history))


def taught_and_measured(history: History) -> tuple[History, History]:
    """Every other task to learn from, and the rest to calibrate on."""
    if len(history) < FEWEST_TASKS:
        raise InputError(
            f"certify='exact' with {len(history)} tasks; expected at least {FEWEST_TASKS}, half of "
            "which are left out of learning"
        )
    return replace(history, tasks=history.tasks[::2]), replace(history, tasks=history.tasks[1::2])


def check_way(certify: str | bool) -> str:
    """As a name; True is "folds" and False is "none"."""
    way = ("folds" if certify else "none") if isinstance(certify, bool) else certify
    check_choice("certify", way, WAYS)
    return way


def _calibration(
    history: History,
    jobs: Sequence[tuple[Prior, Task]],
    basis: Basis,
    progress: Progress | None,
    workers: int,
) -> tuple[RegretCalibration, Replays | None]:
    if not jobs:
        reason = "no past task has several runs, so none can be replayed"
        return without_scores(history, reason), None
    emulated = spread_rows(np.arange(len(jobs)), SPACE_TASKS).tolist()
    tables = [(prior, *_distinct(task)) for prior, task in jobs]
    draws = [(*jobs[i], i) for i in emulated]
    total, found = len(tables) + len(draws), list[TaskScore]()
    for work, each in ((replay_table, tables), (replay_draw, draws)):
        for replay in _spread_out(work, each, workers):
            found.append(replay)
            if progress is not None:
                progress(len(found), total)
    sizes = [len(X) for _, X, _ in tables]
    calibration = RegretCalibration(
        _scores(found[: len(tables)], basis, TABLE_HORIZON, int(np.median(sizes))),
        _scores(found[len(tables) :], "emulated", SPACE_HORIZON),
        _spread(history),
    )
    names = [task.name for _, task in jobs]
    values = [y for _, _, y in tables]
    return calibration, _replays(names, values, found[: len(tables)])


def _replays(
    names: Sequence[str], values: Sequence[Array], found: Sequence[TaskScore]
) -> Replays | None:
    """The regret of all tasks whose values vary, in units of their spread."""
    varying = [i for i, y in enumerate(values) if np.ptp(y) > 0]
    if not varying:
        return None
    regret, random = (np.zeros((len(varying), EVALUATIONS)) for _ in range(2))
    for row, i in enumerate(varying):
        spread = float(values[i].std())
        seen = found[i].regret[:EVALUATIONS]
        regret[row, : len(seen)] = np.array(seen) / spread
        random[row] = random_regret(values[i] / spread, EVALUATIONS)
    return Replays(tuple(names[i] for i in varying), regret, random)


def _scores(
    found: Sequence[TaskScore], basis: Basis, horizon: int, points: int = 0
) -> RegretScores:
    """Scores of all tasks, of those that no alarm ended, and what the replays were like."""
    lasting = [replay.score for replay in found if not replay.ended]
    scores = np.sort([replay.score for replay in found])
    regrets, shapes = np.full((2, len(found), horizon), np.nan)
    for i, replay in enumerate(found):
        kept = len(replay.shapes)
        regrets[i, :kept] = rounded(replay.regret[:kept])
        shapes[i, :kept] = rounded(replay.shapes)
    return RegretScores(scores, np.sort(lasting), basis, horizon, points, regrets, shapes)


def rounded(values: Sequence[float]) -> list[float]:
    """To six digits, as much as a file needs."""
    return [float(f"{value:.6g}") for value in values]


def _spread_out(
    work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Any]:
    """``work(*job)`` of all jobs, in their order, by joblib where several workers share them."""
    if workers == 1:
        yield from (work(*job) for job in jobs)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise InputError(
            f"workers is {workers}, but joblib is not installed: pip install joblib, or workers=1"
        ) from None
    yield from Parallel(workers, return_as="generator")(delayed(work)(*job) for job in jobs)


# Replays


@dataclass(frozen=True, eq=False)
class Objective:
    """A function (n, d0) -> (n,) and the noise of its observations."""

    function: Callable[[Array], Array]
    noise_std: float = 0.0


class TaskScore(NamedTuple):
    """What came of a past task: max r_t / g_t, and whether an alarm ended it too early.

    ``regret`` is r_t after every value, and ``shapes`` g_t of those before an alarm.
    """

    score: float
    ended: bool
    regret: tuple[float, ...] = ()
    shapes: tuple[float, ...] = ()


def replay_table(prior: Prior, X: Array, y: Array, horizon: int = TABLE_HORIZON) -> TaskScore:
    """On a table of rows ``X`` (n, d0) with values ``y``."""
    domain = candidates(X, repeat=False)
    values = {row.tobytes(): float(value) for row, value in zip(domain.X, y, strict=True)}
    recorded = Objective(lambda X: np.array([values[x.tobytes()] for x in X]))
    return _replay(prior, domain, recorded, float(y.max()), horizon)


def replay_draw(prior: Prior, task: Task, number: int) -> TaskScore:
    """On a draw given the task's runs, searched over the whole space; the number is its seed."""
    rng = np.random.default_rng([number, len(task.y)])
    emulated = emulate(prior, task, rng)
    landmarks = None if prior.task_gp is None else prior.task_gp.basis.landmarks
    space = SearchSpace(prior.space, prior.space, {}, False, landmarks)
    _, highest = space.maximise(emulated.function, rng)
    # On a pool, which is harder and ten times faster than to climb at every step. The regret is
    # that of the space: a pool does not stand for it.
    pool = candidates(np.vstack([space.start_points(rng).X, prior.portfolio]), repeat=False)
    highest += RESOLUTION * prior.model.scale
    return _replay(prior, pool, emulated, highest, SPACE_HORIZON)


def _replay(
    prior: Prior, domain: Domain, objective: Objective, highest: float, horizon: int
) -> TaskScore:
    """Followed to the horizon, or to the last point; the rule that stops needs all of it."""
    optimizer = Optimizer(replayed_model(prior, horizon), domain, rng=np.random.default_rng(0))
    rng, seen = np.random.default_rng(1), []
    values: list[float] = []

    def observed(asked: Trial) -> float:
        values.append(float(objective.function(asked.x[None])[0]))
        return values[-1] + objective.noise_std * float(rng.standard_normal())

    score, ended = 0.0, False
    regrets, shapes = list[float](), list[float]()
    for _ in range(int(min(horizon, domain.supply(*(np.empty((0, domain.d0)),) * 2)))):
        seen.append(rehearse(optimizer, observed))
        regret = max(highest - values[int(np.argmax(seen))], 0.0)
        regrets.append(regret)
        ended = ended or optimizer.alarm is not None
        if not ended:  # from then on nothing would have been promised
            shapes.append(optimizer.model.trace.shapes[-1])  # type: ignore[attr-defined]
            score = max(score, regret / shapes[-1])
        elif len(regrets) >= EVALUATIONS or regret == 0:
            break
    return TaskScore(score, ended, tuple(regrets), tuple(shapes))


def replayed_model(prior: Prior, horizon: int) -> Mixture:
    """The model of a prior, which keeps the shapes."""
    empty = RegretScores(np.empty(0), np.empty(0), "folds", horizon)
    processes, weights = prior.task_processes
    return Mixture.of(
        TaskPrior(
            processes,
            weights,
            prior.model,
            prior.space.d0,
            refits=not prior.helps,
            regret=RegretCalibration(empty, empty, 1.0),
            success=prior.success,
            portfolio=prior.portfolio,
        )
    )


def emulate(prior: Prior, task: Task, rng: np.random.Generator) -> Objective:
    """A function (n, d0) -> (n,) drawn from the posterior of the prior given the task's runs.

    Process and scale are drawn by their posterior weights, then a function by Matheron's rule: a
    draw of the prior, plus what conditioning adds to explain the runs.
    """
    from scipy.linalg import cho_solve

    rows = spread_rows(np.arange(task.n), SPACE_ROWS)
    X, y = task.X[rows], task.y[rows]
    scale, (processes, start) = prior.model, prior.task_processes
    if not scale.expects(float(y.mean())):
        scale = scale.at_other_level(float(y.mean()))
    factors = [_covariance_factor(process, scale, X) for process in processes]
    likelihoods = [
        _log_likelihoods(L, points.mean, y - scale.level, scale) for points, L in factors
    ]
    weights = mixture_weights(likelihoods, start, scale).weights
    chosen = int(rng.choice(weights.size, p=weights.ravel()))
    grid = len(scale.scales)
    process, (points, L) = processes[chosen // grid], factors[chosen // grid]
    size = float(scale.scales[chosen % grid])
    path = _prior_path(process, scale.level_variance, rng)
    noise = np.sqrt(process.noise) * rng.standard_normal(len(y))
    z = (y - scale.level) / size
    pull = cho_solve((L, True), z - points.mean - INFLATION * (path(points) + noise))

    def draw(Z: Array) -> Array:
        at = process.prepare(Z)
        explained = pull @ (process.gram(points, at) + scale.level_variance)
        return np.asarray(scale.level + size * (at.mean + INFLATION * path(at) + explained))

    return Objective(draw, size * float(np.sqrt(process.noise)))


def _covariance_factor(
    process: TaskProcess, scale: LevelAndScale, X: Array
) -> tuple[PointCache, Array]:
    """The points, and the Cholesky factor of the covariance of their values at scale 1."""
    points = process.prepare(X)
    K = process.gram(points, points) + scale.level_variance
    K[np.diag_indices_from(K)] += process.noise
    return points, np.asarray(np.linalg.cholesky(K))


def _log_likelihoods(L: Array, mean: Array, rest: Array, scale: LevelAndScale) -> Array:
    """(g,) log density of values that are ``rest`` above the level, one per scale of the grid."""
    from scipy.linalg import solve_triangular

    white: Array = solve_triangular(L, np.column_stack([rest, mean]), lower=True)
    wy, wm = white[:, 0], white[:, 1]
    scales = scale.scales
    squares = wy @ wy / scales**2 - 2 * (wy @ wm) / scales + wm @ wm
    return np.asarray(-squares / 2 - len(rest) * np.log(scales) - np.log(np.diag(L)).sum())


def _prior_path(
    process: TaskProcess, level_variance: float, rng: np.random.Generator
) -> Callable[[PointCache], Array]:
    """A draw of h ~ GP(0, k + level_variance); the Matern part by random Fourier features.

    Its spectral density is a multivariate t distribution with 5 degrees of freedom.
    """
    shared, weight = process.stationary
    variance, d0 = weight * shared.signal, len(shared.lengthscales)
    frequencies = rng.standard_normal((FEATURES, d0))
    frequencies *= np.sqrt(5 / rng.chisquare(5, size=(FEATURES, 1)))
    phases = rng.uniform(0, 2 * np.pi, FEATURES)
    amplitudes = rng.standard_normal(FEATURES) * np.sqrt(2 * variance / FEATURES)
    level = np.sqrt(level_variance) * rng.standard_normal()
    coefficients = rng.standard_normal(process.prepare(np.empty((0, d0))).phi.shape[1])

    def path(points: PointCache) -> Array:
        waves = np.cos(points.scaled @ frequencies.T + phases) @ amplitudes
        return np.asarray(level + points.phi @ coefficients + waves)

    return path


# Which tasks


def _calibrating(history: History) -> list[int]:
    """Tasks with about as many rows as others have: a table of one row is no search."""
    sizes = np.array([task.n for task in history])
    fewest = max(FEWEST_ROWS, float(np.median(sizes)) / 2)
    return np.flatnonzero(sizes >= fewest).tolist()


def _distinct(task: Task) -> tuple[Array, Array]:
    """Rows and values, each configuration once; of very many, some spread over the table."""
    X = task.X + 0.0
    _, first = np.unique(X, axis=0, return_index=True)
    kept = spread_rows(np.sort(first), TABLE_ROWS)
    return X[kept], task.y[kept]


def _spread(history: History) -> float:
    """The usual range of the values of a task, without very bad ones."""
    ranges = np.array([np.ptp(winsorize(task.y)) for task in history])
    varying = ranges[ranges > 0]
    return float(np.median(varying)) if len(varying) else 1.0
