"""Checks of numbers and arrays: what passes comes back as floats, and the rest is named."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from metakel._arrays import (
    TINY,
    as_number,
    as_numbers,
    as_points,
    as_values,
    check_count,
    is_integer,
    is_number,
    positive,
)
from metakel.errors import InputError, ShapeError


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int8(2), Fraction(2)])
def test_numbers_of_any_library_become_floats(value):
    assert is_number(value)
    for checked in (as_number("x", value), positive("x", value)):
        assert (checked, type(checked)) == (2.0, float)


@pytest.mark.parametrize("value", [True, "2", None, [2], np.nan, np.inf, -np.inf, 1 + 0j])
def test_what_is_not_a_finite_number_is_named(value):
    with pytest.raises(InputError, match=r"^x is .*; expected a number"):
        as_number("x", value)
    with pytest.raises(InputError, match=r"^x is .*; expected a positive number"):
        positive("x", value)


@pytest.mark.parametrize(
    ("bounds", "value", "expected"),
    [
        ((0, 1), 1, r"a number in \[0, 1\)"),
        ((0,), -1e-9, "a number >= 0"),
        ((TINY,), 0, "a number > 0"),
    ],
)
def test_the_range_is_in_the_message(bounds, value, expected):
    with pytest.raises(InputError, match=f"expected {expected}$"):
        as_number("x", value, *bounds)


@pytest.mark.parametrize("value", [1e-71, 1e71])
def test_positive_numbers_leave_room_for_their_powers(value):
    with pytest.raises(InputError, match="Use other units"):
        positive("x", value)


def test_integers_are_no_floats_or_flags():
    assert is_integer(3)
    assert is_integer(np.int64(3))
    assert not is_integer(3.0)
    assert not is_integer(True)
    check_count("n", 1)
    for value in (0, 1.0, True, "1"):
        with pytest.raises(InputError, match=r"n is .*; expected an integer >= 1"):
            check_count("n", value)


def test_arrays_are_copied_and_checked_for_shape_and_range():
    given = np.array([[1.0, 2.0]])
    found = as_numbers("x", given, (None, 2))
    found[:] = 0
    assert_array_equal(given, [[1, 2]])
    with pytest.raises(ShapeError, match=r"x has shape \(1, 2\); expected \(n, 3\)"):
        as_numbers("x", given, (None, 3))
    with pytest.raises(InputError, match=r"x holds 2.0; expected numbers in \[0, 2\)"):
        as_numbers("x", given, low=0, below=2)
    with pytest.raises(InputError, match=r"x holds nan; expected numbers, not inf or nan"):
        as_numbers("x", [np.nan])
    for junk in ("a", [[1], [2, 3]], {"a": 1}):
        with pytest.raises(InputError, match=r"x is .*; expected numbers"):
            as_numbers("x", junk)


def test_points_and_values_name_the_place_and_the_index():
    assert as_points([1, 2], "here").shape == (2, 1)
    assert as_values([[1], [2]], 2, "here").shape == (2,)
    with pytest.raises(InputError, match=r"here: X holds nan at index \(0, 1\)"):
        as_points([[0, np.nan]], "here")
    with pytest.raises(InputError, match="here: y holds inf at index 1"):
        as_values([0, np.inf], 2, "here")
    with pytest.raises(ShapeError, match="X has 3 rows but y has shape"):
        as_values([0, 1], 3, "here")
