"""A journal knows its prior by what it was learned from, not by the last bits of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tuning_history import table

from metakel import History, InputError, Prior, learn_prior
from metakel.priors.prior import Beside
from metakel.tuner import Tuner

HERE = Path(__file__).parent
LEARN = """
import sys
from metakel import History, learn_prior
from tuning_history import table
history = History.from_frame(table(tasks=8, runs=12), task="task", output="score")
learn_prior(history, certify="none").save(sys.argv[1])
"""


def learned(tasks: int = 8, **options) -> Prior:
    history = History.from_frame(table(tasks=tasks, runs=12), task="task", output="score")
    return learn_prior(history, certify="none", **options)


@pytest.fixture(scope="module")
def prior() -> Prior:
    return learned()


def rounded_differently(prior: Prior) -> Prior:
    """As another number of threads learns it."""
    assert prior.task_gp is not None
    mu = np.nextafter(prior.task_gp.mu, np.inf)
    return replace(prior, task_gp=replace(prior.task_gp, mu=mu))


def test_a_prior_that_differs_in_the_last_bits_goes_on_with_the_journal(prior, tmp_path):
    Tuner(prior, tmp_path / "j").tell({"rate": 0.01, "depth": 6, "kind": "adam"}, 0.5)
    other = rounded_differently(prior)
    other.save(tmp_path / "prior.json")
    for again in (other, Prior.load(tmp_path / "prior.json")):
        assert len(Tuner(again, tmp_path / "j").trials.observed) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_prior_learned_with_any_number_of_threads_goes_on(prior, tmp_path, threads):
    Tuner(prior, tmp_path / "j")
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }
    command = [sys.executable, "-c", LEARN, str(tmp_path / "prior.json")]
    subprocess.run(command, check=True, cwd=HERE, env=environment)
    Tuner(Prior.load(tmp_path / "prior.json"), tmp_path / "j")


def test_other_runs_or_other_ways_to_learn_are_another_prior(prior, tmp_path):
    Tuner(prior, tmp_path / "j")
    others = [
        learned(tasks=9),
        learned(mean=False),
        learned(cold_weight=0.1),
        replace(prior, task_gp=None),
        replace(prior, beside=Beside(0.0)),
    ]
    for other in others:
        with pytest.raises(InputError, match="begun with another prior"):
            Tuner(other, tmp_path / "j")
