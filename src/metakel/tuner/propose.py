"""The next configuration, as a function of what the journal says and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from metakel.priors import Prior, SpaceOptimizer, TableOptimizer
from metakel.tuner.normalise import Configuration, plain
from metakel.tuner.options import Settings
from metakel.tuner.trials import Trials


def without_history(prior: Prior) -> Prior:
    """A cold start on the same space."""
    return replace(prior, task_gp=None, calibration=None)


def propose(prior: Prior, trials: Trials, settings: Settings) -> Configuration:
    """Where to look next.

    Values are evidence. A run that failed or is pending is none: it counts as its prediction, one
    standard deviation for the worse, so that the search keeps away from it. After an alarm the
    history is left out.
    """
    believed = prior if trials.alarm is None else without_history(prior)
    number = len(trials.all)
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(number,)))
    if settings.candidates is None:
        optimizer = believed.optimizer(
            rng=rng, fixed=dict(settings.fixed), extrapolate=settings.extrapolate
        )
        assert isinstance(optimizer, SpaceOptimizer)
        for trial in trials.told:
            optimizer.tell(trial.configuration, trial.value)
        for trial in (*trials.failed, *trials.pending):
            optimizer.suppose(trial.configuration)
        return plain(optimizer.ask())
    rows = settings.candidates
    table = believed.optimizer(rows.points, extrapolate=settings.extrapolate)
    assert isinstance(table, TableOptimizer)
    for trial in trials.told:
        table.tell(rows.number(trial.configuration), trial.value)
    for trial in (*trials.failed, *trials.pending):
        table.suppose(rows.number(trial.configuration))
    for configuration in trials.asked_for:
        table.close(rows.number(configuration))
    return dict(rows.rows[table.ask()])
