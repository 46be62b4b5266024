"""Every parameter type: to the numeric domain and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Space, infer_space

ANY = Float("any", 0, 1)
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


@given(
    low=st.integers(-50, 50),
    step=st.sampled_from([1, 2, 3, 7, 0.1, 0.3, 0.25]),
    steps=st.integers(1, 9),
    rest=st.sampled_from([0.0, 0.3, 0.9]),
    share=st.one_of(unit, st.sampled_from([0.0, 1.0])),
)
def test_every_decoded_value_is_on_the_grid_and_within_even_if_the_range_ends_between(
    low, step, steps, rest, share
):
    whole = isinstance(step, int)
    high = low + steps * step + (int(rest * step) if whole else rest * step)
    parameter = (Integer if whole else Float)("x", low, high, step=step)
    (value,) = parameter.decode(np.array([[2 * share - 1]]))
    k = (value - low) / step
    assert abs(k - round(k)) < 1e-9
    assert low <= value <= high
    assert parameter.decode(parameter.encode([value])) == [pytest.approx(value, abs=1e-12)]
    (top,) = parameter.decode(np.array([[1.0]]))
    assert high - top < step * (1 - 1e-9) or top == high


def test_values_off_the_grid_are_refused_unless_asked_for():
    for parameter, on, off in (
        (Integer("x", 1, 6, step=2), 5, 6),
        (Float("x", 0, 1, step=0.3), 3 * 0.3, 1.0),
        (Float("x", 1e6, 1e6 + 1, step=0.1), 1e6 + 3 * 0.1, 1e6 + 0.35),
    ):
        parameter.encode([on])
        with pytest.raises(InputError, match=r"'x' is .*step.*extrapolate=True"):
            parameter.encode([on, off])
        assert parameter.encode([off], extrapolate=True).shape == (1, 1)


@given(
    value=st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-1, 1), st.text(max_size=3)),
    kind=st.sampled_from([Fixed, Ordinal, Categorical]),
)
def test_numpy_scalars_and_tuples_are_those_of_python_after_json(value, kind):
    (theirs,) = np.array([value])
    values = (theirs, (1, (theirs, 2)))
    parameters = [Fixed("c", v) for v in values] if kind is Fixed else [kind("c", values)]
    for parameter in parameters:
        again = Space.from_dict(json.loads(json.dumps(Space((parameter, ANY)).to_dict())))["c"]
        assert again == parameter
        said = (parameter.value,) if kind is Fixed else parameter.values
        told = json.loads(json.dumps(said))  # tuples have become lists
        np.testing.assert_array_equal(parameter.encode(told), parameter.encode(said))


@given(u=st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
@pytest.mark.parametrize(
    "parameter",
    [
        Float("x", -3, 5),
        Float("x", 1e-3, 10, log=True),
        Integer("x", 1, 9),
        Integer("x", 1, 9, step=3),
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
    with pytest.raises(InputError, match=r"'x' is 1\.5.*extrapolate=True"):
        parameter.encode([0.5, 1.5])
    assert parameter.decode(parameter.encode([1.5], extrapolate=True)) == [pytest.approx(1.5)]
    with pytest.raises(InputError, match="is -1"):
        Float("x", 1, 10, log=True).encode([-1.0], extrapolate=True)


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
        lambda: Float("x", 1, 2, 0.1),  # a step where log stands
        lambda: Integer("x", 0.5, 3),
        lambda: Categorical("x", ("a", "a")),
        lambda: Ordinal("x", ("a",)),
    ],
)
def test_impossible_parameters_are_refused_by_name(make):
    with pytest.raises(InputError, match="'x'"):
        make()


def test_unknown_choices_and_broken_integers_are_refused():
    with pytest.raises(InputError, match="expected one of 'a', 'b'"):
        Categorical("x", ("a", "b")).encode(["c"])
    with pytest.raises(InputError, match="whole number"):
        Integer("x", 0, 3).encode([1.5])
    with pytest.raises(InputError, match="fixed at 3"):
        Fixed("x", 3).encode([4])
    nothing = pytest.importorskip("pandas").NA
    for parameter in (Categorical("x", ("a", "b")), Fixed("x", 3), Float("x", 0, 1)):
        with pytest.raises(InputError, match="<NA>"):
            parameter.encode([nothing])


@pytest.mark.parametrize(
    ("values", "log", "digits"),
    [
        ([20.0, 49.5, 80.0], False, 1),
        ([0.5, 0.8, 1.0], False, 2),  # one more, as one decimal leaves six values
        ([1e-4, 3e-3, 0.25], True, 2),
        ([0.1234567891, 0.5, 0.9], False, None),
    ],
)
def test_numbers_of_people_are_suggested_with_as_many_digits(values, log, digits):
    space, _ = infer_space({"x": values}, log=["x"] if log else [])
    assert space["x"].digits == digits
    assert space["x"] == Float("x", min(values), max(values), log)
    found = space.decode(np.linspace(-1, 1, 101)[:, None])
    assert space.decode(space.encode([{"x": v} for v in values])) == [{"x": v} for v in values]
    if digits is not None:
        form = f".{digits}g" if log else f".{digits}f"
        assert all(row["x"] == float(format(row["x"], form)) for row in found)
    near = space.nearest(np.random.default_rng(0).uniform(-1, 1, (50, 1)))
    np.testing.assert_allclose(space.nearest(near), near, atol=1e-12)
    assert Space.from_dict(space.to_dict())["x"].digits == digits


def test_rounding_stays_within_the_range_and_refuses_no_other_value():
    rounded = Float("x", 0.0, 1.0, digits=1)
    assert rounded.encode([0.123])[0, 0] == pytest.approx(-0.754)
    inside = Float("x", 0.04, 0.96, digits=1).decode(np.array([[-0.999], [0.999]]))
    assert inside == [0.04, 0.96]
    with pytest.raises(InputError, match="has digits -1"):
        Float("x", 0.0, 1.0, digits=-1)


def test_a_range_beyond_what_is_known_says_which_part_of_it_is_possible():
    known = Float("heat", 30, 100)
    assert (known.between(60, 80).low, known.between(60, 80).high) == (60, 80)
    with pytest.raises(InputError, match="within 30 to 100, which past tasks have; of it, 60 to"):
        known.between(60, 120)
    with pytest.raises(InputError, match=r"which past tasks have$"):
        known.between(110, 120)
