"""What is told: other settings than those asked, wrong values, numbers of any make."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from decimal import Decimal
from math import inf

import numpy as np
import pytest
from tuning_history import measure, small_prior

from metakel import InputError, Prior
from metakel.report import replay_journal
from metakel.tuner import Store, Tuner

PRIOR = small_prior(certified=True)
X = {"rate": 0.01, "depth": 6, "kind": "adam"}


def rounded(x: dict) -> dict:
    return {**x, "rate": float(f"{x['rate']:.1g}")}


def events(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def shown(tuner: Tuner) -> tuple[dict, dict]:
    return asdict(tuner.best), tuner.certificate.as_dict()


# What was really set


@pytest.mark.parametrize("by", ["configuration", "number"])
def test_a_suggestion_that_was_run_with_other_settings_is_done_and_counts_once(tmp_path, by):
    path = tmp_path / "j"
    for restart in range(4):  # a restart asks for nothing again
        tuner = Tuner(PRIOR, path, budget=3)
        for x in tuner:
            trial = tuner.trials.pending[0]
            assert trial.point == x
            settles = x if by == "configuration" else trial.number
            tuner.tell(rounded(x), measure(rounded(x)), instead_of=settles)
            if restart < 2:
                break
        assert tuner.pending == ()
    told = tuner.trials.observed
    assert tuner.run.spent == len(told) == len(tuner.trials) == 3
    assert all(trial.point == rounded(trial.point) for trial in told)
    assert all(trial.note.suggested not in (None, trial.point) for trial in told)
    assert tuner.best.x in [trial.point for trial in told]


def test_what_was_run_is_what_decides():
    """As if the tuner had asked for it, but for its number."""
    run, plain = Tuner(PRIOR), Tuner(PRIOR)
    run.tell(X, 0.3, instead_of=run.ask())
    plain.enqueue([X])
    plain.tell(plain.ask(), 0.3)
    assert run.ask() == plain.ask()
    assert run.certificate.as_dict() == plain.certificate.as_dict()


def test_only_a_pending_suggestion_can_be_settled(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    x = tuner.ask()
    tuner.tell(x, 71.3)
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(InputError, match="which is not pending"):
        tuner.tell(X, 0.5, instead_of=x)
    with pytest.raises(
        InputError, match=r"trial 0 is not pending: it has the value 71\.3; .*: none"
    ):
        tuner.tell(X, 0.5, instead_of=0)
    with pytest.raises(InputError, match="trial 7 is not pending: there is no such trial"):
        tuner.tell(X, 0.5, instead_of=7)
    assert (tmp_path / "j").read_bytes() == before


def test_a_suggestion_left_pending_by_what_was_told_is_said_once(caplog):
    tuner = Tuner(PRIOR)
    tuner.tell(X, 0.5)  # nothing is pending
    x = tuner.ask()
    tuner.tell(x, 0.5)
    assert caplog.text == ""
    tuner.ask()
    with caplog.at_level(logging.WARNING, "metakel"):
        for value in (0.1, 0.2):
            tuner.tell({**X, "depth": 3}, value)
    assert caplog.text.count("stays pending") == 1
    assert "instead_of=2" in caplog.text


# Wrong values


@pytest.mark.parametrize("wrong", [9.0, None])
def test_a_corrected_run_is_as_if_the_right_value_had_been_told(tmp_path, wrong):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    points = [tuner.ask() for _ in range(3)]
    for i, x in enumerate(points):
        tuner.tell(x, wrong if i == 1 else measure(x), failed=i == 1 and wrong is None)
    seen = shown(tuner)
    tuner.correct(1, measure(points[1]))
    right = Tuner(PRIOR, tmp_path / "right")
    for x in points:
        right.tell(x, measure(x))
    assert shown(tuner) == shown(right)
    assert wrong is None or shown(tuner) != seen
    assert (tuner.alarm, tuner.trust) == (right.alarm, right.trust) == (None, right.trust)
    assert [t.value for t in tuner.trials.observed] == [t.value for t in right.trials.observed]
    # A new process, and the report, say the same.
    again = Tuner(PRIOR, path)
    assert shown(again) == shown(tuner)
    assert again.ask() == again.pending[-1]
    replayed, expected = replay_journal(PRIOR, path), replay_journal(PRIOR, tmp_path / "right")
    assert replayed.alarm is None
    for name in ("best", "regret", "trust"):
        np.testing.assert_array_equal(getattr(replayed, name), getattr(expected, name))


def test_an_alarm_that_a_wrong_value_rang_is_taken_back_and_a_true_one_stays(tmp_path):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    x = tuner.ask()
    tuner.tell(x, 713.0)
    assert tuner.alarm is not None
    tuner.correct(x, measure(x))
    assert tuner.alarm is None
    assert tuner.trust > 0
    assert Tuner(PRIOR, path).alarm is None
    other = tmp_path / "k"
    tuner = Tuner(PRIOR, other)
    for x in tuner.ask_batch(2):
        tuner.tell(x, 713.0)
    Store.open(other).correct(1, 712.0)  # without a prior nobody knows whether it stands
    assert replay_journal(PRIOR, other).alarm is not None
    assert Tuner(PRIOR, other).alarm is not None
    assert tuner.alarm is not None
    kinds = [event["event"] for event in events(other)]
    assert kinds[kinds.index("corrected") :] == ["corrected", "alarm"]  # noted again, once
    assert kinds.count("alarm") == 2


def test_the_last_correction_counts_and_the_journal_only_grows(tmp_path):
    path = tmp_path / "j"
    tuner = Tuner(PRIOR, path)
    tuner.tell(X, 0.7)
    for value in (0.2, 0.3, 0.4):
        before = path.read_bytes()
        tuner.correct(X, value)
        assert path.read_bytes().startswith(before)
        assert tuner.best.value == Tuner(PRIOR, path).best.value == value
    tuner.correct(0, failed=True, reason="the sensor was off")
    assert tuner.trials.observed == ()
    assert tuner.trials.failed[0].note.reason == "the sensor was off"
    tuner.correct(0, 0.6)
    assert tuner.best.value == 0.6
    tuner.correct(0, inf)
    assert tuner.trials.failed[0].note.reason == "the value is inf"


def test_a_run_that_violates_a_constraint_still_does_with_another_value(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    tuner.tell(X, 0.2)
    tuner.tell({**X, "depth": 7}, 0.9, constraints={"memory": 1.0})
    tuner.correct({**X, "depth": 7}, 0.95)
    for each in (tuner, Tuner(PRIOR, tmp_path / "j")):
        assert [t.state for t in each.trials] == ["complete", "infeasible"]
        assert each.best.value == 0.2


def test_what_has_no_result_cannot_be_corrected(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j")
    x = tuner.ask()
    tuner.tell(X, 0.5)
    tuner.tell(X, 0.6)
    before = (tmp_path / "j").read_bytes()
    for which, message in [
        (0, "trial 0 has no result that could be corrected: it is pending"),
        (5, "there is no such trial"),
        (-1, "there is no such trial"),
        (x, "Say its number; with this result: none"),
        (X, "Say its number; with this result: 1, 2"),
    ]:
        with pytest.raises(InputError, match=message):
            tuner.correct(which, 0.1)
    with pytest.raises(InputError, match="failed=True"):
        tuner.correct(1)
    assert (tmp_path / "j").read_bytes() == before


# Failures that say nothing


def test_failures_taken_back_leave_no_trace_but_in_the_journal():
    tuner, fresh = Tuner(PRIOR, budget=3), Tuner(PRIOR, budget=3)
    for _ in range(3):
        tuner.tell(tuner.ask(), failed=True, reason="no such file")
    assert tuner.done
    assert tuner.drop_failed() == 3
    assert tuner.trials.failed == ()
    assert tuner.run.spent == 0
    tuner.tell(X, 0.5)
    fresh.tell(X, 0.5)
    np.testing.assert_allclose(tuner.predict([X]), fresh.predict([X]))
    for x in tuner:
        tuner.tell(x, measure(x))
    assert len(tuner.trials.observed) == 4


# Numbers of any make


@pytest.mark.parametrize(
    "value",
    [5, np.float32(5), np.int8(5), np.array(5.0), np.array([5.0]), np.array([[5]]), Decimal(5)],
)
def test_a_number_of_any_make_is_told(value):
    tuner = Tuner(PRIOR)
    tuner.tell(X, value)
    assert tuner.observe([{**X, "depth": 3}], [value]) == 1
    assert [trial.value for trial in tuner.trials.observed] == [5.0, 5.0]


@pytest.mark.parametrize(
    "value", [np.float32("inf"), np.float32("nan"), np.float64("-inf"), 10**400, np.array([inf])]
)
def test_a_number_of_any_make_that_is_not_finite_has_failed(tmp_path, value):
    tuner = Tuner(PRIOR, tmp_path / "j")
    tuner.tell(X, value)
    assert len(Tuner(PRIOR, tmp_path / "j").trials.failed) == 1
    assert tuner.observe([X], [value]) == 0  # it is known by now


@pytest.mark.parametrize("value", ["5.0", b"5", [5.0], np.array([1.0, 2.0]), 1j, {}, "nan"])
def test_what_is_no_number_is_refused_and_named(tmp_path, value):
    tuner = Tuner(PRIOR, tmp_path / "j")
    before = (tmp_path / "j").read_bytes()
    for act in (
        lambda: tuner.tell(X, value),
        lambda: tuner.observe([X], [value]),
        lambda: Store.open(tmp_path / "j").tell(X, value),
    ):
        with pytest.raises(InputError, match=r"the value is .*; expected a number") as caught:
            act()
        assert repr(value) in str(caught.value)
    assert (tmp_path / "j").read_bytes() == before


@pytest.mark.parametrize(
    ("given", "found"),
    [({"failed": "out of memory"}, r"failed is 'out of memory'; .*reason="), ({}, "no value")],
)
def test_a_value_or_that_there_is_none_is_told(given, found):
    tuner = Tuner(PRIOR)
    tuner.tell(X, 0.2)
    for act in (tuner.tell, tuner.correct):
        with pytest.raises(InputError, match=found):
            act(X, **given)
    assert [trial.value for trial in tuner.trials] == [0.2]


@pytest.mark.parametrize("prior", [3, None, {"a": 1}])
def test_what_is_no_prior_is_named(prior):
    with pytest.raises(InputError, match=rf"prior is a {type(prior).__name__}; .*Prior\.load"):
        Tuner(prior)
    assert isinstance(PRIOR, Prior)


@pytest.mark.parametrize("value", [np.ma.masked, np.ma.array(3.0, mask=True)])
def test_a_masked_value_is_missing_and_not_zero(value):
    tuner = Tuner(PRIOR)
    x = tuner.ask()
    with pytest.raises(InputError, match="masked"):
        tuner.tell(x, value)
    assert tuner.pending == (x,)


def test_a_masked_parameter_is_missing_and_not_zero():
    tuner = Tuner(PRIOR, extrapolate=True)
    x = tuner.ask()
    with pytest.raises(InputError, match="parameter 'depth' is masked"):
        tuner.tell({**x, "depth": np.ma.masked}, 1.0)
    assert tuner.pending == (x,)
