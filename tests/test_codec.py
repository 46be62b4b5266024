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

import metakel as mk
from metakel._arrays import Array
from metakel._files import decode, encode
from metakel.errors import InputError
from metakel.gp.processes import LevelAndScale


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


def test_a_negative_order_in_a_kernel_file(tmp_path):
    path = tmp_path / "kernel.json"
    mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2")).save(path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["base"]["families"][0]["orders"][2] = [-7]
    path.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(InputError, match="order -7; expected 0 or more"):
        mk.KernelSum.load(path)


@pytest.mark.parametrize("spread", [1e9, 1e300, 0.0])
def test_scales_of_tasks_that_differ_beyond_all_measure(spread):
    with pytest.raises(InputError, match="spread is"):
        LevelAndScale(level=0.0, level_variance=1.0, scale=1.0, spread=spread)


def test_outputs_whose_squares_a_float_cannot_hold():
    values = np.random.default_rng(0).standard_normal(12)
    table = {"task": ["a"] * 6 + ["b"] * 6, "x": np.linspace(0, 1, 12), "score": 1e300 * values}
    history = mk.History.from_frame(table, task="task", output="score", minimize=False)
    with pytest.raises(InputError, match=r"expected at most 1e\+150, .*; divide all by a power"):
        mk.learn_prior(history, certify="none")


def test_outputs_whose_medians_are_zero():
    tasks = ["a"] * 6 + ["b"] * 6
    values = [0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 40.0, 80.0]
    table = {"task": tasks, "x": np.linspace(0, 1, 12).tolist(), "score": values}
    assert mk.History.from_frame(table, task="task", output="score", minimize=False).total == 12
