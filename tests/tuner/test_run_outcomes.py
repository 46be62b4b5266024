"""A run without a value is no evidence: it only keeps the search away."""

from __future__ import annotations

import numpy as np
import pytest
from tuning_history import measure, small_prior

from metakel.tuner import Tuner

PRIOR = small_prior(certified=True)
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


def begun(candidates=None) -> Tuner:
    tuner = Tuner(PRIOR, candidates=candidates)
    for x in GOOD:
        tuner.tell(x, measure(x))
    return tuner


def test_a_closed_row_with_a_value_says_nothing_twice():
    tuner = begun(CANDIDATES)
    fresh = PRIOR.optimizer(CANDIDATES)
    for x in GOOD:
        fresh.tell(x, measure(x))
    assert tuner.optimizer.model.outcomes.fantasies.size == 0
    np.testing.assert_array_equal(tuner.predict(CANDIDATES), fresh.predict(CANDIDATES))


def test_a_certificate_that_nobody_reads_is_the_same_in_the_end(tmp_path):
    rng = np.random.default_rng(4)
    reader = Tuner(PRIOR, tmp_path / "j")
    for _ in range(15):
        x = reader.ask()
        reader.tell(x, measure(x) + 0.002 * rng.standard_normal())
        assert reader.certificate.reason == ""
    late, read = Tuner(PRIOR, tmp_path / "j").certificate, reader.certificate
    assert late.x == read.x
    assert (late.regret, late.lower, late.upper) == pytest.approx(
        (read.regret, read.lower, read.upper), rel=1e-7
    )
