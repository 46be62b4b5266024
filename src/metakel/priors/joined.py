"""What one's own history taught beside what the library knows, weighed by one's own tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from metakel.data import History
from metakel.kernels.nystrom import spread_rows
from metakel.optimize import Optimizer
from metakel.priors.heldout import EQUALLY
from metakel.priors.info import FromLibrary
from metakel.priors.prior import Prior
from metakel.priors.regret_calibration import replayed_model
from metakel.search import candidates

FOLDS, ROWS = 4, 20
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
