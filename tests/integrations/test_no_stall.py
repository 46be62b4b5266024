"""A search with a learned prior goes on learning: it does not sit on an edge of its space."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import optuna
import pytest

from metakel import History, learn_prior
from metakel.gp import averages
from metakel.integrations.optuna import MetaKelSampler
from metakel.kernels.stationary import Matern52ARD
from metakel.priors import principal

BAD = {"adam": 0.0, "sgd": 0.15, "rmsprop": 0.05}
TRIALS = 40


def world(task):
    """A loss of five parameters, of which some matter little, its objective, and its minimum."""
    a = np.random.default_rng(1000 + task).normal(size=5)
    noise = np.random.default_rng(task)

    def loss(lr, depth, dropout, wd, opt):
        g, w = np.log10(lr), np.log10(wd)
        return (
            0.15 * (g + 3 + 0.4 * a[0]) ** 2
            + 0.02 * (depth - 6 - 1.5 * a[1]) ** 2
            + 0.8 * (dropout - 0.2 - 0.08 * a[2]) ** 2
            + 0.03 * (w + 4 + 0.5 * a[3]) ** 2
            + BAD[opt]
            + 0.02 * np.sin(6 * g)
            + 0.3
            + 0.1 * a[4]
        )

    def objective(trial):
        row = {
            "lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
            "depth": trial.suggest_int("depth", 1, 12),
            "dropout": trial.suggest_float("dropout", 0, 0.6),
            "wd": trial.suggest_float("wd", 1e-7, 1e-1, log=True),
            "opt": trial.suggest_categorical("opt", list(BAD)),
        }
        return loss(**row) + 0.01 * noise.normal()

    best = {"dropout": 0.2 + 0.08 * a[2], "wd": 10 ** (-4 - 0.5 * a[3]), "opt": "adam"}
    rates = 10 ** np.linspace(-5, -1, 401)
    depth = min(range(1, 13), key=lambda d: loss(lr=1e-3, depth=d, **best))
    return loss, objective, min(loss(lr=lr, depth=depth, **best) for lr in rates)


def on_edge(params):
    wd, lr = np.log10(params["wd"]), np.log10(params["lr"])
    u = [params["dropout"] / 0.6, (wd + 7) / 6, (lr + 5) / 4]
    return np.mean([v < 1e-6 or v > 1 - 1e-6 for v in u])


@cache
def past():
    """Random searches on eight other tasks."""
    studies = []
    for k in range(8):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=k))
        study.optimize(world(k)[1], n_trials=30)
        studies.append(study)
    return studies


def searches():
    """Mean regret of the best trial, and share of coordinates on an edge after the tenth trial."""
    regrets, edges = [], []
    for task in (200, 201):
        loss, objective, least = world(task)
        study = optuna.create_study(sampler=MetaKelSampler(past(), seed=0))
        study.optimize(objective, n_trials=TRIALS)
        regrets.append(loss(**study.best_params) - least)
        edges.append(np.mean([on_edge(trial.params) for trial in study.trials[10:]]))
    return np.mean(regrets), np.mean(edges)


@pytest.mark.filterwarnings("ignore")
def test_a_search_does_not_stall_on_an_edge():
    regret, edge = searches()
    assert regret <= 0.009
    assert edge <= 0.2


@pytest.mark.filterwarnings("ignore")
def test_length_scales_without_a_bound_make_it_stall(monkeypatch):
    """Negative control: a weak parameter becomes a straight line, whose best end is an edge."""
    monkeypatch.setattr(sys.modules["metakel.gp.posterior"], "LONGEST", 3.5)
    regret, edge = searches()
    assert regret > 0.009
    assert edge > 0.2


def regret_beyond_a_valley():
    """Mean regret on tasks whose optimum is in a valley that past tasks are too coarse to show.

    All values around the best point of the next valley are as the model expects them, so no
    evidence tells.
    """
    regrets = []
    for task in (611, 727):
        loss, objective, least = world(task)
        study = optuna.create_study(sampler=MetaKelSampler(past(), seed=0))
        study.optimize(objective, n_trials=80)
        regrets.append(loss(**study.best_params) - least)
    return np.mean(regrets)


@pytest.mark.filterwarnings("ignore")
def test_a_search_leaves_a_valley_that_its_model_is_sure_of():
    assert regret_beyond_a_valley() <= 0.009


@pytest.mark.filterwarnings("ignore")
def test_without_wide_upper_bounds_it_stays_there(monkeypatch):
    """Negative control: always 1.5 standard deviations."""
    monkeypatch.setattr(averages, "WIDE_FROM", 10**9)
    assert regret_beyond_a_valley() > 0.018


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_a_wrong_prior_is_overruled_however_sure_it_is(monkeypatch, noise):
    """All parameters are planted to be straight lines, and the check by held-out tasks passes."""

    def planted(X, z):
        return Matern52ARD(np.full(X[0].shape[1], 100.0), 1.0, noise)

    monkeypatch.setattr(principal, "fit_matern52", planted)
    wrong = learn_prior(History.from_optuna(past()), certify="none")
    sure = replace(wrong.heldout, log_scores=np.ones(len(wrong.heldout.log_scores)))
    regrets, trusts = [], []
    for task in (200, 201):
        loss, objective, least = world(task)
        sampler = MetaKelSampler(prior=replace(wrong, heldout=sure), seed=0)
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, n_trials=60)
        best = np.minimum.accumulate([trial.value for trial in study.trials])
        found = [next(t for t in study.trials if t.value == best[n - 1]) for n in (5, 60)]
        regrets.append([loss(**trial.params) - least for trial in found])
        trusts.append(sampler.trust(study))
    after_5, after_60 = np.mean(regrets, axis=0)
    assert max(trusts) < 1e-3
    assert after_60 < 0.05 < 0.2 < after_5
