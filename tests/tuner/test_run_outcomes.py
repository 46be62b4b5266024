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


@pytest.mark.parametrize("candidates", [None, CANDIDATES])
@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("fate", ["failed", "pending"])
def test_a_run_without_a_value_changes_no_trust(candidates, crashes, fate):
    tuner = begun(candidates)
    before = tuner.trust
    assert before > 0.5
    evidence = tuner.optimizer.model.log_evidence
    tuner.enqueue(NEAR_THE_OPTIMUM[:crashes])
    for x in tuner.ask_batch(crashes):
        if fate == "failed":
            tuner.tell(x, failed=True)
    assert tuner.trust == before
    assert tuner.optimizer.model.log_evidence == evidence


@pytest.mark.parametrize("fate", ["failed", "pending"])
def test_the_trust_that_is_shown_is_the_trust_that_decides(monkeypatch, fate):
    """Whatever asks for a score is looked at while it decides."""
    tuner = begun()
    tuner.enqueue(NEAR_THE_OPTIMUM)
    for x in tuner.ask_batch(2):
        if fate == "failed":
            tuner.tell(x, failed=True)
    deciding = []
    model = type(tuner.optimizer.model)
    score = model.upper_bound

    def watched(self):
        deciding.append(self)
        return score(self)

    monkeypatch.setattr(model, "upper_bound", watched)
    shown = tuner.trust
    chosen = tuner.ask()
    assert deciding
    assert {decider.transfer_weight for decider in deciding} == {shown}
    # The expectation that the journal notes is the one that decided, too.
    trial = tuner.trials.pending[-1]
    mean, sd = deciding[0].predict(PRIOR.space.encode([chosen]))
    assert trial.note.expected == (float(mean[0]), float(sd[0]))


def test_the_neighbourhood_of_a_crash_is_avoided():
    tuner = begun()
    first = tuner.ask()
    tuner.tell(first, failed=True)
    gap = PRIOR.space.encode([tuner.ask()]) - PRIOR.space.encode([first])
    assert np.linalg.norm(gap) > 0.02


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
