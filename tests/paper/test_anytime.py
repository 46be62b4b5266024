"""Property G: anytime coverage."""

from __future__ import annotations

from quick_figures import check_picture, failing, measured


def test_every_promise_is_kept_and_the_default_is_sharp():
    assert failing("anytime", slack={"coverage theorem, sum": 0.15}) == []


def test_theorem_fails_where_the_support_was_lost():
    numbers = measured("anytime", "literal")
    assert numbers["coverage theorem, c1"] < 0.5
    assert numbers["coverage theorem, true"] == 1.0


def test_the_alarm_mends_what_a_lost_support_broke():
    numbers = measured("anytime", "literal")
    assert numbers["coverage dmm"] < 0.9 <= numbers["coverage at the end dmm"]


def test_picture():
    check_picture("anytime")
