"""Property E: the choice of lambda."""

from __future__ import annotations

from quick_figures import check_picture, failing, measured

ONLY_ABOVE = "mu below the threshold / oracle"


def test_lambda_matters_little_up_to_a_tenth():
    assert failing("fig10", slack={"mu max/min up to 0.1": 0.05}) == [ONLY_ABOVE]


def test_below_the_threshold_the_kernel_is_dense_and_the_regret_unchanged():
    numbers = measured("fig10")
    assert numbers["size at the smallest lambda"] >= 15
    assert numbers[ONLY_ABOVE] < 1.25


def test_the_literal_scaling_breaks_it():
    assert "mu max/min up to 0.1" in failing("fig10", "literal")


def test_picture():
    check_picture("fig10")
