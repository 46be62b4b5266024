"""Anybody may hold the data: learning needs nothing but answers to `TaskSums`."""

from __future__ import annotations

from multiprocessing import get_context

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharded_histories import KERNELS, LEGENDRE, history

import metakel as mk
from metakel.errors import ShardError
from metakel.scale import Rows, SerialExecutor, Shard, ShardedProblem, TaskSums

QUESTIONS = [name for name in vars(TaskSums) if not name.startswith("_")]


def hold(connection, rows: Rows, base: mk.kernels.KernelDictionary) -> None:
    """The owner of some tasks: answers with sums until there are no more questions."""
    shard = Shard([rows], base, "points", 10**8)
    while (question := connection.recv()) is not None:
        method, args = question
        assert method in QUESTIONS
        connection.send(getattr(shard, method)(*args))


class Party:
    """`TaskSums` of somebody else's tasks; notes the largest array that was received."""

    def __init__(self, rows: Rows, base: mk.kernels.KernelDictionary) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=hold, args=(theirs, rows, base), daemon=True)
        self.process.start()
        self.largest = 0

    def __getattr__(self, method):
        def ask(*args):
            self.connection.send((method, args))
            answer = self.connection.recv()
            parts = [answer] if isinstance(answer, np.ndarray) else vars(answer).values()
            self.largest = max(self.largest, *map(np.size, parts))
            return answer

        return ask

    def leave(self) -> None:
        self.connection.send(None)
        self.process.join()


class Federation:
    """`OutOfCoreHistory` of tasks that several parties hold."""

    d0 = 1

    def __init__(self, parties: list[Party], sizes: np.ndarray) -> None:
        self.parties, self.sizes = parties, sizes
        self.m, self.total = sizes.size, int(sizes.sum())

    def as_problem(self, base, loss="points"):
        return ShardedProblem(SerialExecutor(), self.parties, base, self.sizes, loss=loss)


def as_rows(tasks: list[mk.Task]) -> Rows:
    X, y = (np.concatenate([getattr(task, name) for task in tasks]) for name in ("X", "y"))
    return Rows(X, y, np.array([task.n for task in tasks]))


@pytest.mark.parametrize("base", [LEGENDRE, KERNELS], ids=["features", "kernels"])
def test_three_processes_that_exchange_only_sums_learn_what_one_learns(rng, base):
    tasks = history(rng, 30, sizes=(120, 150))
    parts = np.array_split(np.arange(tasks.m), 3)
    parties = [Party(as_rows([tasks[int(s)] for s in part]), base) for part in parts]
    found = mk.learn_kernel(Federation(parties, tasks.sizes), base, noise_std=0.1, tol=1e-12)
    expected = mk.learn_kernel(tasks, base, noise_std=0.1, tol=1e-12)
    for party in parties:
        party.leave()
    assert_allclose(found.solution.eta, expected.solution.eta, rtol=0, atol=1e-10)
    # No answer has room for the observations of even one task.
    assert max(party.largest for party in parties) <= base.p**2 < tasks.sizes.min()


def test_whoever_cannot_answer_says_why_and_the_others_are_kept(rng):
    class Broken:
        def summarize(self):
            raise ShardError("the disk of the second party is full")

    tasks = history(rng, 6)
    good = Shard([as_rows(list(tasks))], LEGENDRE, "points", 10**8)
    problem = ShardedProblem(SerialExecutor(), [good, Broken()], LEGENDRE, tasks.sizes)
    with pytest.raises(ShardError, match=r"second party is full\n\(1 other shard answered"):
        _ = problem.summary
