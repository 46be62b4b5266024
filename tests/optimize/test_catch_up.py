"""A record that is read again is taken in at once, and gives the model that grew with it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel import learn_prior
from metakel.data import History, Task
from metakel.optimize import Record
from metakel.space import Float, Space

SPACE = Space((Float("x", -1, 1), Float("y", -1, 1)))


@pytest.fixture(scope="module")
def prior():
    rng, tasks = np.random.default_rng(0), []
    for s in range(6):
        X = rng.uniform(-1, 1, (20, 2))
        y = -((X - 0.4 - 0.1 * rng.standard_normal(2)) ** 2).sum(axis=1)
        tasks.append(Task(X, y, name=f"task {s}"))
    return learn_prior(History(tuple(tasks), SPACE), certify="none")


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["like the past", "unlike the past"])
def test_a_restart_is_as_if_there_had_been_none(prior, sign):
    rng = np.random.default_rng(1)
    grown, restarted = (prior.optimizer(extrapolate=True) for _ in range(2))
    for x, y in rng.uniform(-1, 1, (120, 2)):
        grown.tell({"x": x, "y": y}, -sign * ((x - 0.4) ** 2 + (y - 0.4) ** 2))
    restarted.record = Record(grown.record.trials, grown.record.steps)
    Z = [{"x": x, "y": y} for x, y in rng.uniform(-1, 1, (20, 2))]
    for ours, theirs in zip(restarted.predict(Z), grown.predict(Z), strict=True):
        assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    assert_allclose(restarted.trust, grown.trust, rtol=1e-6, atol=1e-9)
    assert (restarted.alarm is None) == (sign > 0)
    assert restarted.alarm == grown.alarm
    assert_allclose(
        *(SPACE.encode([optimizer.peek()]) for optimizer in (restarted, grown)), atol=1e-4
    )
