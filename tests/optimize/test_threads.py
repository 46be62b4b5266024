"""One optimizer in several threads, and values that are none."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import metakel as mk
from gpucb import gpucb
from metakel import InputError

POINTS = np.linspace(-1, 1, 200)


def optimizer() -> mk.Optimizer:
    domain = mk.candidates(POINTS[:, None])
    return gpucb(
        mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2")),
        domain,
        rng=np.random.default_rng(0),
        noise_std=0.1,
        nu=2.0,
    )


def test_threads_that_share_an_optimizer_lose_no_value(monkeypatch):
    shared = optimizer()
    take = shared._take

    def slow(*args):
        time.sleep(0.001)  # another thread comes between reading the record and replacing it
        return take(*args)

    monkeypatch.setattr(shared, "_take", slow)

    def work(seed: int) -> None:
        for i in range(20):
            x = shared.ask() if i % 5 == 0 else POINTS[[seed * 20 + i]]
            shared.tell(x, float(x[0] ** 2))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, seed) for seed in range(3)]:
            done.result()
    assert shared.t == 60
    assert shared.pending == []


@pytest.mark.parametrize(
    "value",
    [np.ma.masked, np.ma.array(3.0, mask=True), [np.ma.masked], np.ma.array([1.0], mask=[1])],
)
def test_a_masked_value_is_missing_and_not_zero(value):
    shared = optimizer()
    with pytest.raises(InputError, match="masked"):
        shared.tell(POINTS[:1], value)
    assert shared.t == 0
    shared.tell(POINTS[:1], np.ma.array([1.0]))
    assert shared.y == [1.0]
