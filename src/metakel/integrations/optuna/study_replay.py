"""An optimizer that has been told a study, kept from trial to trial, or made again from the record.

Both ways give the same answers: outcomes are told in the order in which they finished, and all
randomness comes from the seed and the number of the trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from metakel.errors import InputError
from metakel.integrations.optuna.record import Outcome
from metakel.priors import Prior, SpaceOptimizer
from metakel.space import Space

POOL_STREAM, ASK_STREAM = 0, 1


def stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of their own for every purpose."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def varying(prior: Prior) -> Space:
    """The parameters that the prior knows something about."""
    return Space(tuple(prior.space[name] for name in prior.space.free))


def held_values(prior: Prior, within: Space, record: Sequence[Outcome]) -> dict[str, Any]:
    """Values for parameters that the prior knows and the search space lacks.

    Where the study has them after all, only not in all trials, they are those of its best trial;
    otherwise those of the configuration that the prior would try first.
    """
    missing = [p for p in varying(prior).parameters if p.name not in within.names]
    if not missing:
        return {}
    worse = 1.0 if prior.info.minimize else -1.0
    valued = [(worse * o.value, o.params) for o in record if o.value is not None and o.feasible]
    valued.sort(key=lambda pair: pair[0])
    held, first = {}, _first_choice(prior)
    for p in missing:
        choices = [params[p.name] for _, params in valued if p.name in params]
        held[p.name] = next((v for v in choices if _placeable(p, v)), first[p.name])
    return held


@lru_cache(maxsize=4)
def _first_choice(prior: Prior) -> dict[str, Any]:
    return _optimizer(prior, within=None, held={}, seed=0).ask()


def _placeable(parameter: Any, value: Any) -> bool:
    try:
        parameter.encode([value], extrapolate=True)
    except InputError:
        return False
    return True


def _optimizer(
    prior: Prior, *, within: Space | None, held: Mapping[str, Any], seed: int
) -> SpaceOptimizer:
    rng = stream(seed, POOL_STREAM)
    optimizer = prior.optimizer(rng=rng, within=within, fixed=dict(held), extrapolate=True)
    assert isinstance(optimizer, SpaceOptimizer)
    return optimizer


class StudyReplay:
    """The optimizer of one study on one search space; what a sampler keeps for speed alone.

    Parameters
    ----------
    prior : Prior
    within : Space
        Parameters to choose, with their ranges in this study.
    held : dict
        Values of the parameters that the prior knows beside those.
    seed : int
    """

    def __init__(self, prior: Prior, within: Space, held: Mapping[str, Any], seed: int) -> None:
        self.optimizer = _optimizer(prior, within=within, held=held, seed=seed)
        self._names = set(within.names)
        self._known = {p.name: p for p in varying(prior).parameters}
        self._seed = seed
        self._told: list[Outcome] = []

    def leads_to(self, record: Sequence[Outcome]) -> bool:
        """Whether the record begins with what was told."""
        return self._told == list(record[: len(self._told)])

    def catch_up(self, record: Sequence[Outcome]) -> None:
        """Take in what is new in the record."""
        for outcome in record[len(self._told) :]:
            _take_in(self.optimizer, self._configuration(outcome.params), outcome)
            self._told.append(outcome)

    def ask(
        self, number: int, attempt: int, running: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The configuration for a trial, away from those of the running ones."""
        fork = self.optimizer.fork(stream(self._seed, ASK_STREAM, number, attempt))
        for params in running:
            _take_in(fork, self._configuration(params), None)
        return fork.ask()

    def _configuration(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Of the parameters that the prior knows; None where one to choose is missing.

        A value that it cannot place, of another parameter by the same name, is as good as none.
        """
        if not self._names <= params.keys():
            return None
        known = ((p, params[name]) for name, p in self._known.items() if name in params)
        return {p.name: v for p, v in known if p.name in self._names or _placeable(p, v)}


def _take_in(
    optimizer: SpaceOptimizer, configuration: dict[str, Any] | None, outcome: Outcome | None
) -> None:
    if configuration is None:
        return
    try:
        if outcome is None or outcome.value is None:
            optimizer.suppose(configuration)
        else:
            optimizer.tell(configuration, outcome.value, outcome.constraints)
    except InputError:
        return  # a value of another kind than the prior knows by this name
