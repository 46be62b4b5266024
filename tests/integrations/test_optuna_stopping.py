"""Stopping a study by its certificate."""

from __future__ import annotations

import logging
from math import inf

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose
from optuna.trial import TrialState
from optuna_helpers import lr_loss, lr_past

from metakel import learn_prior
from metakel.data import History
from metakel.errors import InputError
from metakel.integrations.optuna import MetaKelSampler, StopAtCallback

TOLERANCE = 0.25  # about 5 % of the spread of a past study


@pytest.fixture(scope="module")
def prior():
    """With replays, as `learn_prior` makes them."""
    return learn_prior(History.from_optuna(list(lr_past())))


def study_of(prior, trials=0, objective=lr_loss, **options):
    study = optuna.create_study(sampler=MetaKelSampler(prior=prior, seed=0, **options))
    study.optimize(objective, n_trials=trials)
    return study


def test_a_study_is_certified_as_the_optimizer_of_its_prior_is(prior):
    study = study_of(prior)
    optimizer = prior.optimizer(rng=np.random.default_rng(0), delta=0.2)
    for _ in range(5):
        study.optimize(lr_loss, n_trials=1)
        optimizer.tell(study.trials[-1].params, study.trials[-1].value)
        certificate = study.sampler.certificate(study)
        assert certificate.regret < inf
        assert_allclose(certificate.regret, optimizer.certificate().regret, rtol=1e-9)
        assert certificate.x == study.best_params


def test_source_studies_are_replayed_when_a_certificate_is_asked_for(prior, caplog):
    sampler = MetaKelSampler(lr_past(), seed=0)
    study, again = (optuna.create_study(sampler=sampler) for _ in range(2))
    with caplog.at_level(logging.INFO, logger="metakel"):
        study.optimize(lr_loss, n_trials=3)
        assert "replaying" not in caplog.text
        found = sampler.certificate(study)
        sampler.certificate(again)
    assert caplog.text.count("replaying the sampler on 8 past studies") == 1
    assert_allclose(found.regret, study_of(prior, 3).sampler.certificate(study).regret, rtol=1e-9)


@pytest.mark.parametrize("stop_at", [TOLERANCE, "5%"])
def test_the_callback_stops_with_a_sentence_in_log_and_study(prior, caplog, stop_at):
    study = study_of(prior)
    with caplog.at_level(logging.INFO, logger="metakel"):
        study.optimize(lr_loss, n_trials=40, callbacks=[StopAtCallback(stop_at)])
    assert 1 < len(study.trials) < 20
    tolerance = 0.05 * prior.certificate.spread if stop_at == "5%" else stop_at
    certificate = study.sampler.certificate(study)
    assert study.best_value <= tolerance  # the smallest possible loss is 0
    assert study.user_attrs["metakel:certificate"] == str(certificate)
    assert f"stops: {certificate.reached(stop_at)}" in caplog.text
    assert f"(stop_at={stop_at})" in certificate.reached(stop_at)
    before = optuna.create_study()
    before.add_trials(study.trials[:-1])
    assert not study.sampler.certificate(study, trials=before.trials).reached(stop_at)


def other_range(trial):
    return lr_loss(trial) + 0 * trial.suggest_float("dropout", 0, 1)


def limited(trial):
    trial.set_constraint("c", -1.0)
    return lr_loss(trial)


def pruned(trial):
    value = lr_loss(trial)
    if trial.number == 2:
        trial.report(value, 0)
        raise optuna.TrialPruned
    return value


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        (other_range, "not that of the past studies: dropout differ"),
        (limited, "replayed without constraints"),
        (pruned, "replayed without pruning"),
        (lambda t: -lr_loss(t), "no certificate: alarm after"),
    ],
)
def test_where_nothing_can_be_promised_a_warning_says_why(prior, caplog, objective, says):
    study = study_of(prior)
    study.optimize(objective, n_trials=9, callbacks=[StopAtCallback(1e-9)])
    assert len(study.trials) == 9
    assert study.sampler.certificate(study).regret == inf
    assert caplog.text.count(says) == 1


def test_trials_of_others_promise_nothing_for_the_optimum(prior):
    """The rule that was replayed has to have chosen; here the first one was enqueued."""
    study = study_of(prior)
    study.enqueue_trial({"lr": 0.09, "depth": 10, "kind": "sgd"})
    study.optimize(lr_loss, n_trials=4)
    assert "not the one that this optimizer asks for" in study.sampler.certificate(study).reason


def test_a_cold_start_and_an_uncalibrated_prior_say_so():
    cold = MetaKelSampler(seed=0)
    study = optuna.create_study(sampler=cold)
    assert "nothing was learned" in cold.certificate(study).reason
    without = MetaKelSampler(lr_past()).prior
    assert "not replayed" in study_of(without, 2).sampler.certificate(study).reason
    assert all(t.state == TrialState.COMPLETE for t in study.trials)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: StopAtCallback(-1), "stop_at is -1"),
        (lambda: StopAtCallback("soon"), "stop_at is 'soon'"),
        (lambda: StopAtCallback(0.1, delta=2), "delta is 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_a_regret_at_which_no_search_stops_is_said_at_once(prior, caplog):
    with caplog.at_level(logging.WARNING, logger="metakel"):
        prior.optimizer(stop_at=1e-9)
        prior.optimizer(stop_at="5%", delta=0.001)
        study_of(prior, 0).optimize(lr_loss, n_trials=2, callbacks=[StopAtCallback(1e-9)])
        found = [record.getMessage() for record in caplog.records]
    assert all("will not stop" in text for text in found)
    optimizer, too_sure, study = found  # the study says it once
    assert "the smallest is" in optimizer
    assert "too few for delta = 0.001" in too_sure
    assert "the smallest is" in study
