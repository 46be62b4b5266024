"""A true kernel that is missing costs regret at every step."""

from __future__ import annotations

from quick_figures import check_picture, measured


def test_regret_goes_on_where_a_true_kernel_is_missing():
    numbers = measured("misspecified")
    assert numbers["late missing"] > 1.3 * numbers["late true"]
    assert numbers["gap"] > 0.05


def test_picture():
    check_picture("misspecified")
