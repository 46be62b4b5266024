"""A tuner asks sensibly, forgets nothing and goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from tuning_history import measure, small_prior

import metakel as mk
from metakel import InputError
from metakel.tuner import Finished, KernelSource, Tuner

PRIOR = small_prior(certified=True)


def run(tuner: Tuner) -> list[tuple[dict, float]]:
    for x in tuner:
        tuner.tell(x, measure(x))
    return [(trial.point, trial.value) for trial in tuner.trials.observed]


def test_it_finds_the_top_of_a_task_like_the_past_ones():
    tuner = Tuner(PRIOR, budget=12)
    run(tuner)
    assert tuner.best.value > 0.89
    assert tuner.best.x["kind"] == "adam"
    assert tuner.stop_reason == "the budget of 12 evaluations is spent"
    with pytest.raises(Finished, match="budget of 12"):
        tuner.ask()


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_new_tuner_on_the_journal_goes_on_as_if_nothing_had_happened(tmp_path, stop):
    whole = run(Tuner(PRIOR, budget=8, seed=3))
    run(Tuner(PRIOR, tmp_path / "j", budget=stop, seed=3))
    assert run(Tuner(PRIOR, tmp_path / "j", budget=8, seed=3)) == whole


def test_configurations_are_plain_values_of_the_space(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    for x in tuner.ask_batch(4):
        assert json.loads(json.dumps(x)) == x
        PRIOR.space.encode([x])
        assert isinstance(x["depth"], int)
    assert len(tuner.pending) == 4


def test_a_failed_region_is_left():
    tuner = Tuner(PRIOR, budget=15)
    for x in tuner:
        broken = abs(np.log10(x["rate"]) + 2) < 0.5
        tuner.tell(x, None if broken else measure(x), failed=bool(broken), reason="diverged")
    assert tuner.trials.observed  # others were tried
    assert {t.note.reason for t in tuner.trials.failed} == {"diverged"}
    assert tuner.run.spent == 15


def test_a_value_as_good_as_infinite_has_failed_and_breaks_nothing():
    tuner = Tuner(PRIOR)
    tuner.tell(tuner.ask(), 1e300)
    tuner.tell(tuner.ask(), -1e51)
    tuner.tell(tuner.ask(), 0.5)
    assert [trial.note.reason for trial in tuner.trials.failed] == [
        "the value is 1e+300",
        "the value is -1e+51",
    ]
    assert tuner.best.value == 0.5
    assert tuner.certificate.reason  # a rule that saw failures was not replayed
    assert tuner.ask()


def test_a_warm_start_is_taken_in_once(tmp_path):
    known = [{"rate": 0.01, "depth": 6, "kind": "adam"}, {"rate": 0.1, "depth": 2, "kind": "sgd"}]
    values = [measure(x) for x in known]
    tuner = Tuner(PRIOR, tmp_path / "j", budget=3)
    assert tuner.observe(known, values) == 2
    assert tuner.run.spent == 0  # brought along, not paid for
    again = Tuner(PRIOR, tmp_path / "j", budget=3)
    assert again.observe(known, values) == 0
    assert again.best.x == known[0]
    assert again.ask() not in known


def test_queued_configurations_come_first_and_dropped_ones_cost_nothing():
    tuner = Tuner(PRIOR, budget=2)
    wish = {"rate": 0.5, "depth": 3, "kind": "sgd"}
    tuner.enqueue([wish])
    assert tuner.ask() == wish
    tuner.drop(wish)
    assert tuner.run.spent == 0
    assert tuner.ask() != wish
    with pytest.raises(InputError, match="is not pending"):
        tuner.drop(wish)


def test_candidates_of_a_frame_are_those_of_its_rows(tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = [{"rate": r, "depth": d, "kind": "adam"} for r in (0.001, 0.01) for d in (4, 6)]
    noted = [{**row, "note": "not a parameter"} for row in rows]
    told = run(Tuner(PRIOR, tmp_path / "j", candidates=rows))
    for frame in (pandas.DataFrame(noted), polars.DataFrame(noted)):
        again = Tuner(PRIOR, tmp_path / "j", candidates=frame)  # refused if settings differed
        assert [(t.point, t.value) for t in again.trials.observed] == told
    with pytest.raises(InputError, match=r"expected .*frame"):
        Tuner(PRIOR, candidates=7)


def test_a_task_that_contradicts_the_history_rings_once_and_the_rest_is_a_cold_start(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=25)
    for x in tuner:
        # Upside down and far away: the past optimum is the worst place now.
        tuner.tell(x, 5.0 - 3 * measure(x))
    assert tuner.alarm is not None
    assert tuner.trust < 1e-12
    assert tuner.certificate.regret == inf
    assert tuner.alarm.reason in tuner.certificate.reason
    kinds = [json.loads(line)["event"] for line in (tmp_path / "j").read_text().splitlines()]
    assert kinds.count("alarm") == 1
    cold = Tuner(replace(PRIOR, task_gp=None, calibration=None), budget=25)
    for x in cold:
        cold.tell(x, 5.0 - 3 * measure(x))
    assert tuner.best.value > cold.best.value - 0.2


def test_a_task_like_the_past_ones_rings_no_alarm_and_the_band_covers_it():
    tuner = Tuner(PRIOR, budget=12)
    run(tuner)
    assert tuner.alarm is None
    certificate = tuner.certificate
    assert certificate.lower <= measure(certificate.x) <= certificate.upper
    assert 0.9 - measure(certificate.x) <= certificate.regret


@pytest.mark.parametrize(
    ("change", "message"), [({"seed": 1}, "seed = 0"), ({"delta": 0.4}, "delta = 0.2")]
)
def test_a_journal_refuses_other_settings(tmp_path, change, message):
    Tuner(PRIOR, tmp_path / "j")
    with pytest.raises(InputError, match=message):
        Tuner(PRIOR, tmp_path / "j", **change)


def test_bad_input_changes_nothing(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    before = (tmp_path / "j").read_bytes()
    for bad in ({"rate": 7.0}, {"rate": 0.1, "depth": 2, "kind": 3}, {"rate": "x"}, 3):
        with pytest.raises(InputError):
            tuner.tell(bad, 0.1)
    with pytest.raises(InputError, match="failed=True"):
        tuner.tell({"rate": 0.1, "depth": 2, "kind": "sgd"})
    with pytest.raises(InputError, match="stop_at"):
        Tuner(PRIOR, stop_at=0.0)
    with pytest.raises(InputError, match="stop_at needs a certificate"):
        Tuner(PRIOR, stop_at=0.1, delta=0.01)
    assert (tmp_path / "j").read_bytes() == before


def test_a_learned_kernel_decides_without_betting_on_its_selection(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = [
        {"task": s, "x": x, "y": a * x**2 + 0.05 * rng.normal()}
        for s, a in enumerate(rng.normal(size=12))
        for x in rng.uniform(-1, 1, 15)
    ]
    columns = {name: [row[name] for row in rows] for name in ("task", "x", "y")}
    history = mk.History.from_frame(pd.DataFrame(columns), task="task", output="y")
    base = mk.kernels.legendre(6, scaling="l2")
    learned = mk.learn_kernel(history, base, noise_std=0.05)
    with pytest.raises(mk.InputError, match=r"needs norm_bound.*twice that is usual"):
        mk.Tuner(learned, tmp_path / "none.jsonl")
    tuner = mk.Tuner(KernelSource(learned, norm_bound=3.0), tmp_path / "run.jsonl")
    sequence = tuner.optimizer.model.certified
    np.testing.assert_array_equal(sequence.kernel.eta, learned.confidence_kernel(3.0).eta)
    assert sequence.delta_learning == learned.delta


GOOD = [{"rate": 0.01, "depth": 6, "kind": "adam"}, {"rate": 0.02, "depth": 5, "kind": "adam"}]
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
