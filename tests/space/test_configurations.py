"""`Space` is the one door for configurations: every form of one has one point and one key."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import metakel as mk
from metakel.errors import InputError
from metakel.search import SearchSpace
from metakel.space import Categorical, Condition, Fixed, Float, Integer, Ordinal, Space

SPACE = Space(
    (
        Categorical("kind", ("A", "B")),
        Float("lr", 1e-3, 1.0, log=True),
        Integer("depth", 1, 9),
        Categorical("flag", (False, True)),
        Ordinal("size", (1, 2, 4)),
        Fixed("machine", "x1"),
    ),
    (Condition("depth", "kind", ("A",)),),
)
WITH = {"kind": "A", "lr": 0.1, "depth": 4, "flag": True, "size": 2, "machine": "x1"}
WITHOUT = {"kind": "B", "lr": 0.1, "flag": False, "size": 4, "machine": "x1"}


@pytest.mark.parametrize("row", [WITH, WITHOUT])
def test_text_comes_back_as_the_values_that_were_written(row):
    written = {name: str(row.get(name, "")) for name in SPACE.names}
    assert SPACE.parse_row({**written, "remark": "not a parameter"}) == row
    german = {**written, "lr": "0,1 %"}
    assert SPACE.parse_row(german) == row
    assert SPACE.missing(SPACE.parse_row(written)) == []


def test_an_empty_cell_is_missing_only_where_the_parameter_is_there():
    assert SPACE.missing(SPACE.parse_row({"kind": "B", "lr": 0.1, "depth": None})) == [
        "flag",
        "size",
    ]
    assert SPACE.missing(SPACE.parse_row({**WITH, "depth": float("nan")})) == ["depth"]
    none = Space((Categorical("cap", (None, "log")), Float("x", 0, 1)))
    assert none.parse_row({"cap": None, "x": 0}) == {"cap": None, "x": 0.0}


def test_equal_configurations_have_one_key():
    same = [
        WITH,
        {**WITH, "depth": 4.0, "flag": "true", "size": np.int64(2)},
        {**{k: v for k, v in WITH.items() if k != "machine"}, "lr": np.float64(0.1)},
    ]
    assert len({SPACE.key(row) for row in same}) == 1
    assert len({SPACE.key(row) for row in (WITHOUT, {**WITHOUT, "depth": 3})}) == 1  # not there
    others = [{**WITH, "depth": 5}, {**WITH, "kind": "B"}, {**WITH, "flag": False}]
    assert len({SPACE.key(row) for row in (WITH, *others)}) == 4


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_every_form_gives_the_same_points(frame):
    rows = [WITH, WITHOUT]
    X = SPACE.encode(rows)
    table = frame({name: [row.get(name) for row in rows] for name in SPACE.names})
    np.testing.assert_array_equal(SPACE.encode(table), X)
    assert [SPACE.normalize(row) for row in SPACE.rows(table)] == rows
    np.testing.assert_array_equal(SPACE.encode(WITHOUT), X[1:])
    assert [SPACE.normalize(row) for row in rows] == rows


def test_tuples_are_values_where_they_are_choices():
    space = Space((Categorical("layers", ((64,), (64, 32))), Float("x", 0, 1)))
    row = {"layers": (64, 32), "x": 0.5}
    np.testing.assert_array_equal(space.encode(row), space.encode([row]))
    assert space.key(row) == space.key({"layers": [64, 32], "x": 0.5})


def test_an_array_has_a_column_for_every_parameter():
    space = Space((Float("a", 0, 1), Integer("b", 1, 5)))
    assert space.rows(np.array([[0.5, 2.0]])) == [{"a": 0.5, "b": 2.0}]
    with pytest.raises(ValueError, match=r"expected \(n, 2\) with columns a, b"):
        space.encode(np.zeros((3, 3)))


def test_a_configuration_is_shown_without_what_is_not_there():
    assert SPACE.show(WITHOUT) == "kind=B  lr=0.1  flag=False  size=4  machine=x1"
    assert SPACE.cells(WITHOUT) == ["B", "0.1", "", "False", "4", "x1"]


def test_rounding_gives_a_configuration_of_the_space():
    row = SPACE.round({**WITH, "depth": 12, "lr": 0.5})
    assert row["depth"] == 9
    SPACE.check(row)
    with pytest.raises(InputError, match="'depth' is 12"):
        SPACE.check({**WITH, "depth": 12})


def test_what_is_no_configuration_is_refused():
    for wrong in (3, "kind=A", [3]):
        with pytest.raises(InputError, match="expected a dict"):
            SPACE.rows(wrong)
    with pytest.raises(InputError, match="masked"):
        SPACE.normalize({"lr": np.ma.masked})
    with pytest.raises(InputError, match="'lr' is 'fast'; expected float in"):
        SPACE.parse("lr", "fast")
    with pytest.raises(InputError, match=r"may be 1\.234 or 1234"):
        SPACE.parse("lr", "1,234")


# A held parameter is there


NESTED = Space(
    (
        Categorical("model", ("forest", "net", "line")),
        Categorical("opt", ("sgd", "adam")),
        Float("momentum", 0, 1),
        Integer("layers", 1, 4),
        Integer("width2", 8, 64),
    ),
    (
        Condition("opt", "model", ("net", "line")),
        Condition("momentum", "opt", ("sgd",)),
        Condition("layers", "model", ("net",)),
        Condition("width2", "layers", (2, 3, 4)),
    ),
)


@pytest.mark.parametrize(
    ("fixed", "model", "others"),
    [
        ({"momentum": 0.9}, {"net", "line"}, {"opt": {"sgd"}}),
        ({"layers": 3}, {"net"}, {}),
        ({"width2": 16}, {"net"}, {"layers": {2, 3, 4}}),
        ({"model": "line"}, {"line"}, {}),
        ({"opt": "adam", "model": "net"}, {"net"}, {"opt": {"adam"}}),
    ],
)
def test_a_held_parameter_holds_its_parents_active(fixed, model, others):
    domain = SearchSpace(NESTED, NESTED, fixed)
    rows = [domain.decode(x) for x in domain.sample(np.random.default_rng(0), 60)]
    for row in rows:
        assert {name: row[name] for name in fixed} == fixed
        NESTED.check(row)
    assert {row["model"] for row in rows} == model
    for name, values in others.items():
        assert {row[name] for row in rows} == values


def test_what_cannot_be_held_together_is_refused():
    with pytest.raises(InputError, match="'momentum' is held, and is there only where opt is sgd"):
        NESTED.holding({"momentum": 0.5, "opt": "adam"})
    assert NESTED.holding({"model": "net"}) is NESTED


def test_a_prior_obeys_a_held_child():
    rng = np.random.default_rng(0)
    columns = {name: [] for name in ("task", "kind", "lr", "depth", "auc")}
    for s in range(6):
        for _ in range(20):
            kind, lr, depth = "AB"[rng.integers(2)], rng.random(), int(rng.integers(1, 10))
            auc = 0.8 - (lr - 0.4) ** 2 - (0.01 * abs(depth - 5) if kind == "A" else 0.05)
            cells = (f"t{s}", kind, lr, depth if kind == "A" else None, auc + 0.01 * s)
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    history = mk.History.from_frame(columns, task="task", output="auc")
    prior = mk.learn_prior(history, certify="none")
    optimizer = prior.optimizer(fixed={"depth": 2})
    for value in (0.7, 0.6, 0.5):
        row = optimizer.ask()
        assert row["depth"] == 2
        assert row["kind"] == "A"
        optimizer.tell(row, value)
