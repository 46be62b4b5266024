"""Several workers on one study: nobody tries what another tries, and one may die."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState
from optuna_helpers import learned
from optuna_worker import whole

from metakel.integrations.optuna import MetaKelSampler, record, sampler

WORKER = Path(__file__).parent / "optuna_worker.py"
SPACE = {
    "i": IntDistribution(0, 9),
    "j": IntDistribution(0, 9),
    "kind": CategoricalDistribution(["a", "b", "c"]),
}


@pytest.fixture(scope="module")
def prior():
    return learned(*SPACE.items())


@pytest.fixture
def shared(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="shared", storage=url)
    study.sampler = MetaKelSampler(prior=prior, seed=0)
    return study, [sys.executable, str(WORKER), url, str(tmp_path / "prior.json")]


def tried(study):
    return Counter(tuple(sorted(t.params.items())) for t in study.trials)


def test_two_processes_never_try_the_same(shared):
    study, command = shared
    workers = [subprocess.Popen([*command, "8"]) for _ in range(2)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 16
    assert max(tried(study).values()) == 1
    assert study.best_value < 2


def test_a_killed_worker_leaves_a_usable_study_and_its_trial_is_not_repeated(shared):
    study, command = shared
    with subprocess.Popen([*command, "10", "3"], stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == b"hangs\n"
        worker.kill()
    lost = study.trials[-1]
    assert lost.state == TrialState.RUNNING
    study.optimize(whole, n_trials=8)
    assert sum(t.state == TrialState.COMPLETE for t in study.trials) == 11
    assert max(tried(study).values()) == 1
    assert study.best_value < 2


def ask_without_telling(prior, count=6, **options):
    study = optuna.create_study(sampler=MetaKelSampler(prior=prior, seed=0))
    for _ in range(count):
        trial = study.ask()
        if options.get("suggest", True):
            whole(trial)
        else:  # the choice is made, but the objective has not asked for it yet
            trial.suggest_int("i", 0, 9)
    return study


@pytest.mark.parametrize("suggest", [True, False])
def test_running_trials_are_kept_away_from(prior, suggest):
    study = ask_without_telling(prior, suggest=suggest)
    choices = [tuple(record.attempted(t).items()) for t in study.trials]
    assert len(set(choices)) == len(choices)


def test_control_without_looking_at_running_trials_choices_are_repeated(prior, monkeypatch):
    monkeypatch.setattr(sampler, "running", lambda trials, own: [])
    assert max(tried(ask_without_telling(prior)).values()) > 1


def test_equal_choices_at_the_same_moment_are_noticed_and_made_again(prior, monkeypatch):
    """The other worker notes its choice after we have read the record, and before we note ours."""
    study = optuna.create_study(sampler=MetaKelSampler(prior=prior, seed=0))
    alone = ask_without_telling(prior, count=1).trials[0].params
    mine, other = study.ask(), study.ask()
    write = record.write_choice
    raced = []

    def late(study_, trial, params):
        if not raced:
            raced.append(params)
            write(study_, study.trials[other.number], params)
        write(study_, trial, params)

    monkeypatch.setattr(sampler, "write_choice", late)
    whole(mine)
    assert raced == [alone]
    assert mine.params != alone


def test_workers_in_lockstep_part(prior, monkeypatch):
    """Both always note before either looks, so that each sees the other's choice every time."""
    study = optuna.create_study()
    trials = [study.ask(), study.ask()]
    together = threading.Barrier(2)
    write = record.write_choice

    def noted(study_, trial, params):
        write(study_, trial, params)
        with suppress(threading.BrokenBarrierError):  # the other is done
            together.wait(timeout=1)

    monkeypatch.setattr(sampler, "write_choice", noted)

    def choose(trial):
        own = MetaKelSampler(prior=prior, seed=0)
        frozen = study.trials[trial.number]
        return own.sample_relative(study, frozen, SPACE)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(choose, trials)
    assert first != second


def test_threads_share_a_sampler(prior):
    study = optuna.create_study(sampler=MetaKelSampler(prior=prior, seed=0))
    study.optimize(whole, n_trials=20, n_jobs=4)
    assert max(tried(study).values()) == 1
