"""Priors over parameters that are there only with some choices."""

from __future__ import annotations

import numpy as np
import pytest

from metakel import Tuner, learn_prior
from metakel.data import History
from metakel.optimize import Optimizer
from metakel.priors import Prior


def value(row, shift=0.0):
    if row["kind"] == "line":
        return -0.5 - (row["x"] - 0.3) ** 2
    return -((row["x"] - 0.3) ** 2) - (row["depth"] - 6 - shift) ** 2 / 30


@pytest.fixture(scope="module")
def history():
    rng, rows = np.random.default_rng(0), []
    for s in range(8):
        shift = rng.normal(0, 0.5)
        for _ in range(15):
            kind = rng.choice(["tree", "line"])
            row = {"task": f"t{s}", "kind": str(kind), "x": rng.uniform()}
            row |= {"depth": int(rng.integers(1, 11)) if kind == "tree" else None}
            rows.append({**row, "y": s + value(row, shift)})
    table = {name: [row[name] for row in rows] for name in rows[0]}
    return History.from_frame(table, task="task", output="y")


@pytest.fixture(scope="module")
def prior(history):
    return learn_prior(history, certify="none")


def test_the_first_choice_has_the_parameter_and_later_ones_have_it_with_its_choice(prior):
    optimizer = prior.optimizer()
    for _ in range(8):
        x = optimizer.ask()
        assert ("depth" in x) == (x["kind"] == "tree")
        optimizer.tell(x, value(x))
    assert optimizer.best().x["kind"] == "tree"
    assert abs(optimizer.best().x["depth"] - 6) <= 1
    assert optimizer.best().value > -0.05


def test_a_parameter_that_is_not_there_does_not_matter(prior):
    bare, more = {"kind": "line", "x": 0.4}, {"kind": "line", "x": 0.4, "depth": 9}
    assert prior.mean([bare])[0] == prior.mean([more])[0]
    asked = []
    for told in (bare, more):
        optimizer = prior.optimizer()
        optimizer.tell(told, 0.5)
        asked.append(optimizer.ask())
    assert asked[0] == asked[1]


def test_files_journals_and_stored_optimizers_know_the_condition(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    again = Prior.load(tmp_path / "prior.json")
    assert again.space == prior.space
    optimizer = prior.optimizer()
    optimizer.tell({"kind": "line", "x": 0.4}, 0.5)
    optimizer.save(tmp_path / "run.json")
    assert Optimizer.load(tmp_path / "run.json").ask() == optimizer.ask()
    tuner = Tuner(prior, tmp_path / "runs.jsonl")
    tuner.observe([{"kind": "line", "x": 0.4}, {"kind": "tree", "x": 0.4, "depth": 6}], [0.5, 0.6])
    first = tuner.ask()
    assert Tuner(prior, tmp_path / "runs.jsonl").pending == (first,)


def test_candidates_may_lack_it(prior):
    rows = [{"kind": "line", "x": 0.3}, {"kind": "tree", "x": 0.3, "depth": 6}]
    assert prior.optimizer(rows).ask() == rows[1]
