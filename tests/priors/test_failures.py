"""Past runs that gave no value say where not to look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metakel import learn_prior
from metakel.data import History, Task
from metakel.gp.success import Runs, SuccessChance
from metakel.kernels.stationary import Matern52ARD
from metakel.priors.standardize import failed_runs
from metakel.space import Float, Space

SPACE = Space((Float("x", -1, 1), Float("z", -1, 1)))
EDGE = 0.3  # runs with a larger x fail


def draw(rng):
    """The larger x, the better; but beyond the edge nothing comes out."""
    level, tilt = rng.normal(), rng.normal(0, 0.3)
    return lambda X: level + 2 * X[:, 0] - (X[:, 1] - tilt) ** 2


def past(rng, m=8, n=20, *, scattered=False):
    tasks = []
    for s in range(m):
        f, X = draw(rng), rng.uniform(-1, 1, (n, 2))
        failed = rng.uniform(size=n) < 0.35 if scattered else X[:, 0] > EDGE
        tasks.append(Task(X[~failed], f(X[~failed]), f"task {s}", failed=X[failed]))
    return History(tuple(tasks), SPACE)


def failures(prior, seed, steps=4, **options):
    """How many of the first runs on a new task fail."""
    f, count = draw(np.random.default_rng([3, seed])), 0
    optimizer = prior.optimizer(**options)
    for _ in range(steps):
        x = optimizer.ask()
        broken = x["x"] > EDGE
        if broken:
            optimizer.tell(x, failed=True)
        else:
            optimizer.tell(x, float(f(SPACE.encode([x]))[0]))
        count += broken
    return count


@pytest.fixture(scope="module")
def history():
    return past(np.random.default_rng(0))


@pytest.fixture(scope="module")
def prior(history):
    return learn_prior(history, certify="none")


def test_the_chance_is_low_where_past_runs_failed(prior):
    x = np.linspace(-0.95, 0.95, 39)
    chance = prior.success_chance([{"x": float(v), "z": 0.0} for v in x])
    assert (chance[x < EDGE - 0.3] > 0.8).all()
    assert (chance[x > EDGE + 0.3] < 0.2).all()
    assert (np.diff(chance[np.abs(x - EDGE) < 0.3]) < 0).all()


@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_fewer_runs_of_the_next_task_fail(history, prior, acquisition):
    ignorant = learn_prior(
        replace(history, tasks=tuple(replace(t, failed=None) for t in history)), certify="none"
    )
    assert ignorant.success is None
    counts = [
        sum(failures(p, seed, acquisition=acquisition) for seed in range(3))
        for p in (prior, ignorant)
    ]
    assert counts[0] < 0.7 * counts[1]


def test_failures_that_have_nothing_to_do_with_the_inputs_change_nothing():
    history = past(np.random.default_rng(1), scattered=True)
    runs, note = failed_runs(history)
    assert runs is None
    assert "spread over all inputs" in note
    clean = replace(history, tasks=tuple(replace(t, failed=None) for t in history))
    asked = [learn_prior(h, certify="none").optimizer().ask_batch(3) for h in (history, clean)]
    assert asked[0] == asked[1]


def test_runs_of_the_new_task_overrule_past_failures(prior):
    chance, none = prior.success, np.empty((0, 2))
    good, bad = np.array([[-0.8, 0.0]]), np.array([[0.8, 0.0]])
    assert chance.log_chance(bad, Runs(none, none))[0] < np.log(0.2)
    assert chance.log_chance(bad, Runs(bad, none))[0] == pytest.approx(0.0, abs=1e-6)
    assert chance.log_chance(good, Runs(good, none))[0] == pytest.approx(0.0, abs=1e-6)
    assert chance.log_chance(good, Runs(none, good))[0] < np.log(1e-3)
    past, far = chance.log_chance(bad, Runs(none, none)), chance.log_chance(bad, Runs(good, none))
    assert far[0] == pytest.approx(past[0], rel=0.2)


def test_gradients_are_those_of_the_values(prior):
    rng = np.random.default_rng(2)
    Z, step = rng.uniform(-1, 1, (6, 2)), 1e-6
    seen = Runs(rng.uniform(-1, 1, (3, 2)), rng.uniform(-1, 1, (2, 2)))
    value, slope = prior.success.log_chance_gradient(Z, seen)
    np.testing.assert_allclose(value, prior.success.log_chance(Z, seen))
    for i in range(2):
        ahead, behind = (Z + sign * step * np.eye(2)[i] for sign in (1, -1))
        numeric = prior.success.log_chance(ahead, seen) - prior.success.log_chance(behind, seen)
        np.testing.assert_allclose(slope[:, i], numeric / (2 * step), rtol=1e-4, atol=1e-6)


def test_the_fit_is_stationary():
    """At the mode the slope of the penalised likelihood is 0, as by another way of computing it."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (40, 2))
    failed = (X[:, 0] + 0.3 * rng.standard_normal(40) > 0).astype(float)
    fitted = SuccessChance.fit(Matern52ARD(np.array([0.5, 0.5]), 2.0, 0.1), X, failed)
    basis = fitted.basis

    def loss(theta):
        logits = theta[0] + basis.features(X) @ theta[1:]
        penalty = basis.shared.signal * theta[1:] @ theta[1:] / (2 * 3.0**2)
        return np.logaddexp(0, logits).sum() - failed @ logits + penalty

    theta = np.append(fitted.intercept, fitted.weights)
    for direction in rng.standard_normal((5, len(theta))):
        slope = (loss(theta + 1e-5 * direction) - loss(theta - 1e-5 * direction)) / 2e-5
        assert slope == pytest.approx(0.0, abs=1e-6)


def test_failed_rows_of_a_table_are_points():
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 1, 60)
    table = {
        "data": [f"t{i % 6}" for i in range(60)],
        "x": x,
        "y": np.where(x > 0.7, np.nan, x + rng.normal(0, 0.1, 60)),
    }
    history = History.from_frame(table, task="data", output="y")
    assert history.report.failed == (x > 0.7).sum() == sum(len(t.failed) for t in history)
    decoded = [row["x"] for t in history for row in history.space.decode(t.failed)]
    assert sorted(decoded) == pytest.approx(sorted(x[x > 0.7]))
    assert "lie together" in learn_prior(history, certify="none").info.notes[-1]
