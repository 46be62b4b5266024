"""Parameters that are there only with some choices of another one."""

from __future__ import annotations

import numpy as np
import pytest

from metakel.errors import InputError
from metakel.search import SearchSpace
from metakel.space import Categorical, Condition, Float, Integer, Space

SPACE = Space(
    (
        Categorical("model", ("forest", "linear", "boosting")),
        Integer("depth", 1, 9),
        Float("rate", 0.01, 1.0, log=True),
        Float("penalty", 0.1, 10.0),
    ),
    (
        Condition("depth", "model", ("forest", "boosting")),
        Condition("rate", "model", ("boosting",)),
    ),
)
ROWS = [
    {"model": "forest", "depth": 3, "penalty": 1.0},
    {"model": "linear", "penalty": 2.0},
    {"model": "boosting", "depth": 9, "rate": 0.1, "penalty": 0.1},
]


def test_configurations_go_there_and_back_without_what_is_not_there():
    back = SPACE.decode(SPACE.encode(ROWS))
    for row, found in zip(ROWS, back, strict=True):
        assert found == pytest.approx(row)


def test_what_is_not_there_does_not_tell_points_apart():
    one, two = SPACE.encode([ROWS[1], {**ROWS[1], "depth": 7, "rate": 0.5}])
    np.testing.assert_array_equal(one, two)
    columns = {name: [row.get(name) for row in ROWS] for name in SPACE.names}
    np.testing.assert_array_equal(SPACE.encode(columns), SPACE.encode(ROWS))


def test_draws_and_neighbors_are_configurations():
    X = SPACE.sample(np.random.default_rng(0), 200)
    for points in (X, SPACE.nearest(X + 0.05)):
        np.testing.assert_allclose(SPACE.encode(SPACE.decode(points)), points, atol=1e-12)
        np.testing.assert_array_equal(SPACE.settled(points), points)


def test_it_is_stored_and_said():
    assert Space.from_dict(SPACE.to_dict()) == SPACE
    assert "rate     float in [0.01, 1], log scale, only where model is boosting" in str(SPACE)
    text = """
    [model]
    type = "categorical"
    values = ["forest", "linear"]
    [depth]
    type = "integer"
    low = 1
    high = 9
    when = {model = "forest"}
    """
    assert Space.from_toml(text).conditions == (Condition("depth", "model", ("forest",)),)


def test_a_condition_of_a_condition():
    space = Space(
        (
            Categorical("net", ("deep", "flat")),
            Categorical("drop", (True, False)),
            Float("share", 0, 1),
        ),
        (Condition("share", "drop", (True,)), Condition("drop", "net", ("deep",))),
    )
    rows = [
        {"net": "flat"},
        {"net": "deep", "drop": False},
        {"net": "deep", "drop": True, "share": 0.25},
    ]
    assert space.decode(space.encode(rows)) == rows


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ((Condition("depth", "nothing", (1,)),), "the space has model, depth, rate, penalty"),
        ((Condition("depth", "model", ("knn",)),), "'model' is 'knn'; expected one of"),
        ((Condition("depth", "model", ()),), "for no value of 'model'"),
        ((Condition("depth", "rate", (0.1,)), Condition("rate", "depth", (2,))), "in a circle"),
        ((Condition("rate", "depth", (1,)), Condition("rate", "depth", (2,))), "two conditions"),
    ],
)
def test_conditions_that_cannot_be(conditions, message):
    with pytest.raises(InputError, match=message):
        Space(SPACE.parameters, conditions)


def test_what_has_to_be_there_is_asked_for():
    with pytest.raises(InputError, match="'depth' is missing; it is there where model is forest"):
        SPACE.encode([{"model": "forest", "penalty": 1.0}])


@pytest.mark.parametrize("other", [None, Float("rate", 0.001, 2.0, log=True)])
def test_a_search_finds_the_best_branch_and_its_parameters(other):
    """On its own space, and on one that the model sees through other ranges."""
    wide = SPACE if other is None else SPACE.among([*SPACE.parameters[:2], other, SPACE["penalty"]])
    domain = SearchSpace(SPACE, wide, {}, False, None)
    best = {"model": "boosting", "depth": 4, "rate": 0.3, "penalty": 5.0}
    target = wide.encode([best])[0]

    def function(X):
        np.testing.assert_allclose(wide.settled(X), X)  # nothing else is ever judged
        return -((X - target) ** 2).sum(axis=1)

    x, _ = domain.maximize(function, np.random.default_rng(0))
    found = domain.decode(x)
    assert found["model"] == "boosting"
    assert found["depth"] == 4
    assert found["rate"] == pytest.approx(0.3, rel=0.2)
