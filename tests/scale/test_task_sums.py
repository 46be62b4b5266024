"""Anybody may hold the data: learning needs nothing but answers to `TaskSums`."""

from __future__ import annotations

from multiprocessing import get_context

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharded_histories import KERNELS, LEGENDRE, PAIRS, history

import metakel as mk
from metakel.errors import ShardError
from metakel.scale import Rows, SerialExecutor, Shard, ShardedProblem, TaskSums
from metakel.scale.evaluator import WeightPoint

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


class ByDefinition:
    """Every sum from its formula in `metakel.scale.evaluator`, one task after the other."""

    def __init__(self, tasks: mk.History, base: mk.kernels.KernelDictionary, loss: str) -> None:
        weights = 1 / tasks.sizes if loss == "tasks" else np.ones(tasks.m)
        self.tasks = [
            (c * base.grams(task.X), np.sqrt(c) * task.y)
            for c, task in zip(weights, tasks, strict=True)
        ]
        self.weights = weights

    def residuals(self, point: WeightPoint):
        for K, y in self.tasks:
            inverse = np.linalg.inv(np.eye(y.size) + np.tensordot(point.w, K[point.groups], 1))
            yield K, y, inverse, inverse @ y

    def evaluate(self, point: WeightPoint):
        value, scores = 0.0, 0.0
        for K, y, _, r in self.residuals(point):
            value, scores = value + y @ r, scores + (K[point.work] @ r) @ r
        return value, scores, self.hessian(point, point.active)

    def hessian(self, point: WeightPoint, groups):
        H = 0.0
        for K, _, inverse, r in self.residuals(point):
            Kr = K[point.work[groups]] @ r
            H = H + Kr @ inverse @ Kr.T
        return H

    def certify(self, point: WeightPoint):
        square, inner, scores = 0.0, 0.0, 0.0
        for K, y, _, r in self.residuals(point):
            square, inner, scores = square + r @ r, inner + y @ r, scores + (K @ r) @ r
        return square, inner, scores, point.w**2 * scores[point.groups], 0.0

    def moved(self, point: WeightPoint, previous: WeightPoint):
        pairs = zip(self.residuals(point), self.residuals(previous), strict=True)
        return sum(np.sum((a[3] - b[3]) ** 2) for a, b in pairs)

    def summarize(self):
        energy = sum(y @ y for _, y in self.tasks)
        scores = sum((K @ y) @ y for K, y in self.tasks)
        traces = np.array([np.trace(K, axis1=1, axis2=2) for K, _ in self.tasks])  # (m, p)
        tops = np.array([np.linalg.eigvalsh(K)[:, -1] for K, _ in self.tasks])
        squares = np.array([np.sum(K**2, axis=(1, 2)) for K, _ in self.tasks])
        c = self.weights[:, None]
        return {
            "energy": energy,
            "scores": scores,
            "gram_trace": traces.sum(0),
            "top": (c * tops).max(0),
            "gram_top": tops.max(0),
            "trace": (c * traces).sum(0),
            "squares": (c**2 * squares).sum(0),
        }

    def log_det(self, rho):
        out = 0.0
        for c, (K, y) in zip(self.weights, self.tasks, strict=True):
            out = out + np.linalg.slogdet(np.eye(y.size) + c * K / rho[:, None, None])[1]
        return out


@pytest.mark.parametrize("loss", ["points", "tasks"])
@pytest.mark.parametrize("base", [LEGENDRE, PAIRS, KERNELS], ids=["single", "pairs", "kernels"])
def test_a_shard_answers_with_the_sums_that_the_protocol_defines(rng, base, loss):
    tasks = history(rng, 9, sizes=(4, 30))
    shard, expected = (
        Shard([as_rows(list(tasks))], base, loss, 10**8),
        ByDefinition(tasks, base, loss),
    )
    work = np.array([2, 0, 1])
    point = WeightPoint(work, np.array([0, 2]), np.array([0.3, 0.05]))
    previous = WeightPoint(work, np.array([1, 2]), np.array([0.2, 0.1]))
    summary, groups = shard.summarize(), np.arange(3)
    for name, value in expected.summarize().items():
        assert_allclose(getattr(summary, name), value, rtol=1e-8, err_msg=name)
    for found, value in zip(
        vars(shard.evaluate(point)).values(), expected.evaluate(point), strict=True
    ):
        assert_allclose(found, value, rtol=1e-8)
    assert_allclose(shard.hessian(point, groups), expected.hessian(point, groups), rtol=1e-8)
    certificate, local = shard.certify(point), shard.recertify(point, previous)
    for found, value in zip(vars(certificate).values(), expected.certify(point), strict=True):
        assert_allclose(found, value, rtol=1e-8, atol=1e-12)
    assert_allclose(local.distance, expected.moved(point, previous), rtol=1e-8)
    assert_allclose(local.certificate.scores, certificate.scores[work], rtol=1e-8)
    rho = rng.uniform(0.5, 2.0, base.p)
    assert_allclose(shard.log_det(rho), expected.log_det(rho), rtol=1e-8)


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
