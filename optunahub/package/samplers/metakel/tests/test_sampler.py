"""The cases that Optuna publishes for samplers, and a study that starts from finished ones.

Run in the root of the registry: ``pytest package/samplers/metakel/tests``
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import optuna
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase
import optunahub
import pytest


REGISTRY = str(Path(__file__).parents[3])
MetaKelSampler = optunahub.load_local_module(
    "samplers/metakel", registry_root=REGISTRY
).MetaKelSampler


def finished_study(seed: int) -> optuna.Study:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    study.optimize(lambda trial: trial.suggest_float("x", -10, 10) ** 2, n_trials=20)
    return study


class TestMetaKelSampler(BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: MetaKelSampler(seed=0)


def test_a_study_starts_near_the_best_of_the_finished_ones() -> None:
    past = [finished_study(seed) for seed in range(4)]
    study = optuna.create_study(sampler=MetaKelSampler(source_studies=past, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", -10, 10) ** 2, n_trials=3)
    assert study.best_value < 1
