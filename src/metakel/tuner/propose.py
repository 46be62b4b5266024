"""The next configuration, as a function of what the journal says and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from metakel.prior import Prior, SpaceOptimizer, TableOptimizer
from metakel.tuner.settings import Settings
from metakel.tuner.trials import Configuration, Trials, key, plain


def without_history(prior: Prior) -> Prior:
    """A cold start on the same space."""
    return replace(prior, shape=None, calibration=None)


def propose(prior: Prior, trials: Trials, settings: Settings) -> Configuration:
    """Where to look next.

    Values told so far are taken in; a failed evaluation counts as the worst value seen, so that
    its surroundings are left; a pending one as its prediction, one standard deviation for the
    worse, so that a batch spreads. After an alarm the history is left out.
    """
    believed = prior if trials.alarm is None else without_history(prior)
    number = len(trials.all)
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(number,)))
    if settings.candidates is None:
        optimizer = believed.optimizer(
            rng=rng, fixed=dict(settings.fixed), outside=settings.outside
        )
        assert isinstance(optimizer, SpaceOptimizer)
        _take_in(trials, optimizer.tell, _pessimist(optimizer), prior.facts.minimize)
        return plain(optimizer.ask())
    table = believed.optimizer(settings.candidates, outside=settings.outside)
    assert isinstance(table, TableOptimizer)
    rows = settings.rows
    _take_in(
        trials,
        lambda x, value: table.tell(rows[key(x)], value),
        _pessimist(table),
        prior.facts.minimize,
    )
    return plain(settings.candidates[table.ask()])


def _pessimist(optimizer: SpaceOptimizer | TableOptimizer) -> Callable[[Configuration], float]:
    worse = 1.0 if optimizer.prior.facts.minimize else -1.0

    def predict(configuration: Configuration) -> float:
        mean, sd = optimizer.predict([configuration])
        return float(mean[0] + worse * sd[0])

    return predict


def _take_in(
    trials: Trials,
    tell: Callable[[Configuration, float], None],
    predict: Callable[[Configuration], float],
    minimize: bool,
) -> None:
    values = [trial.value for trial in trials.told if trial.value is not None]
    for trial, value in zip(trials.told, values, strict=True):
        tell(trial.configuration, value)
    for trial in trials.failed:
        worst = max(values, default=None) if minimize else min(values, default=None)
        tell(trial.configuration, predict(trial.configuration) if worst is None else worst)
    for trial in trials.pending:
        tell(trial.configuration, predict(trial.configuration))
