"""Replay the optimizer on past tasks, so that its regret on the next one can be certified.

Tables are replayed on their recorded rows. Recorded rows do not stand for a whole space, whose best
point is rarely among them. There the optimizer is replayed on an emulated task, of which every
point of the space has a value, and whose maximum can be found by climbing: a function that a past
task may have been.

That is a draw of the Gaussian processes given the runs of the task. A process takes a cliff for
noise and swings beyond it, so that draws would have peaks and noise that no run shows. Where runs
are dense they say better how a function goes on: around a point it stays within the values of the
nearest runs, but for twice as much as these stick out of those around them. And the noise is at
most what neighbours among the better runs differ by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.data import History, Task
from metakel.errors import InputError, ShapeError
from metakel.gp.averages import MixtureWeights, mixture_weights
from metakel.gp.factor import Factor
from metakel.gp.processes import PastProcess, PointCache
from metakel.kernels.nystrom import spread_rows
from metakel.optimize import Mixture, Optimizer, Trial
from metakel.optimize.optimizer import rehearse
from metakel.optimize.replays import Basis, RegretCalibration, RegretScores
from metakel.priors.standardize import winsorize
from metakel.search import Domain, SearchSpace, candidates
from metakel.search.domain import distinct_points

if TYPE_CHECKING:
    from metakel.priors.prior import Prior

WAYS = ("folds", "exact", "none")
FOLDS = 5
# Above this number of tasks one fold is held out; so many tasks are hardly missed.
MANY = 100
TABLE_HORIZON, TABLE_TASKS, TABLE_ROWS = 50, 50, 1000
SPACE_HORIZON, SPACE_DRAWS = 50, 40
# Of one task, where there are enough of them: few tasks do not vouch for more by many draws.
DRAWS_EACH, ENOUGH = 2, 10
NEW_TABLE_HORIZON, NEW_TABLE_DRAWS = 30, 40
KEPT_TABLES, KEPT_ROWS = 10, 10  # of each, to compare other tables with
RESOLUTION = 0.02  # differences below this share of the scale are not told apart
FEWEST_ROWS, FEWEST_TASKS = 2, 4

Learn = Callable[[History], "Prior"]
Progress = Callable[[int, int], None]


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


def calibrate(
    history: History,
    prior: Prior,
    learn: Learn | None,
    progress: Progress | None = None,
    workers: int = 1,
) -> tuple[RegretCalibration, Replays | None]:
    """Replay every task with a prior that ``learn`` learns from the tasks of the other folds.

    Without it, replay ``prior``, which was learned from other tasks: exact, if these are
    exchangeable.
    """
    if learn is not None and len(history) < FEWEST_TASKS:
        return without_scores(history, f"fewer than {FEWEST_TASKS} past tasks"), None
    basis: Basis = "exact" if learn is None else "folds"
    if learn is None:
        jobs = [(prior, history[s]) for s in _calibrating(history)]
    else:
        jobs = _jobs_in_folds(history, learn, workers)
    if not jobs:
        reason = "no past task has several runs, so none can be replayed"
        return without_scores(history, reason), None
    emulated = spread_rows(np.arange(len(jobs)), SPACE_DRAWS).tolist()
    if len(jobs) >= ENOUGH:
        emulated = (emulated * DRAWS_EACH)[:SPACE_DRAWS]
    tables = [(prior, *_distinct(task)) for prior, task in jobs]
    draws = [(*jobs[i], number) for number, i in enumerate(emulated)]
    total, found = len(tables) + len(draws), list[TaskScore]()
    for work, each in ((replay_table, tables), (replay_draw, draws)):
        for replay in _spread_out(work, each, workers):
            found.append(replay)
            if progress is not None:
                progress(len(found), total)
    points = int(np.median([len(X) for _, X, _ in tables]))
    scores = _scores(found[: len(tables)], basis, TABLE_HORIZON, points)
    kept = [tables[i][1] for i in spread_rows(np.arange(len(tables)), KEPT_TABLES)]
    fewest = min(KEPT_ROWS, *map(len, kept))  # as many rows of every table
    rows = np.array([spread_rows(X, KEPT_ROWS)[:fewest] for X in kept]).round(4)
    calibration = RegretCalibration(
        replace(scores, rows=rows),
        _scores(found[len(tables) :], "emulated", SPACE_HORIZON),
        _spread(history),
    )
    varying = [i for i, (_, _, y) in enumerate(tables) if np.ptp(y) > 0]
    if not varying:
        return calibration, None
    regret, random = np.zeros((2, len(varying), EVALUATIONS))
    for row, i in enumerate(varying):
        y, seen = tables[i][2], found[i].regret[:EVALUATIONS]
        regret[row, : len(seen)] = np.array(seen) / float(y.std())
        random[row] = random_regret(y / float(y.std()), EVALUATIONS)
    return calibration, Replays(tuple(jobs[i][1].name for i in varying), regret, random)


def _jobs_in_folds(history: History, learn: Learn, workers: int) -> list[tuple[Prior, Task]]:
    replayed = spread_rows(np.array(_calibrating(history)), TABLE_TASKS)
    count = FOLDS if len(history) <= MANY else 1
    folds = [replayed[k::count].tolist() for k in range(count)]
    rests = [tuple(t for s, t in enumerate(history) if s not in set(fold)) for fold in folds]
    priors = _spread_out(learn, [(replace(history, tasks=rest),) for rest in rests], workers)
    return [(prior, history[s]) for prior, fold in zip(priors, folds, strict=True) for s in fold]


def _scores(
    found: Sequence[TaskScore], basis: Basis, horizon: int, points: int = 0
) -> RegretScores:
    """Scores of all tasks, of those that no alarm ended, and what the replays were like."""
    lasting = [replay.score for replay in found if not replay.ended]
    scores = np.sort([replay.score for replay in found])
    regrets, shapes = np.full((2, len(found), horizon), np.nan)
    for i, replay in enumerate(found):
        kept = len(replay.shapes)
        regrets[i, :kept] = _rounded(replay.regret[:kept])
        shapes[i, :kept] = _rounded(replay.shapes)
    return RegretScores(scores, np.sort(lasting), basis, horizon, points, regrets, shapes)


def _rounded(values: Sequence[float]) -> list[float]:
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


EVALUATIONS = 20  # of a replay that are kept
EXHAUSTED = 1e-12  # whoever tries all rows finds the best


@dataclass(frozen=True, eq=False)
class Replays:
    """Regret on past tasks, each searched with a prior that was learned from others.

    In units of the standard deviation of the task's recorded values, over its recorded rows.

    Parameters
    ----------
    tasks : h names
    regret : (h, T) array
        Of the prior's optimizer, after 1, 2, ..., T values.
    random : (h, T) array
        Of random search, on average.
    """

    tasks: tuple[str, ...]
    regret: Array
    random: Array

    def __post_init__(self) -> None:
        if not self.regret.shape == self.random.shape == (len(self.tasks), self.regret.shape[-1]):
            raise ShapeError(
                f"replays of {len(self.tasks)} tasks have shapes {self.regret.shape} and "
                f"{self.random.shape}; expected a row for every task in both"
            )

    @property
    def worse_than_random(self) -> tuple[str, ...]:
        """Tasks on which random search was better on average over all values."""
        worse = self.regret.mean(axis=1) > self.random.mean(axis=1)
        return tuple(name for name, is_worse in zip(self.tasks, worse, strict=True) if is_worse)

    @property
    def evaluations(self) -> int:
        """For how many evaluations every task has recorded rows to choose from, one to spare."""
        return max(int((self.random > EXHAUSTED).all(axis=0).sum()), 1)

    def within(self, share: float, evaluations: int) -> float:
        """Regret that this share of the tasks does not exceed after so many evaluations."""
        return float(np.quantile(self.regret[:, evaluations - 1], share, method="higher"))


def random_regret(y: Array, evaluations: int) -> Array:
    """(T,) expected regret of rows drawn without repetition, exactly."""
    order, n, regret = np.sort(y), len(y), np.zeros(evaluations)
    below, chance = np.arange(n + 1, dtype=np.float64), np.ones(n + 1)
    # P(best of t is at most the i-th smallest) = C(i, t) / C(n, t), by a running product.
    for k in range(evaluations):
        if k < n:
            chance *= np.maximum(below - k, 0) / (n - k)
        regret[k] = order[-1] - np.diff(chance) @ order
    return regret


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
    top, _ = space.maximize(emulated.function, rng)
    # On a pool, which is harder and ten times faster than to climb at every step. The best point is
    # in it: a search may go there, if its model does.
    pool = np.vstack([space.start_points(rng).X, prior.portfolio, top])
    highest = float(emulated.function(pool).max())
    highest += RESOLUTION * prior.model.scale
    return _replay(prior, candidates(pool, repeat=False), emulated, highest, SPACE_HORIZON)


def replay_imagined(prior: Prior, X: Array) -> RegretScores:
    """On tasks drawn from the prior, with values at the rows ``X`` (n, d0) of a new table."""
    return _replay_imagined(prior, X.tobytes())


@lru_cache(maxsize=8)
def _replay_imagined(prior: Prior, rows: bytes) -> RegretScores:
    X, found = np.frombuffer(rows).reshape(-1, prior.space.d0), list[TaskScore]()
    for number in range(NEW_TABLE_DRAWS):
        rng = np.random.default_rng([number, len(X)])
        task = imagine(prior, rng)
        y = task.function(X) + task.noise_std * rng.standard_normal(len(X))
        found.append(replay_table(prior, X, y, NEW_TABLE_HORIZON))
    return _scores(found, "emulated", NEW_TABLE_HORIZON, len(X))


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
    rule = prior.task_model().prior
    return Mixture.of(replace(rule, regret=RegretCalibration(empty, empty, 1.0)))


def _calibrating(history: History) -> list[int]:
    """Tasks with about as many rows as others have: a table of one row is no search."""
    sizes = np.array([task.n for task in history])
    fewest = max(FEWEST_ROWS, float(np.median(sizes)) / 2)
    return np.flatnonzero(sizes >= fewest).tolist()


def _distinct(task: Task) -> tuple[Array, Array]:
    """Rows and values, each configuration once; of very many, some spread over the table."""
    X, rows = distinct_points(task.X)
    return spread_rows(X, TABLE_ROWS), task.y[spread_rows(rows, TABLE_ROWS)]


def _spread(history: History) -> float:
    """The usual range of the values of a task, without very bad ones."""
    ranges = np.array([np.ptp(winsorize(task.y)) for task in history])
    varying = ranges[ranges > 0]
    return float(np.median(varying)) if len(varying) else 1.0


ROWS = 200  # of a task, which a draw is given
NEIGHBORING = 1000  # of a task, whose neighbours are compared
FEATURES = 512
# Draws of a fitted process are too smooth and too sure. They deviate from its mean, and from what
# neighbouring runs allow, by so many times what these say.
INFLATION = 2.0
DENSE = 0.05  # lengthscales between neighbours, so that nothing much happens between runs
STICKING_OUT = 0.9  # so many of the runs that are beyond all around them are not further beyond
# The median size of the difference of two values with independent noise of size 1.
MEDIAN_DIFFERENCE = 0.9539


@dataclass(frozen=True, eq=False)
class Objective:
    """A function (n, d0) -> (n,) and the noise of its observations."""

    function: Callable[[Array], Array]
    noise_std: float = 0.0


def emulate(prior: Prior, task: Task, rng: np.random.Generator) -> Objective:
    """Drawn from the posterior of the prior given the task's runs, and kept near dense ones."""
    shared, _ = prior.task_processes[0][0].stationary
    drawn, runs = _posterior_draw(prior, task, rng), Neighbors.of(task, shared.lengthscales)
    if runs is None:
        return drawn

    def near_the_runs(Z: Array) -> Array:
        return np.asarray(np.clip(drawn.function(Z), *runs.range_at(Z)))

    function = near_the_runs if runs.distance <= DENSE else drawn.function
    return Objective(function, min(drawn.noise_std, runs.noise_std))


