"""learn_outputs: what a safe search needs to know of the outputs of past tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt

import numpy as np

from metakel._arrays import positive
from metakel.data import History, Task
from metakel.errors import Hint, InputError
from metakel.kernels import KernelSum
from metakel.priors.calibration import principal_kernel
from metakel.priors.learn import learn_prior
from metakel.priors.past_outputs import PastOutputs, RecordedOutput

# The kernel of an output has at most so many functions by which tasks differ, and at least so many
# runs of a task for each of its features: otherwise the records of single tasks say too little.
DIFFERENCES, RUNS_PER_FEATURE = 6, 3
COMMON = 2  # level and common shape
NOISE_HINT = Hint("say the noise of a measurement", "noise_std={...}", "--noise NAME=VALUE")


def learn_outputs(
    histories: Mapping[str, History], noise_std: Mapping[str, float] | None = None
) -> PastOutputs:
    """Kernels, noise levels and records of several outputs, for a search with limits.

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
    order = [task.name for task in next(iter(histories.values())) if task.name in common]
    found = {}
    for name, history in histories.items():
        by_name = {task.name: task for task in history}
        found[name] = replace(history, tasks=tuple(by_name[task] for task in order))
    return found


def _recorded(name: str, history: History, noise_std: float | None) -> RecordedOutput:
    history.require_complete("a search with limits")
    teaching = replace(history, tasks=history.tasks[: round(len(history) / 2)])
    learned = learn_prior(teaching, certify="none")
    if learned.task_gp is None:
        raise InputError(f"{name!r} does not vary in the first half of the past tasks")
    runs = int(np.median(history.sizes))
    count = max(min(DIFFERENCES, runs // RUNS_PER_FEATURE - COMMON), 0)
    kernel = principal_kernel(learned.task_gp, learned.model, count)
    noise = _unexplained(name, teaching, kernel) if noise_std is None else noise_std
    flipped = history.report is not None and history.report.minimize
    sign = -1.0 if flipped else 1.0
    tasks = tuple(Task(task.X, sign * task.y, task.name) for task in history)
    return RecordedOutput(History(tasks), kernel, positive(f"noise of {name!r}", noise))


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
