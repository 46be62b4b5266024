"""Records with more values than a Gaussian process can take: decided by the record alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metakel import History, Prior, learn_prior
from metakel.data import Task
from metakel.gp.factor import Factor
from metakel.optimize.outcomes import BLOCK, MOST, NEAREST, OutputScale, outcomes, representative
from metakel.optimize.record import Record, Trial
from metakel.space import Float, Space

SPACE = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0)))


def objective(X: np.ndarray) -> np.ndarray:
    return -((X[:, 0] - 0.2) ** 2) - 0.5 * (X[:, 1] + 0.3) ** 2


def history() -> History:
    rng, tasks = np.random.default_rng(0), []
    for _ in range(8):
        X = rng.uniform(-1, 1, (15, 2))
        y = objective(X + 0.1 * rng.standard_normal(2)) + 0.01 * rng.standard_normal(15)
        tasks.append(Task(X, y))
    return History(tuple(tasks))


@pytest.fixture(scope="module")
def prior() -> Prior:
    return learn_prior(history(), SPACE, certify="none")


def record(t: int, order: np.random.Generator | None = None) -> Record:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (t, 2))
    points = SPACE.decode(X)
    X = SPACE.encode(points)
    y = objective(X) + 0.01 * rng.standard_normal(t)
    trials = [Trial(i, points[i], X[i]).with_result(float(y[i])) for i in range(t)]
    came = range(t) if order is None else order.permutation(t).tolist()
    return Record(tuple(trials), tuple((int(i),) for i in came))


def given(t: int):
    return outcomes(record(t), d0=2, scale=OutputScale())


@pytest.mark.parametrize("t", [MOST + 1, MOST + BLOCK - 1, MOST + BLOCK, 2000])
def test_a_long_record_is_thinned_to_the_limit(t):
    found = given(t)
    kept = representative(found)[0].tolist()
    assert len(kept) <= MOST
    assert set(range(BLOCK * (t // BLOCK), t)) <= set(kept)
    assert kept == sorted(set(kept))
    best = found.X[np.argmax(found.y[: BLOCK * (t // BLOCK)])]
    order = np.argsort(((found.X[: BLOCK * (t // BLOCK)] - best) ** 2).sum(axis=1))
    assert set(order[:NEAREST].tolist()) <= set(kept)


def test_the_selection_depends_on_no_value_but_on_the_place_of_the_best():
    found = given(1000)
    best = int(np.argmax(found.y[:896]))
    others = np.random.default_rng(0).uniform(-9, -8, 1000)
    others[best] = 0.0
    chosen, _ = representative(replace(found, y=others))
    np.testing.assert_array_equal(chosen, representative(found)[0])


def test_a_long_record_decides_the_same_in_any_order_and_after_a_restart(prior):
    t = MOST + BLOCK + 3
    straight, shuffled, grown = (prior.optimizer() for _ in range(3))
    straight.record = record(t)
    shuffled.record = record(t, np.random.default_rng(2))
    for part in (100, MOST, MOST + 5, MOST + BLOCK + 1, t):
        grown.record = record(t).until(part)
    grown.record = record(t)
    assert straight.peek() == shuffled.peek() == grown.peek()
    assert straight.trust == shuffled.trust == grown.trust


def test_all_values_at_once_are_what_they_are_one_by_one(prior):
    rows = record(80)
    Z = np.random.default_rng(3).uniform(-1, 1, (20, 2))
    one_by_one, at_once = prior.optimizer(), prior.optimizer()
    one_by_one.record = rows
    at_once.record = Record(rows.trials, (tuple(range(80)),))
    for a, b in zip(one_by_one.model.predict(Z), at_once.model.predict(Z), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    assert abs(one_by_one.model.log_evidence - at_once.model.log_evidence) < 1e-6


def test_a_thinned_record_still_knows_where_the_best_is(prior):
    optimizer = prior.optimizer()
    optimizer.record = record(1500)
    assert optimizer.t == 1500
    assert optimizer.best().value == max(t.value for t in optimizer.record.trials)
    mean, sd = optimizer.predict([{"a": 0.2, "b": -0.3}, {"a": -1.0, "b": 1.0}])
    assert abs(mean[0] - 0.0) < 0.02
    assert abs(mean[1] - objective(np.array([[-1.0, 1.0]]))[0]) < 0.1
    assert (sd < 0.1).all()


def test_values_that_repeat_one_point_many_times_are_taken(prior):
    point = {"a": 0.5, "b": 0.5}
    optimizer = prior.optimizer()
    optimizer.tell([point] * 700, [0.25] * 700)
    mean, _ = optimizer.predict([point])
    assert mean[0] == pytest.approx(0.25, abs=0.05)
    optimizer.ask()


@pytest.mark.parametrize("certify", ["none", "folds"])
def test_one_more_value_is_one_more_row_also_after_the_replayed_times(certify, monkeypatch):
    optimizer = learn_prior(history(), SPACE, certify=certify).optimizer()
    optimizer.record = record(90)
    optimizer.peek()
    monkeypatch.delattr(Factor, "at_once")  # which makes all rows anew
    for trial in record(93).trials[90:]:
        optimizer.tell(trial.point, trial.value)
        optimizer.peek()
    assert optimizer.model.factor.t == 93