def imagine(prior: Prior, rng: np.random.Generator) -> Objective:
    """A new task drawn from what was learned of the past ones, given no runs."""
    scale, (processes, start) = prior.model, prior.task_processes
    nothing = [np.zeros(len(scale.scales)) for _ in processes]
    chosen, size = _drawn(mixture_weights(nothing, start, scale), rng)
    process = processes[chosen]
    path = _prior_path(process, scale.level_variance, rng)

    def draw(Z: Array) -> Array:
        at = process.prepare(Z)
        return np.asarray(scale.level + size * (at.mean + path(at)))

    return Objective(draw, float(size * np.sqrt(process.noise)))


@dataclass(frozen=True, eq=False)
class Neighbors:
    """What runs next to one another say of the function between them."""

    nearest: Callable[[Array], NDArray[np.intp]]  # (n, d0) -> (n, k) numbers of the nearest runs
    values: Array  # (r,) of the runs
    above: Array  # (r,) how far a function may leave the range of the values around each
    below: Array
    noise_std: float  # an upper bound of the noise: values differ by the function, too
    distance: float  # usually from a run to the next one, in lengthscales

    @classmethod
    def of(cls, task: Task, lengthscales: Array) -> Neighbors | None:
        """None where there are no neighbours."""
        from scipy.spatial import KDTree

        X, first = np.unique(task.X + 0.0, axis=0, return_index=True)
        kept = spread_rows(np.argsort(first), NEIGHBORING)
        X, y = X[kept], task.y[first[kept]]
        count = min(2 * X.shape[1] + 2, len(y) - 1)
        if count < 1:
            return None
        tree = KDTree(X / lengthscales)
        far, near = tree.query(X / lengthscales, [*range(2, count + 2)])  # after the run itself
        around = y[near]
        better = y >= np.median(y)
        differences = np.abs(y - around[:, 0])[better]
        noise = float(np.median(differences)) / MEDIAN_DIFFERENCE
        return cls(
            lambda Z: np.asarray(tree.query(Z / lengthscales, [*range(1, count + 1)])[1]),
            y,
            _sticking_out(y - around.max(axis=1)),
            _sticking_out(around.min(axis=1) - y),
            noise * (1 + INFLATION / np.sqrt(len(differences))),
            float(np.median(np.asarray(far)[:, 0])),
        )

    def range_at(self, Z: Array) -> tuple[Array, Array]:
        """(n,) the smallest and the largest value that a function may have at the points."""
        near = self.nearest(Z)
        values = self.values[near]
        low = values.min(axis=1) - self.below[near].max(axis=1)
        return low, values.max(axis=1) + self.above[near].max(axis=1)


