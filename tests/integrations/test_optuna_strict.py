"""MetaKelSampler(strict=True): only configurations that the bounds find safe are tried."""

from __future__ import annotations

import pickle

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import create_trial
from optuna_helpers import Refusing
from scipy.stats import binom

import metakel as mk
from metakel.errors import InputError
from metakel.integrations.optuna import MetaKelSampler

POWER, FLOW = FloatDistribution(0.0, 1.0), FloatDistribution(0.0, 2.0)
LIMIT, NOISE = 90.0, 0.5


def temperature(power, flow, warmer):
    return 50 + (50 + 4 * warmer) * power - 3 * flow


def sources(m=44, n=15, *, constrained=True):
    """Plants: more power is better and hotter; each is a little warmer or colder than others."""
    rng, studies = np.random.default_rng(0), []
    for plant in range(m):
        study, warmer = (
            optuna.create_study(direction="maximize", study_name=f"p{plant}"),
            rng.normal(),
        )
        for power, flow in rng.uniform([0, 0], [1, 2], (n, 2)):
            hot = temperature(power, flow, warmer) + NOISE * rng.normal()
            study.add_trial(
                create_trial(
                    params={"power": power, "flow": flow},
                    distributions={"power": POWER, "flow": FLOW},
                    value=60 + 20 * power - flow + 0.3 * rng.normal(),
                    constraints={"heat": hot - LIMIT} if constrained else {},
                )
            )
        studies.append(study)
    return studies


@pytest.fixture(scope="module")
def past():
    return sources()


@pytest.fixture(scope="module")
def strict(past):
    return MetaKelSampler(past, strict=True, seed=0, independent_sampler=Refusing())


def tuned(sampler, trials, seed, *, warmer=None):
    """The true excess over the limit of every trial of a new plant."""
    rng = np.random.default_rng((seed, 1))
    warmer = rng.normal() if warmer is None else warmer
    excess = []

    def plant(trial):
        power, flow = trial.suggest_float("power", 0, 1), trial.suggest_float("flow", 0, 2)
        hot = temperature(power, flow, warmer)
        excess.append(hot - LIMIT)
        trial.set_constraint("heat", hot - LIMIT + NOISE * rng.normal())
        return 60 + 20 * power - flow + 0.3 * rng.normal()

    study = optuna.create_study(direction="maximize", sampler=sampler, study_name=f"new {seed}")
    study.optimize(plant, n_trials=trials)
    return study, np.array(excess)


def test_no_trial_violates_the_constraint_and_the_search_pays(strict):
    unsafe, gains = 0, []
    for seed in range(6):
        study, excess = tuned(strict, 6, seed)
        unsafe += bool((excess > 0).any())
        gains.append(max(t.value for t in study.trials) - study.trials[0].value)
    assert unsafe <= binom.ppf(1 - 1e-4, 6, 0.1)
    assert np.mean(gains) > -0.5
    certificate = strict.certificate(study)
    assert certificate.among == "safe"
    assert certificate.delta == 0.1


def test_without_strict_the_same_sampler_violates_it(past):
    """The negative control: feasibility is modelled, and promises nothing."""
    sampler = MetaKelSampler(past, seed=0)
    unsafe = sum(bool((tuned(sampler, 6, seed)[1] > 0).any()) for seed in range(3))
    assert unsafe == 3


def test_configurations_that_the_user_vouches_for_are_where_it_begins(past):
    few = past[:6]  # too few to vouch for anything
    with pytest.raises(InputError, match="past tasks are left to calibrate"):
        tuned(MetaKelSampler(few, strict=True, seed=0), 1, 0)
    safe = {"power": 0.3, "flow": 1.0}
    study, excess = tuned(MetaKelSampler(past, strict=True, seed=0, start=[safe]), 3, 0, warmer=0.0)
    assert study.trials[0].params == safe
    assert (excess <= 0).all()


def test_workers_and_copies_choose_the_same(past, strict):
    study, _ = tuned(strict, 3, 9)
    again = pickle.loads(pickle.dumps(strict))
    spaces = {"power": POWER, "flow": FLOW}
    trial = study.ask(spaces)
    other = optuna.create_study(direction="maximize", sampler=again, study_name="new 9")
    other.add_trials(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
    assert other.ask(spaces).params == trial.params
    assert study.ask(spaces).params != trial.params  # the first one is running


def test_what_the_past_cannot_vouch_for_is_refused(past, strict):
    def first(**spaces):
        study = optuna.create_study(direction="maximize", sampler=strict)
        return study.ask(spaces)

    with pytest.raises(InputError, match=r"strict: parameter 'valve' is not what all past studies"):
        first(power=POWER, flow=FLOW, valve=FloatDistribution(0, 1))
    with pytest.raises(InputError, match=r"the study does not allow it .*Enqueue"):
        first(power=FloatDistribution(0.9, 1.0), flow=FLOW)
    study = optuna.create_study(direction="maximize", sampler=strict)
    study.enqueue_trial({"power": 0.2, "flow": 1.0})
    wider = {"power": FloatDistribution(0.0, 3.0), "flow": FLOW}
    study.tell(study.ask(wider), 64.0)
    with pytest.raises(InputError, match="the range of 'power' is not within that of the past"):
        study.ask(wider)
    with pytest.raises(InputError, match="no constraint that all their completed trials report"):
        MetaKelSampler(sources(4, constrained=False), strict=True)
    with pytest.raises(InputError, match="without strict=True"):
        MetaKelSampler(past, start=[{"power": 0.1, "flow": 0.1}])
    with pytest.raises(InputError, match="nothing can be promised"):
        optuna.create_study(sampler=MetaKelSampler([], strict=True)).ask({"power": POWER})


def test_values_that_contradict_the_past_stop_the_study(strict):
    study = optuna.create_study(direction="maximize", sampler=strict, study_name="alarm")
    spaces = {"power": POWER, "flow": FLOW}
    trial = study.ask(spaces)
    trial.set_constraint("heat", 500.0)
    study.tell(trial, 60.0)
    with pytest.raises(mk.Alarm, match=r"heat: .* does not fit.*Nothing more is tried"):
        study.ask(spaces)
