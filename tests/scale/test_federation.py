"""Federated learning: clients answer with sums, and the result is that of all data together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import metakel as mk
from metakel.errors import InputError
from metakel.kernels import legendre
from metakel.scale import Federation, Shard, client_sums

BASE = legendre(12, scaling="sup")
NOISE = 0.1


def clients(count=3, tasks=3, n=15, seed=0):
    """Histories of several owners, with tasks of unequal size."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        pairs = []
        for extra in range(tasks):
            X = rng.uniform(-1, 1, n + extra)
            theta = np.zeros(BASE.dim)
            theta[[1, 4, 7]] = rng.standard_normal(3)
            pairs.append((X, BASE.features(X[:, None]) @ theta + NOISE * rng.normal(size=len(X))))
        found.append(mk.History.from_pairs(pairs))
    return found


def federation(histories, wrap=lambda sums: sums):
    sums = [wrap(client_sums(history, BASE)) for history in histories]
    return Federation(sums, [history.sizes for history in histories], d0=1)


def together(histories):
    return mk.History.from_pairs([(t.X, t.y) for history in histories for t in history])


@pytest.mark.parametrize("lam", ["lifelong", "self-normalised"])
def test_the_weights_are_those_of_all_data_together(lam):
    histories = clients()
    central = mk.learn_kernel(together(histories), BASE, noise_std=NOISE, lam=lam)
    federated = mk.learn_kernel(federation(histories), BASE, noise_std=NOISE, lam=lam)
    assert central.active.size
    assert_allclose(federated.lam, central.lam, rtol=1e-12)
    assert_allclose(federated.solution.eta, central.solution.eta, atol=1e-8)
    assert_array_equal(federated.active, central.active)


def test_more_clients_may_join():
    histories = clients(4)
    first = mk.learn_kernel(federation(histories[:2]), BASE, noise_std=NOISE, lam="lifelong")
    later = first.update(federation(histories[2:]))
    central = mk.learn_kernel(together(histories), BASE, noise_std=NOISE, lam="lifelong")
    assert_allclose(later.solution.eta, central.solution.eta, atol=1e-7)
    with pytest.raises(InputError, match="expected a Federation"):
        first.update(histories[2])


class Talkative(Shard):
    """A client that answers with something else than the sums that were asked for."""

    def __init__(self, inner, question, answer):
        self._inner, self._question, self._answer = inner, question, answer

    def __getattribute__(self, name):
        if name.startswith("_"):
            return super().__getattribute__(name)
        if name == self._question:
            return lambda *args: self._answer
        return getattr(self._inner, name)


@pytest.mark.parametrize(
    ("question", "answer", "message"),
    [
        ("summarize", [1.0, 2.0], "client 1 answered 'summarize' with a list; expected a Summary"),
        ("evaluate", np.ones((15, 12)), "answered 'evaluate' with a ndarray"),
        ("log_det", np.ones((9, 12)), r"sums of shape \(9, 12\); expected \(12,\)"),
        ("log_det", np.full(12, np.nan), "not finite"),
    ],
)
def test_anything_but_sums_is_refused(question, answer, message):
    histories = clients()
    seen = iter(range(3))

    def wrap(sums):
        return Talkative(sums, question, answer) if next(seen) == 1 else sums

    with pytest.raises(InputError, match=message):
        mk.learn_kernel(federation(histories, wrap), BASE, noise_std=NOISE, lam="lifelong")


def test_clients_are_asked_for_sums_only():
    """No answer has the size of the observations, and none depends on the order of the tasks."""
    (history,) = clients(1, tasks=5, n=40)
    shuffled = mk.History(history.tasks[::-1])
    one, other = client_sums(history, BASE), client_sums(shuffled, BASE)
    for name in ("energy", "scores", "gram_trace", "top", "trace", "squares"):
        mine, theirs = (getattr(sums.summarize(), name) for sums in (one, other))
        assert np.size(mine) <= BASE.p
        assert_allclose(mine, theirs, rtol=1e-12)


def test_bad_federations_are_refused():
    histories = clients(2)
    sums = [client_sums(history, BASE) for history in histories]
    with pytest.raises(InputError, match="2 clients and 1 lists"):
        Federation(sums, [histories[0].sizes], d0=1)
    with pytest.raises(InputError, match="without observations"):
        Federation(sums, [[3], [0]], d0=1)
    assert "2 clients, m=6" in repr(federation(histories))
