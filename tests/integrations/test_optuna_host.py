"""Optuna's own sampler tests: with a past of all, some or none of the parameters, and without."""

from __future__ import annotations

from functools import cache

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from optuna_helpers import Refusing, learned

from metakel.integrations.optuna import MetaKelSampler

# Parameters of the host's tests that are not in their arguments.
SPACES = {
    "test_conditional_sample_independent": {"category": CategoricalDistribution(["x", "y"])},
    "test_conditional_parameter_objective": {"x": CategoricalDistribution([True, False])},
    "test_nan_objective_value": {"x": FloatDistribution(0.1, 0.2)},
    "test_partial_fixed_sampling": {
        "x": FloatDistribution(-1, 1),
        "y": IntDistribution(-1, 1),
        "z": FloatDistribution(-1, 1),
    },
    "test_dynamic_range_objective": {"x": FloatDistribution(0, 10), "y": IntDistribution(0, 10)},
    "test_sample_relative_categorical": {
        "x": CategoricalDistribution([1, 10, 100]),
        "y": CategoricalDistribution([-1, -10, -100]),
    },
    "test_sample_relative_mixed": {"y": CategoricalDistribution([-1, -10, -100])},
    "test_trial_relative_params": {
        "x": FloatDistribution(-10, 10),
        "y": FloatDistribution(-10, 10),
    },
}
OTHER = {"x": CategoricalDistribution(["p", "q", "r"]), "lr": FloatDistribution(1e-4, 1, log=True)}
# Here the prior must decide everything, from the first trial on.
DECIDED = (
    "test_sample_relative_numerical",
    "test_sample_relative_categorical",
    "test_sample_relative_mixed",
    "test_trial_relative_params",
    "test_single_parameter_objective",
    "test_combination_of_different_distributions_objective",
    "test_nan_objective_value",
    "test_partial_fixed_sampling",
)


def space_of(request):
    """The search space that a test of the host is about to use."""
    test = request.node
    space = dict(SPACES.get(test.originalname, {}))
    for name, value in (
        getattr(test, "callspec", None).params.items() if hasattr(test, "callspec") else ()
    ):
        if name == "distribution":
            space["x"] = value
        elif name == "choices":
            space["x"] = CategoricalDistribution(value)
        elif name.endswith("_distribution"):
            space[name[0]] = value
        elif name.startswith("suggest_method_"):
            trial = optuna.create_study().ask()
            value(trial)
            space.update(trial.distributions)
    return dict(sorted(space.items())) or OTHER


class Matched:
    @pytest.fixture
    def sampler(self, request):
        prior = learned(*space_of(request).items())
        decided = request.node.originalname in DECIDED
        independent = Refusing() if decided else None
        return lambda: MetaKelSampler(prior=prior, seed=0, independent_sampler=independent)


class TestWithThePastOfTheseParameters(
    Matched, BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
):
    pass


class TestWithThePastOfSomeOfTheseParameters(
    BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self, request):
        space = list(space_of(request).items())
        prior = learned(*space[: max(1, len(space) // 2)])
        return lambda: MetaKelSampler(prior=prior, seed=0)


class TestWithThePastOfOtherParameters(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        prior = learned(*OTHER.items())
        return lambda: MetaKelSampler(prior=prior, seed=0)


class TestWithoutAPast(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return lambda: MetaKelSampler(seed=0)


class TestWithAPastOnOtherRanges(
    BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
):
    """As an outsider would set it up: x and y on [-5, 5], and the tests take other ranges."""

    @pytest.fixture
    def sampler(self):
        return lambda: MetaKelSampler(prior=outsiders_prior())


@cache
def outsiders_prior():
    studies = []
    for k in range(4):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=k))
        for _ in range(15):
            trial = study.ask({"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)})
            study.tell(trial, (trial.params["x"] - k / 4) ** 2 + 0.1 * trial.params["y"])
        studies.append(study)
    return MetaKelSampler(source_studies=studies).prior
