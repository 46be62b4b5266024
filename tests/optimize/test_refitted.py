"""The cold start that decides where a history says nothing."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import metakel as mk
from metakel.optimize import Optimizer
from metakel.optimize.outcomes import MOST
from metakel.optimize.task_prior import EVERY, last_fit
from metakel.space import Categorical, Float, Space

SPACE = Space(
    (Float("rate", 1e-4, 1.0, log=True), Float("size", -1.0, 1.0), Categorical("kind", ("a", "b")))
)


def measure(x):
    return -((np.log10(x["rate"]) + 2.5) ** 2) - 0.3 * (x["kind"] == "b")


def unrelated(certify="none"):
    """A prior from tasks whose values were shuffled."""
    rng = np.random.default_rng(0)
    tasks = []
    for s in range(8):
        X = SPACE.sample(rng, 20)
        tasks.append(mk.Task(X, rng.standard_normal(20), f"t{s}"))
    return mk.learn_prior(mk.History(tuple(tasks), SPACE), certify=certify)


PRIOR = unrelated()
POINTS = SPACE.decode(SPACE.sample(np.random.default_rng(1), 12))
VALUES = [measure(x) for x in POINTS]


def told(values=VALUES, points=POINTS, **options):
    optimizer = PRIOR.optimizer(**options)
    for x, y in zip(points, values, strict=True):
        optimizer.tell(x, y)
    return optimizer


def test_a_history_that_says_nothing_leaves_a_process_refitted_to_the_new_task():
    assert not PRIOR.helps
    assert PRIOR.optimizer().model.prior.refits
    assert PRIOR.optimizer().acquisition == "ei"
    assert PRIOR.optimizer(acquisition="ucb").acquisition == "ucb"


@pytest.mark.parametrize(("factor", "shift"), [(4.0, 0.0), (2.0**-10, 0.0), (1.0, 64.0)])
def test_decisions_do_not_depend_on_the_units_of_the_values(factor, shift):
    rows = SPACE.decode(SPACE.sample(np.random.default_rng(3), 60))

    def asked(factor, shift):
        optimizer = PRIOR.optimizer(rows)
        found = []
        for _ in range(10):
            found.append(optimizer.ask())
            optimizer.tell(found[-1], factor * measure(found[-1]) + shift)
        return found

    assert asked(factor, shift) == asked(1.0, 0.0)


def test_the_order_and_the_number_of_values_at_a_time_do_not_matter():
    one_by_one = told().peek()
    batch = PRIOR.optimizer()
    batch.tell(POINTS, VALUES)
    assert batch.peek() == one_by_one
    asked = [PRIOR.optimizer() for _ in range(6)]
    for optimizer, order in zip(asked, permutations(range(3)), strict=True):
        points = optimizer.ask_batch(3)
        for i in order:
            optimizer.tell(points[i], measure(points[i]))
    assert len({str(optimizer.peek()) for optimizer in asked}) == 1


def test_a_restart_decides_the_same(tmp_path):
    rng = np.random.default_rng(4)
    points = SPACE.decode(SPACE.sample(rng, 45))
    optimizer = told([measure(x) for x in points], points)
    optimizer.save(tmp_path / "run.json")
    again = Optimizer.load(tmp_path / "run.json")
    assert again.peek() == optimizer.peek()
    assert_array_equal(again.predict(points)[0], optimizer.predict(points)[0])


def test_the_kernel_is_fitted_to_every_value_at_first_and_rarely_later():
    fits = [last_fit(t) for t in range(1, 2000)]
    assert fits[:EVERY] == list(range(1, EVERY + 1))
    assert all(t / 1.11 < count <= t for t, count in enumerate(fits, 1))
    assert len(set(fits[EVERY:])) < 50


@pytest.mark.parametrize(
    "values", [[1.0], [0.0], [2.0, 2.0, 2.0], [1e12, 1e12 + 1], [1e-300, 2e-300]]
)
def test_few_constant_or_extreme_values_are_no_problem(values):
    points = POINTS[: len(values)]
    optimizer = told(values, points)
    mean, sd = optimizer.predict(POINTS)
    assert np.isfinite(mean).all()
    assert (sd >= 0).all()
    assert optimizer.ask() not in points


def test_long_records_are_thinned():
    rng = np.random.default_rng(5)
    points = SPACE.decode(SPACE.sample(rng, MOST + 40))
    optimizer = PRIOR.optimizer()
    optimizer.tell(points, [measure(x) for x in points])
    mean, sd = optimizer.predict(points[:5])
    assert np.isfinite(mean).all()
    assert optimizer.ask() not in points


def test_certificates_rest_on_replays_of_expected_improvement():
    prior = unrelated(certify="folds")
    assert not prior.helps
    rows = SPACE.decode(SPACE.sample(np.random.default_rng(7), 20))
    rng = np.random.default_rng(8)
    values = {str(row): float(rng.standard_normal()) for row in rows}

    def regret(**options):
        optimizer = prior.optimizer(rows, delta=0.2, **options)
        for _ in range(8):
            x = optimizer.ask()
            optimizer.tell(x, values[str(x)])
        return optimizer.certificate()

    assert np.isfinite(regret().regret)
    assert "replayed with acquisition='ei'" in regret(acquisition="ucb").reason
