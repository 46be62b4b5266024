"""More tasks, without starting over; interrupted learning, without starting over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from numpy.testing import assert_allclose
from sharded_histories import KERNELS, LEGENDRE, history, write

import metakel as mk
from metakel.scale import distribute


def joined(first: mk.History, second: mk.History) -> mk.History:
    return mk.History((*first.tasks, *second.tasks))


@pytest.mark.parametrize("loss", ["points", "tasks"])
@pytest.mark.parametrize("base", [LEGENDRE, KERNELS], ids=["features", "kernels"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["memory", "shards"])
def test_update_equals_learning_from_scratch(rng, base, loss, elsewhere):
    old, new = history(rng, 30), history(rng, 5)
    how = {"noise_std": 0.1, "loss": loss, "tol": 1e-12, "weights": "eta"}
    begin = mk.learn_kernel(distribute(old, shards=3) if elsewhere else old, base, **how)
    updated = begin.update(new)
    scratch = mk.learn_kernel(joined(old, new), base, **how)
    assert updated.solution.gap <= 1e-12
    assert_allclose(updated.lam, scratch.lam, rtol=1e-12)
    assert_allclose(updated.solution.eta, scratch.solution.eta, rtol=1e-7, atol=1e-10)
    assert_allclose(updated.solution.objective, scratch.solution.objective, rtol=1e-11)
    assert updated.history.m == 35
    again = updated.update([(task.X, task.y) for task in history(rng, 2)])
    assert again.history.m == 37


def test_update_with_unknown_noise(rng):
    old, new = history(rng, 30), history(rng, 5)
    for begin in (mk.learn_kernel(old, LEGENDRE), mk.learn_kernel(distribute(old), LEGENDRE)):
        updated, scratch = begin.update(new), mk.learn_kernel(joined(old, new), LEGENDRE)
        assert_allclose(updated.noise_std, scratch.noise_std, rtol=1e-5)
        assert_allclose(updated.solution.eta, scratch.solution.eta, rtol=1e-4, atol=1e-9)


def test_update_asks_old_shards_for_rounds_only(rng):
    stages = []
    old, new = history(rng, 200, sizes=(30, 30)), history(rng, 2, sizes=(30, 30))
    shards = distribute(old, shards=4, progress=stages.append)
    # With this lambda the solver ends at weights that the shards have evaluated and remember.
    begin = mk.learn_kernel(shards, LEGENDRE, noise_std=0.1, lam="dimension-free", tol=1e-8)
    stages.clear()
    begin.update(new)
    passes = [(step.stage, step.total) for step in stages if step.done == step.total]
    assert ("reading", 1) in passes  # the new tasks
    assert ("round 1", 1) in passes or ("round 2", 1) in passes  # where the old ones stopped
    assert passes.count(("certificate", 4)) == 1  # statistics of the old shards, not their points
    assert ("certificate", 5) not in passes


def test_update_by_a_scan(rng, tmp_path):
    old, new = history(rng, 20), history(rng, 6)
    write(tmp_path / "old", old)
    write(tmp_path / "new", new, files=2)
    begin = mk.learn_kernel(mk.History.scan(tmp_path / "old"), LEGENDRE, noise_std=0.1)
    updated = begin.update(mk.History.scan(tmp_path / "new"))
    scratch = mk.learn_kernel(joined(old, new), LEGENDRE, noise_std=0.1)
    assert_allclose(updated.solution.eta, scratch.solution.eta, rtol=0, atol=1e-6)
    with pytest.raises(mk.InputError, match="cannot be added to a history in memory"):
        scratch.update(mk.History.scan(tmp_path / "new"))


KILLED = """
import os, signal, sys
import metakel as mk

def stop(step):
    if step.stage == "certificate":
        os.kill(os.getpid(), signal.SIGKILL)

scan = mk.History.scan(sys.argv[1], checkpoint=sys.argv[2], progress=stop)
mk.learn_kernel(scan, mk.legendre(10, scaling="l2"), lam=0.01)
"""


def test_killed_learning_goes_on_from_the_last_round(rng, tmp_path):
    write(tmp_path / "tasks", history(rng, 30))
    checkpoint = tmp_path / "rounds.json"
    expected = mk.learn_kernel(mk.History.scan(tmp_path / "tasks"), LEGENDRE, lam=0.01)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "tasks"), str(checkpoint)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert json.loads(checkpoint.read_text())["round"] >= 1
    for _ in range(2):
        scan = mk.History.scan(tmp_path / "tasks", checkpoint=checkpoint)
        resumed = mk.learn_kernel(scan, LEGENDRE, lam=0.01)
        assert resumed.solution.iterations == 0 < expected.solution.iterations
        assert_allclose(resumed.solution.eta, expected.solution.eta, rtol=1e-6)


def test_a_checkpoint_of_something_else_is_refused(rng, tmp_path):
    write(tmp_path / "tasks", history(rng, 10))
    checkpoint = tmp_path / "rounds.json"
    scan = mk.History.scan(tmp_path / "tasks", checkpoint=checkpoint)
    mk.learn_kernel(scan, LEGENDRE, noise_std=0.1)
    with pytest.raises(mk.InputError, match="checkpoint for other tasks, base kernels or loss"):
        mk.learn_kernel(scan, KERNELS, noise_std=0.1)
    checkpoint.write_text("not a checkpoint")
    with pytest.raises(mk.InputError, match="not a saved checkpoint"):
        mk.learn_kernel(
            mk.History.scan(tmp_path / "tasks", checkpoint=checkpoint), LEGENDRE, noise_std=0.1
        )