def _sticking_out(beyond: Array) -> Array:
    """(r,) how far a function may leave the range around each run, by how far the runs do."""
    out = beyond[beyond > 0]
    usual = float(np.quantile(out, STICKING_OUT)) if len(out) else 0.0
    return np.asarray(INFLATION * np.maximum(beyond, usual))


def _posterior_draw(prior: Prior, task: Task, rng: np.random.Generator) -> Objective:
    """Drawn given the task's runs, by Matheron's rule: a path of the prior, and a correction."""
    from scipy.linalg import cho_solve

    rows = spread_rows(np.arange(task.n), ROWS)
    X, y = task.X[rows], task.y[rows]
    scale, (processes, start) = prior.model, prior.task_processes
    if not scale.expects(float(y.mean())):
        scale = scale.at_other_level(float(y.mean()))
    factor = Factor.of(processes, scale, X[:0]).at_once(X, y)
    chosen, size = _drawn(mixture_weights(factor.log_likelihoods, start, scale), rng)
    process, points = processes[chosen], processes[chosen].prepare(X)
    path = _prior_path(process, scale.level_variance, rng)
    noise = np.sqrt(process.noise) * rng.standard_normal(len(y))
    z = (y - scale.level) / size
    pull = cho_solve((factor.L[chosen], True), z - points.mean - INFLATION * (path(points) + noise))

    def draw(Z: Array) -> Array:
        at = process.prepare(Z)
        explained = pull @ (process.gram(points, at) + scale.level_variance)
        return np.asarray(scale.level + size * (at.mean + INFLATION * path(at) + explained))

    return Objective(draw, size * float(np.sqrt(process.noise)))


