"""Every parameter type: to the numeric domain and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal

finite = st.floats(-1e6, 1e6, allow_nan=False)
unit = st.floats(0, 1)


@given(low=finite, width=st.floats(1e-3, 1e6), shares=st.lists(unit, min_size=1, max_size=20))
def test_plain_floats_come_back_to_rounding_and_the_ends_exactly(low, width, shares):
    parameter = Float("x", low, low + width)
    values = [min(low + share * width, low + width) for share in shares]
    codes = parameter.encode([*values, parameter.low, parameter.high])
    back = parameter.decode(codes)
    assert (np.abs(codes) <= 1 + 1e-9).all()
    np.testing.assert_allclose(back[:-2], values, rtol=0, atol=1e-9 * max(1, abs(low) + width))
    assert back[-2:] == [parameter.low, parameter.high]


@given(low=st.floats(1e-12, 1e6), decades=st.floats(0.5, 15), shares=st.lists(unit, min_size=1))
def test_log_floats_come_back_to_rounding_and_are_linear_in_the_log(low, decades, shares):
    parameter = Float("x", low, low * 10**decades, log=True)
    values = [min(low * 10 ** (share * decades), parameter.high) for share in shares]
    codes = parameter.encode(values)[:, 0]
    np.testing.assert_allclose(parameter.decode(codes[:, None]), values, rtol=1e-9)
    np.testing.assert_allclose(codes, 2 * np.array(shares) - 1, atol=1e-9)


@given(
    low=st.integers(-(10**6), 10**6), width=st.integers(1, 10**6), data=st.data(), log=st.booleans()
)
def test_integers_come_back_exactly_as_int(low, width, data, log):
    low = abs(low) + 1 if log else low
    parameter = Integer("k", low, low + width, log=log)
    values = data.draw(st.lists(st.integers(low, low + width), min_size=1, max_size=20))
    back = parameter.decode(parameter.encode(values))
    assert back == values
    assert all(type(value) is int for value in back)


@given(
    values=st.lists(
        st.one_of(st.integers(), st.text(max_size=5)), min_size=2, max_size=8, unique=True
    ),
    data=st.data(),
)
def test_choices_come_back_exactly(values, data):
    drawn = data.draw(st.lists(st.sampled_from(values), min_size=1))
    for kind in (Ordinal, Categorical):
        parameter = kind("c", tuple(values))
        codes = parameter.encode(drawn)
        assert parameter.decode(codes) == drawn
        assert codes.shape == (len(drawn), parameter.width)


@given(share=unit)
def test_a_step_is_kept(share):
    parameter = Float("x", 0.1, 0.9, step=0.2)
    (value,) = parameter.decode(np.array([[2 * share - 1]]))
    assert min(abs(value - grid) for grid in (0.1, 0.3, 0.5, 0.7, 0.9)) < 1e-12


@given(u=st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
@pytest.mark.parametrize(
    "parameter",
    [
        Float("x", -3, 5),
        Float("x", 1e-3, 10, log=True),
        Integer("x", 1, 9),
        Ordinal("x", ("s", "m", "l")),
        Categorical("x", ("a", "b", "c")),
        Fixed("x", 3),
    ],
    ids=lambda p: p.kind,
)
def test_what_is_sampled_lies_in_the_range(parameter, u):
    columns = parameter.sample(np.array(u))
    assert columns.shape == (len(u), parameter.width)
    values = parameter.decode(columns)
    np.testing.assert_allclose(
        parameter.encode(values), parameter.encode(parameter.decode(parameter.encode(values)))
    )


def test_values_outside_are_refused_unless_asked_for():
    parameter = Float("x", 0, 1)
    with pytest.raises(InputError, match=r"'x' is 1\.5.*outside=True"):
        parameter.encode([0.5, 1.5])
    assert parameter.decode(parameter.encode([1.5], outside=True)) == [pytest.approx(1.5)]
    with pytest.raises(InputError, match="is -1"):
        Float("x", 1, 10, log=True).encode([-1.0], outside=True)


@pytest.mark.parametrize("bad", ["a", None, float("nan"), True])
def test_a_number_must_be_a_number(bad):
    with pytest.raises(InputError, match="'x'"):
        Float("x", 0, 1).encode([bad])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Float("x", 1, 1),
        lambda: Float("x", 0, 1, log=True),
        lambda: Float("x", 0, 1, step=2),
        lambda: Integer("x", 0.5, 3),
        lambda: Categorical("x", ("a", "a")),
        lambda: Ordinal("x", ("a",)),
    ],
)
def test_impossible_parameters_are_refused_by_name(make):
    with pytest.raises(InputError, match="'x'"):
        make()


def test_unknown_choices_and_broken_integers_are_refused():
    with pytest.raises(InputError, match="expected one of a, b"):
        Categorical("x", ("a", "b")).encode(["c"])
    with pytest.raises(InputError, match="whole number"):
        Integer("x", 0, 3).encode([1.5])
    with pytest.raises(InputError, match="fixed at 3"):
        Fixed("x", 3).encode([4])
