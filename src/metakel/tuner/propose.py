"""The next configuration, as a function of what the journal says and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from metakel.prior import Prior, SpaceOptimizer, TableOptimizer
from metakel.tuner.candidates import Candidates
from metakel.tuner.identity import Configuration, plain
from metakel.tuner.settings import Settings
from metakel.tuner.trials import Trials


def without_history(prior: Prior) -> Prior:
    """A cold start on the same space."""
    return replace(prior, shape=None, calibration=None)


def propose(prior: Prior, trials: Trials, settings: Settings) -> Configuration:
    """Where to look next.

    Values told so far are taken in; a failed evaluation counts as the worst value seen, so that
    its surroundings are left; a pending one as its prediction, one standard deviation for the
    worse, so that a batch spreads. Where everything failed so far, no place is known to be bad:
    failures then count like pending ones. After an alarm the history is left out.
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
    rows = settings.candidates
    table = believed.optimizer(rows.points, outside=settings.outside)
    assert isinstance(table, TableOptimizer)
    _take_in(trials, _teller(table, rows), _pessimist(table), prior.facts.minimize)
    for row in map(rows.find, trials.asked_for):
        if row is not None:
            table.tell(row, None)  # not to be asked again
    return dict(rows.rows[table.ask()])


def _teller(table: TableOptimizer, rows: Candidates) -> Callable[[Configuration, float], None]:
    def tell(configuration: Configuration, value: float) -> None:
        row = rows.find(configuration)
        if row is not None:
            table.tell(row, value)

    return tell


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
