"""Past studies for tests: tasks that share a shape over any search space."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler

from metakel.priors import Prior

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Refusing(BaseSampler):
    """Stands where an independent sampler would, and proves that nobody asked it."""

    def infer_relative_search_space(self, study, trial):
        raise AssertionError("the independent sampler was asked for a search space")

    def sample_relative(self, study, trial, search_space):
        raise AssertionError("the independent sampler was asked")

    def sample_independent(self, study, trial, param_name, param_distribution):
        raise AssertionError(f"parameter {param_name} was sampled independently")


def past_studies(
    space: Mapping[str, BaseDistribution], *, m: int = 4, n: int = 8, direction: str = "minimize"
) -> list[optuna.Study]:
    """m studies of n random trials; every parameter adds a bowl whose middle differs a little."""
    rng = np.random.default_rng(0)
    studies = []
    for task in range(m):
        study = optuna.create_study(sampler=RandomSampler(seed=task), direction=direction)
        middle = 0.3 + 0.1 * rng.standard_normal(len(space))
        for _ in range(n):
            trial = study.ask(dict(space))
            value = bowl(trial.params, space, middle)
            study.tell(trial, value if direction == "minimize" else -value)
        studies.append(study)
    return studies


def bowl(params: Mapping[str, Any], space: Mapping[str, BaseDistribution], middle) -> float:
    places = [_place(params[name], space[name]) for name in space]
    return float(np.sum((np.array(places) - middle) ** 2))


def _place(value: Any, distribution: Any) -> float:
    """Where a value lies in its range, from 0 to 1."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices.index(value) / len(distribution.choices)
    if distribution.log:
        return float(
            np.log(value / distribution.low) / np.log(distribution.high / distribution.low)
        )
    return (value - distribution.low) / (distribution.high - distribution.low)


@cache
def learned(*space: tuple[str, BaseDistribution]) -> Prior:
    """The prior of such studies, learned once per space."""
    from metakel.integrations.optuna import MetaKelSampler

    prior = MetaKelSampler(past_studies(dict(space))).prior
    assert prior is not None
    return prior


def lr_loss(trial, shift: float = 0.0) -> float:
    """A small mixed problem: learning rate, depth and optimizer."""
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    depth = trial.suggest_int("depth", 1, 10)
    kind = trial.suggest_categorical("kind", ["adam", "sgd"])
    return (np.log10(lr) + 3 + shift) ** 2 + 0.05 * (depth - 6) ** 2 + 0.4 * (kind == "sgd")


@cache
def lr_past(m: int = 8, n: int = 25, sign: float = 1.0) -> tuple[optuna.Study, ...]:
    """Finished studies of `lr_loss` with other shifts; maximised where sign is -1."""
    rng = np.random.default_rng(0)
    direction = "minimize" if sign > 0 else "maximize"
    studies = []
    for task in range(m):
        shift = float(rng.normal(0, 0.3))
        study = optuna.create_study(sampler=RandomSampler(seed=task), direction=direction)
        study.optimize(lambda t, s=shift: sign * lr_loss(t, s), n_trials=n)
        studies.append(study)
    return tuple(studies)
