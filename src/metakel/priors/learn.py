"""learn_prior and learn_outputs: a history in, a prior for the next task out.

A prior of the library may stand beside one's own history, weighed by one's own tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np

from metakel._arrays import Array, check_choice, check_count, positive, single_blas_thread
from metakel.data import History, Task
from metakel.errors import Hint, InputError, first_of
from metakel.gp.processes import LevelAndScale, level_and_scale
from metakel.gp.success import SuccessChance
from metakel.io.columns import numbered
from metakel.kernels import KernelSum
from metakel.kernels.nystrom import spread_rows
from metakel.optimize import Optimizer
from metakel.optimize.model import BestRuns
from metakel.optimize.outcomes import OutputScale
from metakel.priors.confidence import (
    Calibration,
    PastOutput,
    PastOutputs,
    needed_norms,
    principal_kernel,
)
from metakel.priors.principal import (
    DEFAULT_LAM_RATIO,
    DEFAULT_RESIDUAL_WEIGHT,
    EQUALLY,
    HeldOut,
    TaskFeatures,
    agreeing_tasks,
    featurize,
    fit_task_gp,
    hold_out,
    spoiling_note,
)
from metakel.priors.prior import (
    COLD_WEIGHT,
    FEWEST_BOUNDED,
    Beside,
    FromLibrary,
    Prior,
    PriorInfo,
)
from metakel.priors.regret_calibration import (
    WAYS,
    Progress,
    calibrate,
    replayed_model,
    taught_and_measured,
    without_scores,
)
from metakel.priors.standardize import (
    failed_runs,
    output_scale,
    range_of_output,
    rescaled,
    standardize,
    with_space,
    without_failures,
)
from metakel.search import candidates
from metakel.space import Space

KEPT_RUNS = 3  # of every task, the best
MOST_RUNS = 999  # of all tasks; beyond, every other task is left out, or more


@single_blas_thread
def learn_prior(
    history: History,
    space: Space | None = None,
    *,
    lam: str | float = "cv",
    mean: bool = True,
    cold_weight: float = COLD_WEIGHT,
    certify: str | bool = "folds",
    output_range: tuple[float, float] | None = None,
    log_output: bool | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    library: Any = None,
) -> Prior:
    """Learn what past tasks have in common, where they differ, and how far to trust that.

    Parameters
    ----------
    history : History
        Best with named parameters (`History.from_frame`, `from_csv`, ...); unnamed inputs become
        x0, x1, ... over their recorded ranges. Of more tasks than fit in memory, a
        sample teaches: `metakel.scale.scan(path).sample()`.
    space : Space, optional
        Names and ranges for a history of plain arrays; one with a space takes no other.
    lam : "cv", "square-root" or float
        The lambda of Eq. 8 that selects principal functions: the ratio to lambda_max that
        predicts held-out tasks best, the pivotal rule, or a number.
    mean : bool
        Whether to learn a common shape; without it the prior is the paper's, around zero.
    cold_weight : float
        Initial weight of the cold start, a Gaussian process that knows nothing of the past tasks,
        beside the learned one; 0 leaves it out.
    certify : "folds", "exact" or "none"
        How to calibrate certificates of the regret, by replaying the optimizer on past tasks. In
        folds, each with a prior learned from the others; or on every other task, which is then not
        learned from: exact, at the price of half of the history. "none" takes no time.
    output_range : (low, high), optional
        Smallest and largest output, which bounds never exceed. By default guessed from the name of
        the output, as for an accuracy, and noted in ``prior.info.notes``.
    log_output : bool, optional
        Whether to learn logarithms of the output. By default those of a loss (an output that is
        minimised) without a range whose values are all positive and differ by more than a factor of
        three, within tasks or between them. Predictions and certificates stay in units of the
        output.
    progress : callable, optional
        Called with the number of replays done, and of all.
    library : str or Prior, optional
        Name of a model in `metakel.library`, such as "lightgbm" or "lightgbm:auc": what public data
        sets taught beside this history. The weight of each is the share of the tasks here that it
        explains better; values of the new task change it. The space is then that of the library.
    """
    if not isinstance(history, History):
        raise InputError(f"history is a {type(history).__name__}; expected a History")
    if not 0 <= cold_weight < 1:
        raise InputError(f"cold_weight is {cold_weight}; expected a weight in [0, 1)")
    if workers != -1:
        check_count("workers", workers)
    way = ("folds" if certify else "none") if isinstance(certify, bool) else certify
    check_choice("certify", way, WAYS)
    other = None
    if library is not None:
        # The library is made of priors, so it is above them and loaded by name.
        other, history = import_module("metakel.library").beside(library, history)
        log_output = other.info.log_floor > 0
    names = numbered([task.name for task in history])  # distinct ones
    tasks = (replace(task, name=name) for task, name in zip(history, names, strict=True))
    history, space = with_space(replace(history, tasks=tuple(tasks)), space)
    ends, guessed = range_of_output(history, output_range)
    scale, why = output_scale(history, log_output, ends)
    recorded, history = history, rescaled(history, scale)
    report, notes = history.report, filter(None, (guessed, why))
    info = PriorInfo(
        tasks=(),
        runs=0,
        output="y" if report is None else report.output,
        minimize=scale.minimize,
        lam=str(lam),
        mean=bool(mean),
        notes=(*(() if report is None else report.notes), *notes),
        output_range=ends,
        log_floor=scale.floor,
    )

    def alone(part: History, *, to_replay: bool = False) -> Prior:
        return _learn(part, space, lam, info, Beside(float(cold_weight)), to_replay)

    weight = 0.0 if other is None else weight_of(other, history, partial(alone, to_replay=True))

    def learn(part: History, *, to_replay: bool = False) -> Prior:
        own = alone(part, to_replay=to_replay)
        return own if other is None else joined(own, other, weight)

    taught, measured, replays = history, history, None
    if way == "exact":
        taught, measured = taught_and_measured(history)
        recorded, _ = taught_and_measured(recorded)
    prior = learn(taught)
    prior = replace(prior, info=replace(prior.info, source=_digest(recorded)))
    if way == "none":
        found = without_scores(history, "the optimizer was not replayed on past tasks")
    else:
        again = partial(learn, to_replay=True) if way == "folds" else None
        found, replays = calibrate(measured, prior, again, progress, workers)
    return replace(prior, certificate=found, replays=replays)


def cold_prior(space: Space, output: str = "y", *, minimize: bool = False) -> Prior:
    """A prior without any past: an optimizer of it learns from the values of the new task alone."""
    info = PriorInfo(tasks=(), runs=0, output=output, minimize=minimize)
    return Prior(space, LevelAndScale(0.0, 1.0, 1.0, 1.0), None, HeldOut.unchecked(), None, info)


def _learn(
    history: History,
    space: Space,
    lam: str | float,
    info: PriorInfo,
    beside: Beside,
    to_replay: bool,
) -> Prior:
    """The prior without a certificate; to replay it, no norm bound and no runs are needed."""
    recorded, mean = history, info.mean
    history, marked = without_failures(recorded)
    tasks, (runs, failing) = standardize(history), failed_runs(recorded)
    info = replace(
        info,
        tasks=tuple(task.name for task in recorded),
        runs=recorded.total,
        constant=tasks.constant,
        winsorized=tasks.winsorized,
        notes=(*info.notes, *filter(None, (marked, failing))),
    )
    if tasks.m == 0:  # the spread between tasks is all there is to go by
        levels = np.array([task.y.mean() for task in history])
        usual = float(levels.std()) or max(abs(float(levels.mean())), 1.0)
        flat = level_and_scale(levels, np.full(len(levels), usual))
        return Prior(space, flat, None, HeldOut.unchecked(), None, info, beside)
    featurized = featurize(tasks)
    agreeing = agreeing_tasks(featurized)
    if len(agreeing) < tasks.m:
        aside = tuple(name for s, name in enumerate(tasks.names) if s not in agreeing)
        note = (
            f"{len(aside)} of {tasks.m} tasks agree with no others and are set aside, so that "
            f"nothing is learned from them: {first_of(aside)}"
        )
        info = replace(info, set_aside=aside, notes=(note, *info.notes))
        history = replace(history, tasks=tuple(t for t in history if t.name not in aside))
        tasks = tasks.of(agreeing)
        featurized = featurize(tasks)
    held = hold_out(featurized, mean=mean)
    task_gp = fit_task_gp(
        featurized,
        range(featurized.m),
        lam=lam,
        lam_ratio=held.lam_ratio,
        residual_weight=held.residual_weight,
        mean=mean,
    )
    model, shared = level_and_scale(tasks.means, tasks.spreads), task_gp.basis.shared
    success = None if runs is None else SuccessChance.fit(shared, *runs)
    if to_replay:
        return Prior(space, model, task_gp, held, None, info, beside, success=success)
    if note := spoiling_note(tasks, space, held, mean=mean):
        info = replace(info, notes=(note, *info.notes))
    calibration = _calibration(history, featurized, mean)
    best = _best_runs(history, space, shared.lengthscales, info)
    return Prior(
        space, model, task_gp, held, calibration, info, beside, best_runs=best, success=success
    )


def _calibration(history: History, featurized: TaskFeatures, mean: bool) -> Calibration | None:
    """Learn from even tasks, with choices fixed in advance; measure odd tasks, untouched so far."""
    tasks = featurized.tasks
    if tasks.m < FEWEST_BOUNDED:
        return None
    task_gp = fit_task_gp(
        featurized,
        range(0, tasks.m, 2),
        lam="cv",
        lam_ratio=DEFAULT_LAM_RATIO,
        residual_weight=DEFAULT_RESIDUAL_WEIGHT,
        mean=mean,
    )
    model = level_and_scale(tasks.means[::2], tasks.spreads[::2])
    varying = [task for task in history if task.name not in tasks.constant]
    norms = needed_norms(task_gp, model, History(tuple(varying[1::2])))
    return Calibration(task_gp, model, np.sort(norms))


def _best_runs(history: History, space: Space, lengthscales: Array, info: PriorInfo) -> BestRuns:
    """The best few runs of every task; not of all where there are many."""
    scale = OutputScale(info.minimize, info.log_floor)
    tasks = history.tasks[:: -(-len(history) * KEPT_RUNS // MOST_RUNS)]
    tops = [np.argsort(-task.y, kind="stable")[:KEPT_RUNS] for task in tasks]
    kept = [(task, row) for task, top in zip(tasks, tops, strict=True) for row in top]
    points = np.array([task.X[row] for task, row in kept])
    return BestRuns(
        points=tuple(space.decode(points)),
        X=points,
        tasks=tuple(task.name for task, _ in kept),
        values=np.array([scale.value(task.y[row]) for task, row in kept]),
        typical=np.array([scale.value(float(np.median(task.y))) for task, _ in kept]),
        lengthscales=lengthscales,
        output=info.output,
    )


def _digest(history: History) -> str:
    """Sixteen characters that differ for different runs."""
    found = hashlib.sha256()
    for task in history:
        found.update(f"{task.name!r} {task.X.shape}".encode())
        for values in (task.X, task.y, task.failed):
            found.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    return found.hexdigest()[:16]


FOLDS, ROWS = 4, 20  # in which one's own tasks are held out; rows of each
FEWEST = 4  # tasks whose levels and scales say more than those of the library


def joined(own: Prior, library: Prior, weight: float) -> Prior:
    """Both learned processes; the library's prior alone where one's own history does not help."""
    if not own.helps or not library.helps:
        note = "the history does not help on tasks left out; the library's prior is used alone"
        alone = replace(library.info, notes=(*own.info.notes, note), source=own.info.source)
        return replace(library, info=alone) if library.helps else own
    assert library.task_gp is not None  # it helps
    note = (
        f"the library's prior of {library.info.model} ({len(library.info.tasks)} data sets) is "
        f"used beside this history, with weight {weight:.2g} at first"
    )
    info = replace(own.info, model=library.info.model, notes=(note, *own.info.notes))
    if weight > 0.5:
        info = replace(info, tried_first=library.info.tried_first)
    known = FromLibrary(library.task_gp, library.heldout.noise_ratio, weight)
    beside = replace(own.beside, library=known)
    varying = len(own.info.tasks) - len(own.info.constant)
    model = own.model if varying >= FEWEST else library.model
    return replace(own, beside=beside, model=model, info=info)


def weight_of(library: Prior, history: History, learn: Callable[[History], Prior]) -> float:
    """The share of one's own tasks that the library explains better than the other own tasks do.

    Every task is held out in turn, both processes begin with equal weights, and their posterior
    weights given some of its runs are averaged, with half a task for each beforehand.
    """
    shares = [0.5]
    for first in range(min(FOLDS, len(history))):
        tasks = history.tasks[first::FOLDS]
        rest = tuple(task for task in history if all(task is not other for other in tasks))
        own = learn(replace(history, tasks=rest)) if rest else None
        if own is None or not own.helps:
            shares += [1.0] * len(tasks)
            continue
        prior = joined(own, library, 0.5)
        for task in tasks:
            rows = spread_rows(np.arange(task.n), ROWS)
            domain = candidates(task.X[rows], repeat=True)
            optimizer = Optimizer(replayed_model(prior, 1), domain, rng=np.random.default_rng(0))
            optimizer.tell(task.X[rows], task.y[rows])
            members = optimizer.model.mix.members  # type: ignore[attr-defined]
            mine, theirs = (members[i : i + len(EQUALLY)].sum() for i in (0, len(EQUALLY)))
            shares.append(float(theirs / max(mine + theirs, 1e-300)))
    return float(np.mean(shares))


# The kernel of an output has at most so many functions by which tasks differ, and at least so many
# runs of a task for each of its features: otherwise the records of single tasks say too little.
DIFFERENCES, RUNS_PER_FEATURE = 6, 3
COMMON = 2  # level and common shape
NOISE_HINT = Hint("say the noise of a measurement", "noise_std={...}", "--noise NAME=VALUE")


def learn_outputs(
    histories: Mapping[str, History], noise_std: Mapping[str, float] | None = None
) -> PastOutputs:
    """Kernels, noise levels and records of several outputs, for `metakel.safe.SafePrior`.

    The first half of the tasks teaches a kernel for every output: the level, the common shape and
    up to six functions by which tasks differ. The other half is left to vouch for the first points
    of the next task.

    Parameters
    ----------
    histories : dict of History
        By name, the objective first; of the same tasks, in the same order and over the same
        inputs. Values that are minimised have their sign flipped, as readers do.
    noise_std : dict of float, optional
        Noise of a measurement, by name. By default what the kernel leaves of the teaching tasks.
    """
    given = dict(noise_std or {})
    unknown = [name for name in given if name not in histories]
    if unknown:
        raise InputError(
            f"noise of {unknown[0]!r}, which is no output; known are {', '.join(histories)}"
        )
    shared = _same_tasks(histories)
    return PastOutputs({n: _recorded(n, h, given.get(n)) for n, h in shared.items()})


def _same_tasks(histories: Mapping[str, History]) -> dict[str, History]:
    """The tasks that all outputs have, in the order of the first output."""
    common = set.intersection(*({task.name for task in h} for h in histories.values()))
    if len(common) < 2:
        raise InputError(
            f"{len(common)} tasks have values of all of {', '.join(histories)}; expected at least "
            "2, one to learn from and one to vouch for the next task"
        )
    order = {task.name: i for i, task in enumerate(next(iter(histories.values())))}

    def kept(history: History) -> History:
        tasks = (task for task in history if task.name in common)
        return replace(history, tasks=tuple(sorted(tasks, key=lambda task: order[task.name])))

    return {name: kept(history) for name, history in histories.items()}


def _recorded(name: str, history: History, noise_std: float | None) -> PastOutput:
    teaching = replace(history, tasks=history.tasks[: round(len(history) / 2)])
    learned = learn_prior(teaching, certify="none", log_output=False)
    if learned.task_gp is None:
        raise InputError(f"{name!r} does not vary in the first half of the past tasks")
    runs = int(np.median(history.sizes))
    count = max(min(DIFFERENCES, runs // RUNS_PER_FEATURE - COMMON), 0)
    kernel = principal_kernel(learned.task_gp, learned.model, count)
    noise = _unexplained(name, teaching, kernel) if noise_std is None else noise_std
    flipped = history.report is not None and history.report.minimize
    sign = -1.0 if flipped else 1.0
    tasks = tuple(Task(task.X, sign * task.y, task.name) for task in history)
    return PastOutput(tasks, kernel, positive(f"noise of {name!r}", noise))


def _unexplained(name: str, teaching: History, kernel: KernelSum) -> float:
    """Size of what least squares leaves, per degree of freedom, over all teaching tasks."""
    squares, free = 0.0, 0
    for task in teaching:
        F = kernel.features(task.X)
        theta, _, rank, _ = np.linalg.lstsq(F, task.y, rcond=None)
        squares += float(((task.y - F @ theta) ** 2).sum())
        free += task.n - int(rank)
    if free < 1:
        raise InputError(
            f"past tasks have too few runs to tell the noise of {name!r} from its shape", NOISE_HINT
        )
    size = sqrt(squares / free)
    return size or 1e-9 * max(float(np.abs(np.concatenate([t.y for t in teaching])).max()), 1.0)
