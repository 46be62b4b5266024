"""Several workers on one study: nobody tries what another tries, and one may die."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import permutations
from pathlib import Path

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from optuna_helpers import learned, past_studies
from optuna_worker import smooth, whole

from metakel.integrations.optuna import MetaKelSampler, record, sampler
from metakel.integrations.optuna.study_replay import NEAR

WORKER = Path(__file__).parent / "optuna_worker.py"
SPACE = {
    "i": IntDistribution(0, 9),
    "j": IntDistribution(0, 9),
    "kind": CategoricalDistribution(["a", "b", "c"]),
}
UNIT = FloatDistribution(-1.0, 1.0)
FOREVER = timedelta(days=1)


@pytest.fixture(scope="module")
def prior():
    found = MetaKelSampler(past_studies(SPACE, m=8, n=30)).prior
    assert found.helps
    return found


@pytest.fixture(scope="module")
def two():
    """On x and y in [-1, 1], with the bottom of a bowl near -0.4, -0.4."""
    return learned(("x", UNIT), ("y", UNIT))


class Workers:
    """Processes on one study in an SQLite file."""

    def __init__(self, prior, folder):
        self.prior, self.file = prior, str(folder / "prior.json")
        prior.save(self.file)
        self.url = f"sqlite:///{folder}/study.db"
        self.study = optuna.create_study(study_name="shared", storage=self.url)

    def start(self, options):
        """One process for each list of options; all have imported everything, and begin at once."""
        command = [sys.executable, str(WORKER), self.url, self.file]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        found = [subprocess.Popen([*command, *each], **pipes) for each in options]
        for worker in found:
            assert worker.stdout.readline() == "ready\n"
        for worker in found:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        return found

    def run(self, options):
        for worker in self.start(options):
            worker.communicate(timeout=300)
            assert worker.returncode == 0
        return self.study.trials


def tried(study):
    return Counter(tuple(sorted(t.params.items())) for t in study.trials)


def encoded(prior, trials):
    return prior.space.encode([trial.params for trial in trials], extrapolate=True)


def closest(X):
    """The smallest distance of two rows, by the input in which they differ most."""
    apart = np.abs(X[:, None] - X[None]).max(axis=2)
    return apart[np.triu_indices(len(X), 1)].min()


@pytest.mark.parametrize("workers", [2, 4])
def test_processes_never_try_the_same(prior, tmp_path, workers):
    shared = Workers(prior, tmp_path)
    # All workers have the same seed: it must not make them do the same.
    trials = shared.run(workers * [["6", "--seed", "0"]])
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 6 * workers
    assert max(tried(shared.study).values()) == 1
    assert shared.study.best_value < 2


def one_after_the_other(prior, count, seed=None):
    """What one worker chooses for trials that all run at the same time."""
    sampler = MetaKelSampler(prior=prior, seed=seed)
    study = optuna.create_study(study_name="shared", sampler=sampler)
    for _ in range(count):
        smooth(study.ask())
    return encoded(prior, study.trials)


@pytest.mark.parametrize("seed", [0, None])
def test_processes_that_start_together_choose_what_one_would_choose_for_all(two, tmp_path, seed):
    """Whoever reads, announces or ends first; so they are as far apart as such a batch is."""
    options = [] if seed is None else ["--seed", str(seed)]
    trials = Workers(two, tmp_path).run(4 * [["1", "--together", "4", *options]])
    batch = one_after_the_other(two, 4, seed)
    assert_allclose(encoded(two, trials), batch, atol=1e-6)
    assert closest(batch) > 2 * NEAR


def test_workers_with_seeds_of_their_own_keep_apart_too(two, tmp_path):
    """They cannot foresee each other exactly, but never end up with nearly the same."""
    shared = Workers(two, tmp_path)
    trials = shared.run([["1", "--together", "4", "--seed", str(seed)] for seed in range(4)])
    assert closest(encoded(two, trials)) > NEAR


def test_a_killed_worker_leaves_a_usable_study_and_its_trial_is_not_repeated(prior, tmp_path):
    shared = Workers(prior, tmp_path)
    (worker,) = shared.start([["10", "--seed", "0", "--hang-at", "3"]])
    with worker:
        assert worker.stdout.readline() == "hangs\n"
        worker.kill()
    study = shared.study
    lost = study.trials[-1]
    assert lost.state == TrialState.RUNNING
    study.sampler = MetaKelSampler(prior=prior, seed=0)
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
    monkeypatch.setattr(sampler, "running", lambda trials, own: record.Running())
    assert max(tried(ask_without_telling(prior)).values()) > 1


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_it_does_not_matter_in_which_order_running_trials_choose(two, order):
    """A trial that has chosen nothing yet is foreseen by those that began after it."""
    study = optuna.create_study(study_name="shared", sampler=MetaKelSampler(prior=two))
    trials = [study.ask() for _ in range(4)]
    for number in order:
        smooth(trials[number])
    assert_allclose(encoded(two, study.trials), one_after_the_other(two, 4), atol=1e-6)


@pytest.mark.parametrize("hours", [-3, 3], ids=["killed long ago", "clock of another time zone"])
def test_a_trial_that_announces_nothing_steers_nobody_for_long(two, hours):
    first = optuna.create_study(study_name="same", sampler=MetaKelSampler(prior=two))
    smooth(first.ask())
    study = optuna.create_study(study_name="same", sampler=MetaKelSampler(prior=two))
    lost = optuna.create_trial(state=TrialState.RUNNING)
    lost.datetime_start = datetime.now() + timedelta(hours=hours)
    study.add_trial(lost)
    trial = study.ask()
    smooth(trial)
    assert trial.params == first.trials[0].params


def test_equal_choices_at_the_same_moment_are_noticed_and_made_again(prior, monkeypatch):
    """The other worker announces after we have read the record, and before we announce."""
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


@pytest.mark.parametrize("unannounced", [FOREVER, -FOREVER], ids=["foreseen", "unforeseen"])
def test_workers_in_lockstep_part(prior, monkeypatch, unannounced):
    """Both always announce before either looks, so that each sees the other's choice every time."""
    monkeypatch.setattr(record, "UNANNOUNCED", unannounced)
    study = optuna.create_study()
    trials = [study.ask(), study.ask()]
    together = threading.Barrier(2)
    write = record.write_choice

    def announced(study_, trial, params):
        write(study_, trial, params)
        with suppress(threading.BrokenBarrierError):  # the other is done
            together.wait(timeout=1)

    monkeypatch.setattr(sampler, "write_choice", announced)

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
