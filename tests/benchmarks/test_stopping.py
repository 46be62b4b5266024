"""Stopping rules see the past only, and what they cost is counted as stated."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.certificate import counted, stopped
from benchmarks.certificate_runs import BUDGET, Search, bound, plain_space
from benchmarks.certificate_stopping import (
    PATIENCE,
    Sequence,
    by_certificate,
    first,
    no_improvement,
)
from metakel import learn_prior
from metakel.data import History


def sequence(values, certificates):
    values = np.asarray(values, dtype=float)
    rows = np.arange(len(values))
    found = {0.1: np.asarray(certificates, dtype=float)}
    return Sequence(None, values[:, None], values, rows, found, tolerance=0.1)


def test_first_is_the_first_time_or_all():
    assert first(np.array([False, True, True])) == 2
    assert first(np.zeros(5, dtype=bool)) == 5


@pytest.mark.parametrize("best_at", [0, 3, 7])
def test_no_improvement_waits_so_long_after_the_best_value(best_at):
    values = np.zeros(BUDGET)
    values[:best_at] = np.arange(best_at) - 10.0
    values[best_at] = 1.0
    assert no_improvement(sequence(values, np.ones(BUDGET))) == best_at + PATIENCE + 1


def test_a_certificate_stops_when_it_is_at_most_the_tolerance_and_never_without_one():
    values = [0.0, 0.95, 0.2, 1.0]
    assert by_certificate(0.1)(sequence(values, [0.5, 0.1, 0.05, 0.0])) == 2
    assert by_certificate(0.1)(sequence(values, [np.inf] * 4)) == 4
    np.testing.assert_allclose(sequence(values, [1] * 4).regret, [1.0, 0.05, 0.05, 0.0])


# What is counted of certificates


def search(regret, bounds, alarm=0):
    return Search(np.asarray(regret, float), {0.1: np.asarray(bounds, float)}, 2.0, alarm)


def test_what_promises_nothing_is_counted_apart_and_not_as_lasting():
    true = search([0.5, 0.2], [0.6, 0.3])
    wrong = search([0.5, 0.2], [0.6, 0.1])
    ended = search([0.5, 0.2], [0.6, np.inf], alarm=2)
    wrong_before = search([0.5, 0.2], [0.4, np.inf], alarm=2)
    assert [s.wrong(0.1) for s in (true, wrong, ended, wrong_before)] == [False, True, False, True]
    assert [s.lasted(0.1) for s in (true, wrong, ended)] == [True, True, False]
    share, lasting, alarms = counted([true, wrong, ended, wrong_before], 0.1)
    assert share.startswith("0.500 (")
    assert share.endswith("of 4")
    assert (lasting, alarms) == ("0.500 of 2", "2")
    assert counted([ended], 0.1)[1] == "none"
    again = Search.from_json(json.loads(json.dumps(ended.to_json())))
    assert again.certificates[0.1].tolist() == [0.6, np.inf]


def test_a_search_that_only_ran_out_of_budget_was_not_stopped():
    right, wrong = search([0.5, 0.05], [1.0, 0.1]), search([0.5, 0.5], [0.1, 0.1])
    unsure = search([0.5, 0.5], [1.0, 0.11])  # the tolerance is 5 % of 2
    assert stopped([right, wrong, unsure], 0.1) == [right, wrong]
    assert [s.missed(0.1) for s in (right, wrong, unsure)] == [False, True, True]


@pytest.mark.parametrize("on_table", [True, False])
def test_a_search_serves_every_delta(on_table):
    rng = np.random.default_rng(0)
    pairs = [
        (X, -((X - rng.normal(0.2, 0.2, 2)) ** 2).sum(axis=1))
        for X in rng.uniform(-1, 1, (8, 15, 2))
    ]
    prior = learn_prior(History.from_pairs(pairs), plain_space(2))
    X = rng.uniform(-1, 1, (15, 2))
    for delta in (0.15, 0.3, 0.05):
        optimizer = prior.optimizer(X if on_table else None, delta=delta)
        scores = prior.certificate.table if on_table else prior.certificate.space
        for _ in range(6):
            x = optimizer.ask()
            optimizer.tell(x, -((np.array(list(x.values())) - 0.1) ** 2).sum())
            assert bound(optimizer, scores, delta) == optimizer.certificate().regret
