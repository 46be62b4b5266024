"""Spaces: configurations in and out, fixed parameters, TOML, Optuna, inference."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from metakel.errors import InputError, ShapeError
from metakel.search import SearchSpace
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Space, infer_space

SPACE = Space(
    (
        Float("rate", 1e-4, 1.0, log=True),
        Integer("depth", 1, 9),
        Categorical("kind", ("a", "b", "c")),
        Ordinal("size", ("small", "large")),
        Fixed("version", 2),
    )
)


def test_configurations_come_back_as_given():
    rows = SPACE.decode(SPACE.sample(np.random.default_rng(0), 50))
    X = SPACE.encode(rows)
    assert X.shape == (50, SPACE.d0) == (50, 6)
    for row, back in zip(rows, SPACE.decode(X), strict=True):
        assert back["rate"] == pytest.approx(row["rate"], rel=1e-12)
        assert {**back, "rate": 0} == {**row, "rate": 0}


def test_fixed_parameters_may_be_left_out_and_are_held_when_sampling():
    row = {"rate": 0.1, "depth": 3, "kind": "b", "size": "large"}
    assert SPACE.decode(SPACE.encode([row]))[0] == {**row, "rate": pytest.approx(0.1), "version": 2}
    domain = SearchSpace(SPACE, SPACE, {"kind": "c"})
    drawn = [domain.decode(x) for x in domain.sample(np.random.default_rng(0), 20)]
    assert {row["kind"] for row in drawn} == {"c"}
    assert len({row["depth"] for row in drawn}) > 3


def test_unknown_and_missing_parameters_are_named():
    row = {"rate": 0.1, "depth": 3, "kind": "b", "size": "large"}
    with pytest.raises(InputError, match="unknown parameter 'dpeth'"):
        SPACE.encode([{**row, "dpeth": 3}])
    with pytest.raises(InputError, match="'size' is missing"):
        SPACE.encode([{k: v for k, v in row.items() if k != "size"}])


def test_json_and_toml_give_the_same_space():
    assert Space.from_dict(json.loads(json.dumps(SPACE.to_dict()))) == SPACE
    text = """
        [rate]
        type = "float"
        low = 1e-4
        high = 1.0
        log = true
        [depth]
        type = "integer"
        low = 1
        high = 9
        [kind]
        type = "categorical"
        values = ["a", "b", "c"]
        [size]
        type = "ordinal"
        values = ["small", "large"]
        [version]
        type = "fixed"
        value = 2
    """
    assert Space.from_toml(text) == SPACE
    with pytest.raises(InputError, match="'rate' has type 'flaot'"):
        Space.from_toml('[rate]\ntype = "flaot"\n')
    with pytest.raises(InputError, match="'x' is 1; expected a table"):
        Space.from_toml("x = 1\n")
    with pytest.raises(InputError, match="values 'abc'; expected a list"):
        Space.from_toml('[x]\ntype = "categorical"\nvalues = "abc"\n')
    assert Space.from_dict(SPACE.to_dict()) == SPACE


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"\xff\xfe", "not text"),
        (b"[rate]\ntype = 'flaot'", "'rate' has type 'flaot'"),
        (b"x = " + 10**5 * b"[", "not TOML"),
    ],
)
def test_a_file_that_holds_no_space_is_named(tmp_path, content, message):
    file = tmp_path / "space.toml"
    if content is not None:
        file.write_bytes(content)
    for source in (file, str(file)):
        with pytest.raises(InputError, match=rf"space\.toml.*{message}|{message}.*space\.toml"):
            Space.from_toml(source)


def test_optuna_distributions_are_read():
    optuna = pytest.importorskip("optuna")
    d = optuna.distributions
    space = Space.from_optuna(
        {
            "rate": d.FloatDistribution(1e-4, 1.0, log=True),
            "depth": d.IntDistribution(1, 9),
            "kind": d.CategoricalDistribution(("a", "b", "c")),
            "step": d.FloatDistribution(0.0, 1.0, step=0.25),
            "only": d.IntDistribution(4, 4),
        }
    )
    assert space.parameters[:3] == SPACE.parameters[:3]
    assert space["step"] == Float("step", 0.0, 1.0, step=0.25)
    assert space["only"] == Fixed("only", 4)


def test_scales_are_inferred_with_a_note_or_as_told():
    rng = np.random.default_rng(0)
    columns = {
        "wide": (10 ** rng.uniform(-4, 0, 200)).tolist(),
        "plain": rng.uniform(1e-4, 1, 200).tolist(),
        "count": rng.integers(1, 5, 200).tolist(),
        "kind": rng.choice(["x", "y"], 200).tolist(),
        "same": [7] * 200,
    }
    space, notes = infer_space(columns)
    assert space["wide"].log
    assert not space["plain"].log
    assert isinstance(space["count"], Integer)
    assert space["kind"] == Categorical("kind", ("x", "y"))
    assert space["same"] == Fixed("same", 7)
    assert ["wide" in note for note in notes] == [True, False]
    assert "same" in notes[1]
    told, told_notes = infer_space(columns, log=["plain"])
    assert told["plain"].log
    assert not told["wide"].log
    assert len(told_notes) == 1


def test_free_text_is_not_taken_for_a_choice():
    with pytest.raises(InputError, match="'comment' holds text"):
        infer_space({"comment": [f"run {i}" for i in range(100)], "x": list(range(100))})


def test_what_no_file_can_hold_is_not_taken_for_a_choice():
    days = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 1)]
    with pytest.raises(InputError, match=r"'day' holds datetime.*expected numbers, text"):
        infer_space({"day": days, "x": [1, 2, 3]})


def test_one_point_is_decoded_in_a_list():
    X = SPACE.sample(np.random.default_rng(0), 3)
    for wrong in (X[0], X[:, :-1], np.float64(1)):
        with pytest.raises(ShapeError, match=r"decode: X has shape .*\(n, 6\), .* decode\(\[x\]\)"):
            SPACE.decode(wrong)
    assert SPACE.decode([X[0]]) == SPACE.decode(X)[:1]
    (row,) = SPACE.decode(X[:1])
    np.testing.assert_allclose(SPACE.encode([row]), X[:1])
    np.testing.assert_allclose(SPACE.encode(row), X[:1])


@pytest.mark.parametrize("name", ["Temperature (°C)", "stirring [rpm]", "time (h)"])
def test_whole_numbers_with_a_unit_are_suggested_whole_and_may_be_anything(name):
    space, _ = infer_space({name: [75, 80, 90], "layers": [1, 2, 3], "epochs (max)": [5, 6, 9]})
    assert isinstance(space[name], Float)
    assert isinstance(space["layers"], Integer)
    assert isinstance(space["epochs (max)"], Integer)
    rows = space.decode(np.random.default_rng(0).uniform(-1, 1, (20, 3)))
    assert all(row[name] == round(row[name]) for row in rows)
    used = {**rows[0], name: 88.5}
    assert space.decode(space.encode([used]))[0]["layers"] == used["layers"]
