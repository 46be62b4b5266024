"""What is encoded comes back as it was; what does not fit is named with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from metakel._arrays import Array
from metakel._codec import decode, encode
from metakel.errors import InputError


class Shape:
    kind: ClassVar[str]


@dataclass(frozen=True)
class Circle(Shape):
    radius: float
    kind: ClassVar[str] = "circle"

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise InputError(f"radius is {self.radius}; expected a positive number")


@dataclass(frozen=True)
class Square(Shape):
    side: int
    area: int = 0
    kind: ClassVar[str] = "square"
    computed: ClassVar[tuple[str, ...]] = ("area",)

    @classmethod
    def restored(cls, stored: Mapping[str, Any], functions: Any) -> Square:
        return cls(area=stored["side"] ** 2, **stored)


@dataclass(frozen=True)
class Everything:
    name: str
    level: float
    flag: bool
    mode: Literal["fast", "slow"]
    limits: tuple[float, float] | None
    shapes: tuple[Shape, ...]
    by_name: Mapping[str, int]
    array: Array
    either: Circle | str


VALUE = Everything("a", inf, True, "fast", (-inf, 2.0), (Circle(1.5), Square(3, 9)), {"one": 1},
                   np.eye(2), "text")  # fmt: skip


def through_text(value, hint):
    return decode(hint, json.loads(json.dumps(encode(value), allow_nan=False)), "file")


def test_every_kind_of_field_comes_back():
    again = through_text(VALUE, Everything)
    for field in fields(Everything):
        mine, theirs = (getattr(value, field.name) for value in (VALUE, again))
        assert np.array_equal(mine, theirs) if field.name == "array" else mine == theirs
    assert isinstance(again.shapes, tuple)


NUMBERS = arrays(np.float64, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3))


@given(NUMBERS)
def test_arrays_come_back_bit_by_bit_with_their_shape(values):
    again = through_text(values, Array)
    assert again.shape == values.shape or (values.ndim == 1 and not values.size)
    np.testing.assert_array_equal(again, values)


@given(st.floats())
def test_numbers_come_back_finite_or_not(value):
    again = through_text(value, float)
    assert again == value or (np.isnan(again) and np.isnan(value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, r"file\.name is 3; expected str"),
        ({"level": "high"}, r"file\.level is 'high'; expected a number"),
        ({"flag": 1}, r"file\.flag is 1; expected bool"),
        ({"mode": "medium"}, r"file\.mode is 'medium'; expected 'fast' or 'slow'"),
        ({"limits": [1.0]}, r"file\.limits is \[1\.0\]; expected 2 entries"),
        ({"shapes": [{"kind": "disc"}]}, r"file\.shapes\[0\]\.kind is 'disc'; .* circle, square"),
        ({"shapes": [{"kind": "circle"}]}, r"file\.shapes\[0\] has no entry 'radius'"),
        ({"shapes": [{"kind": "circle", "radius": -1.0}]}, r"file\.shapes\[0\]: radius is -1"),
        ({"by_name": {"one": "1"}}, r"file\.by_name\.one is '1'; expected int"),
        ({"array": [[1.0], ["x"]]}, r"file\.array is .*; expected an array of numbers"),
        ({"either": {"kind": "circle", "radius": 0.0}}, r"file\.either: radius is 0"),
        ({"colour": "red"}, r"file has an unknown entry 'colour'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change, message):
    with pytest.raises(InputError, match=message):
        decode(Everything, {**encode(VALUE), **change}, "file")


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(InputError, match="a set cannot be stored"):
        encode({"a": {1, 2}})
