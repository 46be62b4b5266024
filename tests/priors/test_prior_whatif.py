"""Runs without a value, constraints, other ranges, and copies that leave no trace."""

from __future__ import annotations

import numpy as np
import pytest
from histories import draw_task, learn, simulate
from numpy.testing import assert_allclose

from metakel import InputError
from metakel.data import History
from metakel.optimize.acquisition import Feasibility, constrained
from metakel.optimize.record import feasible
from metakel.space import Categorical, Float, Integer, Space


@pytest.fixture(scope="module")
def prior():
    return learn(simulate(np.random.default_rng(3)))


@pytest.fixture
def optimizer(prior):
    return told(prior.optimizer(rng=np.random.default_rng(0)))


def task(x):
    f = draw_task(np.random.default_rng(4))
    return float(f(np.array([[x["x0"], x["x1"]]]))[0])


def told(optimizer, steps=5):
    for _ in range(steps):
        x = optimizer.ask()
        optimizer.tell(x, task(x))
    return optimizer


def failed(optimizer, x):
    optimizer.tell(x, failed=True)


def points(optimizer):
    return [trial.point for trial in optimizer.record.trials]


@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_runs_without_values_alone_still_spread(prior, acquisition):
    optimizer = prior.optimizer(rng=np.random.default_rng(0), acquisition=acquisition)
    asked = []
    for _ in range(4):
        asked.append(optimizer.ask())
        failed(optimizer, asked[-1])
    points = prior.space.encode(asked)
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert gaps[np.triu_indices(4, 1)].min() > 0.05
    with pytest.raises(InputError, match="nothing was observed"):
        _ = optimizer.best()


def test_the_best_is_feasible_and_what_is_infeasible_still_informs(prior):
    optimizer = prior.optimizer(rng=np.random.default_rng(0))
    good, poor = {"x0": 0.4, "x1": -0.2}, {"x0": -0.9, "x1": 0.9}
    optimizer.tell(good, 3.0, constraints={"memory": 0.5})
    with pytest.raises(InputError, match="all 1 are infeasible"):
        _ = optimizer.best()
    assert_allclose(optimizer.predict([good])[0], 3.0, atol=0.3)
    optimizer.tell(poor, -3.0, constraints={"memory": -0.5})
    assert (optimizer.best().x, optimizer.best().value) == (poor, -3.0)
    with pytest.raises(InputError, match="not nan"):
        optimizer.tell(good, 1.0, constraints={"memory": float("nan")})


def test_with_constraints_every_start_point_has_its_improvement_times_its_chance(prior):
    """No shortlist by improvement alone, and no bound in its place where it vanishes."""
    optimizer = prior.optimizer(rng=np.random.default_rng(0))
    for _ in range(8):
        x = optimizer.ask()
        value = 5 - (x["x0"] - 0.4) ** 2 - (x["x1"] + 0.2) ** 2
        optimizer.tell(x, value, constraints={"limit": x["x0"] - 0.1})
        Z, model = optimizer._last.start.X, optimizer.model
        score = constrained(model, value, optimizer.state.feasibility)
        assert np.isfinite(score.values(Z)).all()
        assert_allclose(score.values(Z), score.values(Z.copy()), rtol=1e-6, atol=1e-9)
    assert optimizer.best().x["x0"] <= 0.1


def test_chances_follow_what_was_seen_whatever_the_unit():
    Z = np.linspace(-1, 1, 21)[:, None]
    chances = []
    for unit in (1.0, 1e6):
        empty = Feasibility(Z)
        assert (empty.chance(Z) == 1).all()  # nothing is constrained
        seen = [(np.array([x]), {"c": unit * x, "free": -unit}) for x in (-0.8, -0.4, 0.4, 0.8)]
        feasibility = empty.given(seen[:2]).given(seen)
        assert_allclose(feasibility.chance(Z), feasibility.chance(Z.copy()), atol=1e-9)
        assert_allclose(feasibility.chance(Z), empty.given(seen).chance(Z), atol=1e-12)
        chances.append(feasibility.chance(Z))
    assert_allclose(chances[0], chances[1], atol=1e-6)
    assert (np.diff(chances[0][6:-6]) < 0).all()
    assert chances[0][4] > 0.9 > 0.1 > chances[0][-5]


def test_infinite_constraints_are_taken_in_whenever_they_come():
    Z = np.zeros((1, 1))
    seen = [(np.zeros(1), {"c": float("inf")}), (np.ones(1), {"c": 5.0})]
    assert Feasibility(Z).given(seen[:1]).chance(Z)[0] < 0.1
    late, early = (Feasibility(Z).given(order).chance(Z) for order in (seen, seen[::-1]))
    assert_allclose(late, early, atol=1e-9)
    assert feasible({"c": float("-inf"), "d": 0.0})
    assert not feasible({"c": 1e-9})


def test_other_ranges_are_searched_and_unknown_ones_refused(prior):
    within = Space((Float("x0", -0.5, 0.1), Float("x1", 0.5, 3.0)))
    rng = np.random.default_rng(0)
    optimizer = prior.optimizer(rng=rng, space=within, extrapolate=True)
    for _ in range(6):
        x = optimizer.ask()
        assert -0.5 <= x["x0"] <= 0.1
        assert 0.5 <= x["x1"] <= 3.0
        optimizer.tell(x, x["x1"])
    assert optimizer.best().value > 2.5
    with pytest.raises(InputError, match="no parameter 'x7'"):
        prior.optimizer(rng=rng, space=Space((Float("x7", 0, 1),)))
    with pytest.raises(InputError, match="no range and no value for parameter 'x1'"):
        prior.optimizer(rng=rng, space=Space((Float("x0", 0, 1),)))
    held = prior.optimizer(rng=rng, space=Space((Float("x0", 0, 1),)), fixed={"x1": 0.3})
    assert set(held.ask()) == {"x0"}


def test_ranges_of_another_kind_are_placed_where_they_mean_the_same():
    rng = np.random.default_rng(0)
    rows = {"task": [], "n": [], "y": []}
    for s in range(5):
        for _ in range(12):
            n = int(rng.integers(1, 65))
            rows["task"].append(s)
            rows["n"].append(n)
            rows["y"].append(-((np.log2(n) - 4) ** 2) + 0.1 * s)
    space = Space((Integer("n", 1, 64),))
    prior = learn(History.from_frame(rows, task="task", output="y", space=space))
    within = Space((Categorical("n", (2, 8, 16, 64)),))
    optimizer = prior.optimizer(rng=rng, space=within)
    assert optimizer.ask() == {"n": 16}
