"""Stopping rules see the past only, and what they cost is counted as stated."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.certificate import counted, shorter, stopped
from benchmarks.certificate_runs import Search, bound, plain_space, stops_now
from metakel import learn_prior
from metakel.data import History

# What is counted of certificates


def search(regret, bounds, alarm=0, stop=0):
    bounds = {0.1: np.asarray(bounds, float)}
    return Search(np.asarray(regret, float), bounds, 2.0, alarm, {0.1: stop})


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
    right = search([0.5, 0.05], [1.0, 0.1], stop=2)
    wrong = search([0.5, 0.05], [1.0, 0.1], stop=1)
    unsure = search([0.5, 0.5], [1.0, 0.11])  # the tolerance is 5 % of 2
    found = [right, wrong, unsure]
    assert stopped(found, 0.1) == [right, wrong]
    assert [s.evaluations(0.1) for s in found] == [2, 1, 2]
    assert [s.small(0.1) for s in found] == [2, 2, 2]
    assert [s.missed(0.1) for s in found] == [False, True, True]
    assert shorter([right, wrong], 0.1) == 3 / 4
    assert Search.from_json(json.loads(json.dumps(wrong.to_json()))).stops == {0.1: 1}


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
        optimizer = prior.optimizer(X if on_table else None, delta=delta, stop_at="5%")
        scores = prior.certificate.table if on_table else prior.certificate.space
        for _ in range(6):
            x = optimizer.ask()
            optimizer.tell(x, -((np.array(list(x.values())) - 0.1) ** 2).sum())
            assert bound(optimizer, scores, delta) == optimizer.certificate().regret
            assert stops_now(optimizer, delta) == optimizer.done
