"""A run without a value is no evidence: it only keeps the search away."""

from __future__ import annotations

import numpy as np
import pytest
from tuning_history import measure, small_prior

from metakel.tuner import Tuner
from metakel.tuner import propose as proposing

PRIOR = small_prior()
GOOD = [
    {"rate": 0.01, "depth": 6, "kind": "adam"},
    {"rate": 0.02, "depth": 5, "kind": "adam"},
]
NEAR_THE_OPTIMUM = [
    {"rate": 0.011, "depth": 6, "kind": "adam"},
    {"rate": 0.009, "depth": 6, "kind": "adam"},
]
CANDIDATES = [
    *GOOD,
    *NEAR_THE_OPTIMUM,
    *PRIOR.space.decode(PRIOR.space.sample(np.random.default_rng(0), 20)),
]


@pytest.fixture
def deciding(monkeypatch):
    """The optimizers that chose, each as it was when it was asked."""
    made = []
    build = type(PRIOR).optimizer

    def optimizer(self, *args, **kwargs):
        made.append(build(self, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(type(PRIOR), "optimizer", optimizer)
    return made


@pytest.mark.parametrize("candidates", [None, CANDIDATES])
@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("fate", ["failed", "pending"])
def test_the_trust_that_is_shown_is_the_trust_that_decides(deciding, candidates, crashes, fate):
    tuner = Tuner(PRIOR, candidates=candidates)
    for x in GOOD:
        tuner.tell(x, measure(x))
    before = tuner.trust
    tuner.enqueue(NEAR_THE_OPTIMUM[:crashes])
    for x in tuner.ask_batch(crashes):
        if fate == "failed":
            tuner.tell(x, failed=True)
    proposing.propose(PRIOR, tuner.trials, tuner.settings)
    assert tuner.trust == before
    assert deciding[-1].trust == pytest.approx(before, abs=1e-12)


def test_the_neighbourhood_of_a_crash_is_avoided():
    tuner = Tuner(PRIOR)
    for x in GOOD:
        tuner.tell(x, measure(x))
    first = tuner.ask()
    tuner.tell(first, failed=True)
    gap = PRIOR.space.encode([tuner.ask()]) - PRIOR.space.encode([first])
    assert np.linalg.norm(gap) > 0.02


def test_a_closed_row_with_a_value_says_nothing_twice(deciding):
    tuner = Tuner(PRIOR, candidates=CANDIDATES)
    for x in GOOD:
        tuner.tell(x, measure(x))
    proposing.propose(PRIOR, tuner.trials, tuner.settings)
    decided = deciding[-1].predict(CANDIDATES)
    fresh = PRIOR.optimizer(CANDIDATES)
    for row, x in enumerate(GOOD):
        fresh.tell(row, measure(x))
    np.testing.assert_array_equal(decided, fresh.predict(CANDIDATES))
