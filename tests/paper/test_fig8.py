from __future__ import annotations

from quick_figures import check_picture, failing, measured


def test_positive_coefficients_put_every_maximum_at_one():
    assert failing("fig8") == []
    assert failing("fig8", "literal") == []


def test_minima_differ_from_function_to_function():
    assert measured("fig8")["distinct minima"] >= 3


def test_signed_coefficients_do_not():
    assert measured("fig8", "signed")["maximum at x = 1"] < 0.6


def test_picture():
    check_picture("fig8")
