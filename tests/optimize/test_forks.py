"""A fork goes on by itself while a thread of its parent is in the middle of something."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

import metakel as mk
from metakel.kernels import KernelSum, legendre
from metakel.optimize import Optimizer
from metakel.optimize.state import State

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def ends_well(work) -> bool:
    """Whether a fork does something within a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("call", "owner", "name"), [("ask", Optimizer, "_suggest"), ("best", State, "point")]
)
def test_a_fork_uses_an_optimizer_that_a_thread_of_its_parent_uses(call, owner, name, monkeypatch):
    kernel = KernelSum.uniform(legendre(4, scaling="l2"))
    width = mk.FixedWidth(kernel, nu=2.0, noise_var=0.01)
    optimizer = mk.GPUCB(width, mk.box([(-1, 1)]), rng=np.random.default_rng(0))
    optimizer.tell([0.5], 1.0)
    inside, go, work = threading.Event(), threading.Event(), getattr(owner, name)

    def waiting(*args):
        inside.set()
        go.wait(60)
        return work(*args)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, waiting)
        thread = threading.Thread(target=getattr(optimizer, call))
        thread.start()
        inside.wait(60)
        patched.undo()
        try:
            assert ends_well(getattr(optimizer, call))
        finally:
            go.set()
            thread.join()


def test_a_fork_uses_a_sampler_that_a_thread_of_its_parent_uses():
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelSampler

    sampler = MetaKelSampler(prior="lightgbm")
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        with sampler._cache.lock:
            inside.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    try:
        study = optuna.create_study(sampler=sampler)
        assert ends_well(lambda: study.ask().suggest_float("learning_rate", 0.01, 0.3, log=True))
    finally:
        go.set()
        thread.join()
