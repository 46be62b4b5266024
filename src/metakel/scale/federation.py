"""Federated learning by exact sums (Statement 12): tasks stay with their owners.

The group lasso (Eq. 8) needs the data only through sums over tasks of functions of the weights, so
a client can answer with its sums and keep observations, Gram matrices and coefficients to itself.
The result is that of learning from all tasks together, to the accuracy of the solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.data import History
from metakel.errors import InputError
from metakel.kernels import KernelDictionary
from metakel.learn.problem import LeastSquares, Loss
from metakel.scale.blocks import Rows
from metakel.scale.evaluator import (
    Evaluation,
    Index,
    LocalCertificate,
    ShardCertificate,
    Summary,
    TaskSums,
    WeightPoint,
)
from metakel.scale.executors import SerialExecutor
from metakel.scale.problem import ShardedProblem
from metakel.scale.shard import Shard

MEMORY = 1 << 30
Sums = TypeVar("Sums")


class Federation:
    """A history whose tasks are with clients; `learn_kernel` takes it like a history.

    Parameters
    ----------
    clients : sequence of TaskSums
        Each answers with sums over its own tasks. For secure aggregation give one that answers with
        the sums over all clients.
    sizes : sequence of arrays
        Numbers of observations of the tasks of each client.
    d0 : int
        How many inputs a point has.
    """

    def __init__(self, clients: Sequence[TaskSums], sizes: Sequence[ArrayLike], *, d0: int) -> None:
        if not clients or len(clients) != len(sizes):
            raise InputError(
                f"{len(clients)} clients and {len(sizes)} lists of task sizes; expected one list "
                "for every client, and at least one client"
            )
        self.clients, self.d0 = tuple(clients), d0
        self._sizes = tuple(np.atleast_1d(s).astype(np.intp) for s in sizes)
        self.sizes: Index = np.concatenate(self._sizes)
        if self.sizes.size == 0 or (self.sizes < 1).any():
            raise InputError("task sizes hold no task, or one without observations")

    @property
    def m(self) -> int:
        """How many tasks all clients have together."""
        return int(self.sizes.size)

    @property
    def total(self) -> int:
        """How many observations all clients have together."""
        return int(self.sizes.sum())

    def as_problem(self, base: KernelDictionary, loss: Loss = "points") -> ShardedProblem:
        """Eq. 8 over all clients; every answer is checked to be a sum of the right size."""
        clients = [CheckedClient(client, k, base.p) for k, client in enumerate(self.clients)]
        return ShardedProblem(SerialExecutor(), clients, base, self.sizes, loss=loss)

    def joined(
        self, new: Federation | History, base: KernelDictionary, loss: Loss
    ) -> tuple[Federation, ShardedProblem]:
        """With the clients of another federation, for `LearnedKernel.update`."""
        if not isinstance(new, Federation):
            raise InputError("update: a federation takes further clients; expected a Federation")
        if new.d0 != self.d0:
            raise InputError(f"update: new clients have {new.d0} inputs; expected {self.d0}")
        sizes = (*self._sizes, *new._sizes)
        both = Federation((*self.clients, *new.clients), sizes, d0=self.d0)
        return both, both.as_problem(base, loss)

    def __repr__(self) -> str:
        return f"Federation({len(self.clients)} clients, m={self.m}, N={self.total}, d0={self.d0})"


def client_sums(history: History, base: KernelDictionary, *, loss: Loss = "points") -> Shard:
    """What a client runs: the sums over its own tasks, as they are asked for."""
    history.require_complete("client_sums")
    X = np.concatenate([task.X for task in history])
    y = np.concatenate([task.y for task in history])
    return Shard([Rows(X, y, history.sizes)], base, loss, MEMORY)


class CheckedClient(TaskSums):
    """A client whose answers are refused unless they are the sums that were asked for."""

    def __init__(self, client: TaskSums, number: int, p: int) -> None:
        self._client, self._number, self._p = client, number, p

    def __str__(self) -> str:
        return f"client {self._number}"

    def _ask(
        self, question: str, kind: type[Sums], shapes: Mapping[str, tuple[int, ...]], *args: Any
    ) -> Sums:
        """The client's answer, if its parts have these shapes; those without one are numbers."""
        answer = getattr(self._client, question)(*args)
        if not isinstance(answer, kind):
            raise self._refusal(question, f"a {type(answer).__name__}", f"a {kind.__name__}")
        for name, value in _numbers(answer).items():
            expected = shapes.get(name, ())
            if np.shape(value) != expected:
                raise self._refusal(question, f"{name} of shape {np.shape(value)}", str(expected))
            if not np.isfinite(value).all():
                raise self._refusal(question, f"{name} that are not finite", "finite numbers")
        return answer

    def _refusal(self, question: str, found: str, expected: str) -> InputError:
        return InputError(
            f"client {self._number} answered {question!r} with {found}; expected {expected}: sums "
            "over its tasks and nothing else"
        )

    def summarize(self) -> Summary:
        groups = ("scores", "gram_trace", "counts", "top", "gram_top", "trace", "squares")
        return self._ask("summarize", Summary, dict.fromkeys(groups, (self._p,)))

    def evaluate(self, point: WeightPoint) -> Evaluation:
        q, a = len(point.work), len(point.active)
        return self._ask("evaluate", Evaluation, {"scores": (q,), "hessian": (a, a)}, point)

    def hessian(self, point: WeightPoint, groups: Index) -> Array:
        shape = (len(groups), len(groups))
        return self._ask("hessian", np.ndarray, {"sums": shape}, point, groups)

    def certify(self, point: WeightPoint) -> ShardCertificate:
        return self._ask("certify", ShardCertificate, _certified(point, self._p), point)

    def recertify(self, point: WeightPoint, previous: WeightPoint) -> LocalCertificate:
        shapes = _certified(point, len(point.work))
        return self._ask("recertify", LocalCertificate, shapes, point, previous)

    def log_det(self, rho: Array) -> Array:
        return self._ask("log_det", np.ndarray, {"sums": (self._p,)}, rho)

    def tilted(self, top: Array, z: Array) -> Array:
        return self._ask("tilted", np.ndarray, {"sums": (2, self._p)}, top, z)

    def least_squares(self, groups: Index) -> LeastSquares:
        found = self._client.least_squares(groups)
        if not isinstance(found, LeastSquares):
            raise self._refusal("least_squares", f"a {type(found).__name__}", "a LeastSquares")
        return found


def _certified(point: WeightPoint, scores: int) -> dict[str, tuple[int, ...]]:
    a = len(point.active)
    return {"scores": (scores,), "norms": (a,), "misfit": (a,)}


def _numbers(answer: Any) -> dict[str, Any]:
    """The numbers of an answer by name, those of its parts included."""
    if isinstance(answer, np.ndarray):
        return {"sums": answer}
    found: dict[str, Any] = {}
    for part in fields(answer):
        value = getattr(answer, part.name)
        found |= _numbers(value) if is_dataclass(value) else {part.name: value}
    return found