def _drawn(mix: MixtureWeights, rng: np.random.Generator) -> tuple[int, float]:
    """A process and a scale, by their weights."""
    chosen = int(rng.choice(mix.weights.size, p=mix.weights.ravel()))
    process, place = divmod(chosen, mix.weights.shape[1])
    return process, float(mix.scale.scales[place])


def _prior_path(
    process: PastProcess, level_variance: float, rng: np.random.Generator
) -> Callable[[PointCache], Array]:
    """A draw of h ~ GP(0, k + level_variance); the Matern part by random Fourier features."""
    shared, weight = process.stationary
    variance, d0 = weight * shared.signal, len(shared.lengthscales)
    frequencies = rng.standard_normal((FEATURES, d0))
    # The spectral density is a multivariate t distribution with 5 degrees of freedom.
    frequencies *= np.sqrt(5 / rng.chisquare(5, size=(FEATURES, 1)))
    phases = rng.uniform(0, 2 * np.pi, FEATURES)
    amplitudes = rng.standard_normal(FEATURES) * np.sqrt(2 * variance / FEATURES)
    level = np.sqrt(level_variance) * rng.standard_normal()
    coefficients = rng.standard_normal(process.prepare(np.empty((0, d0))).phi.shape[1])

    def path(points: PointCache) -> Array:
        waves = np.cos(points.scaled @ frequencies.T + phases) @ amplitudes
        return np.asarray(level + points.phi @ coefficients + waves)

    return path
