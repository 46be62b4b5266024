"""learn_prior: a history in, a prior for the next task out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from metakel.data import History
from metakel.errors import InputError
from metakel.gp.task_gp import TaskGP
from metakel.gp.task_scale import TaskModel, task_model
from metakel.io.merge import numbered
from metakel.priors.calibration import Calibration, calibrate
from metakel.priors.configurations import with_space
from metakel.priors.fit import Compared, check, compare, learn_shape
from metakel.priors.heldout import DEFAULT_FLOOR, HeldOut
from metakel.priors.prior import COLD_WEIGHT, Prior, PriorInfo
from metakel.priors.selection import DEFAULT_SHARE
from metakel.priors.standardize import StandardTasks, standardise
from metakel.space import Space

SMALLEST_CALIBRATION = 4


def learn_prior(
    history: History,
    space: Space | None = None,
    *,
    lam: str | float = "cv",
    mean: bool = True,
    cold_weight: float = COLD_WEIGHT,
) -> Prior:
    """Learn what past tasks have in common, where they differ, and how far to trust that.

    Parameters
    ----------
    history : History
        Best with named parameters (`History.from_frame`, `from_csv`, ...); unnamed inputs become
        x0, x1, ... over their recorded ranges.
    space : Space, optional
        Names and ranges for a history of plain arrays; one with a space takes no other.
    lam : "cv", "square-root" or float
        The lambda of Eq. 8 that selects principal functions: the share of lambda_max that
        predicts held-out tasks best, the pivotal rule, or a number.
    mean : bool
        Whether to learn a common shape; without it the prior is the paper's, around zero.
    cold_weight : float
        Start weight of a cold start beside the learned belief; 0 leaves it out.
    """
    if not isinstance(history, History):
        raise InputError(f"history is a {type(history).__name__}; expected a History")
    if not 0 <= cold_weight < 1:
        raise InputError(f"guard is {cold_weight}; expected a weight in [0, 1)")
    history, space = with_space(_told_apart(history), space)
    tasks = standardise(history)
    info = _facts(history, tasks, lam, mean)
    if tasks.m == 0:
        return Prior(
            space, _flat_model(history), None, _unchecked(), None, info, float(cold_weight)
        )
    compared = compare(tasks)
    held = check(tasks, compared, mean=mean)
    shape = learn_shape(
        tasks,
        compared,
        range(tasks.m),
        lam=lam,
        share=held.share,
        floor=held.floor,
        mean=mean,
    )
    model = task_model(tasks.means, tasks.spreads)
    calibration = _calibration(history, tasks, compared, mean)
    return Prior(space, model, shape, held, calibration, info, float(cold_weight))


def _calibration(
    history: History, tasks: StandardTasks, compared: Compared, mean: bool
) -> Calibration | None:
    """Even tasks teach, with choices fixed in advance; odd tasks, untouched so far, measure."""
    if tasks.m < SMALLEST_CALIBRATION:
        return None
    teachers = range(0, tasks.m, 2)
    shape: TaskGP = learn_shape(
        tasks,
        compared,
        teachers,
        lam="cv",
        share=DEFAULT_SHARE,
        floor=DEFAULT_FLOOR,
        mean=mean,
    )
    model = task_model(tasks.means[::2], tasks.spreads[::2])
    varying = [task for task in history if task.name not in tasks.constant]
    return calibrate(shape, model, History(tuple(varying[1::2])))


def _told_apart(history: History) -> History:
    """Tasks with a name of their own, by which the prior speaks of them."""
    given = [task.name for task in history]
    names = numbered(given)
    if names == given:
        return history
    tasks = (replace(task, name=name) for task, name in zip(history, names, strict=True))
    return replace(history, tasks=tuple(tasks))


def _facts(history: History, tasks: StandardTasks, lam: str | float, mean: bool) -> PriorInfo:
    report = history.report
    return PriorInfo(
        tasks=tuple(task.name for task in history),
        runs=history.total,
        output="y" if report is None else report.output,
        minimize=report is not None and bool(report.minimize),
        constant=tasks.constant,
        winsorized=tasks.winsorized,
        lam=str(lam),
        mean=bool(mean),
        notes=() if report is None else report.notes,
    )


def _flat_model(history: History) -> TaskModel:
    """Where no task varies, the spread between tasks is all there is to go by."""
    levels = np.array([task.y.mean() for task in history])
    scale = float(levels.std()) or max(abs(float(levels.mean())), 1.0)
    return task_model(levels, np.full(len(levels), scale))


def _unchecked() -> HeldOut:
    return HeldOut(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
