"""Where shards live and are asked: in this process, or on the workers of a Dask cluster."""

from __future__ import annotations

import importlib
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol

import numpy as np

from metakel.errors import MetaKelError, ShardError
from metakel.scale.evaluator import TaskSums
from metakel.scale.sample import LookingShard

LOG = logging.getLogger("metakel")
POLL = 0.5  # seconds between checks of which workers are alive
RESULT_TIMEOUT = 2.0  # seconds for a result that its worker has announced
WORKER_TIMEOUT = 60.0  # seconds to wait for any worker at all
LOOPBACK = "127.0.0.1"
MISSING = "missing"

Shardlike = TaskSums | LookingShard
OnAnswer = Callable[[int], None]


class Executor(Protocol):
    """Holds shards and asks them."""

    numbers_received: int
    calls: int

    @property
    def workers(self) -> int:
        """How many processes share the shards."""
        ...

    def add(self, shard: Shardlike) -> int:
        """Hold a shard that was not asked anything yet; returns its number."""
        ...

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]:
        """Call a method of some shards.

        Answers are in the order of ``shards``, with the `ShardError` of a shard in its place.
        ``on_answer`` is called after every answer with the number of answers so far.
        """
        ...

    def close(self) -> None:
        """Release the shards."""
        ...


class SerialExecutor:
    """Shards in this process, asked one after the other."""

    workers = 1

    def __init__(self) -> None:
        self.numbers_received = self.calls = 0
        self._shards: list[Shardlike] = []

    def add(self, shard: Shardlike) -> int:
        self._shards.append(shard)
        return len(self._shards) - 1

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]:
        answers = []
        for k in shards:
            answers.append(_answer(self._shards[k], method, args))
            on_answer(len(answers))
        self.calls += 1
        self.numbers_received += sum(map(_count_numbers, answers))
        return answers

    def close(self) -> None:
        self._shards = []


def _answer(shard: Shardlike, method: str, args: tuple[Any, ...]) -> Any:
    try:
        return getattr(shard, method)(*args)
    except ShardError as error:
        return error


def _count_numbers(answer: Any) -> int:
    if isinstance(answer, np.ndarray):
        return int(answer.size)
    return sum(np.size(value) for value in getattr(answer, "__dict__", {}).values())


# Shards of this process, if it is a Dask worker.
_shards: dict[str, Shardlike] = {}
_lock = threading.Lock()


def _answer_on_worker(
    name: str, shard: Shardlike | None, method: str, args: tuple[Any, ...]
) -> Any:
    with _lock:
        if name not in _shards and shard is not None:
            _shards[name] = shard
        held = _shards.get(name)
    return MISSING if held is None else _answer(held, method, args)


def _release_on_worker(prefix: str) -> None:
    with _lock:
        for name in [name for name in _shards if name.startswith(prefix)]:
            del _shards[name]


class DaskExecutor:
    """Shards on the workers of a Dask client.

    A worker keeps its shards in its own process. The driver asks for a shard by name and sends the
    shard itself only where it is missing. So a lost worker costs the reading of its shards on
    another one, and nothing else: answers depend on the arguments alone.

    Parameters
    ----------
    client : dask.distributed.Client
    owned : bool
        Whether closing this executor closes the client and its cluster.
    """

    def __init__(self, client: Any, *, owned: bool = False) -> None:
        self.client = client
        self.numbers_received = self.calls = 0
        self._owned = owned
        self._prefix = uuid.uuid4().hex
        self._shards: list[Shardlike] = []  # as they were added: nothing is read here
        self._homes: list[str | None] = []  # addresses of workers
        self._sent: set[int] = set()

    @classmethod
    def local(cls, workers: int) -> DaskExecutor:
        """Processes on this machine, which no other machine can reach."""
        distributed = _distributed()
        LOG.info("no Dask client given: starting %d worker processes on this machine", workers)
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            # Whoever reaches a scheduler can run code on its workers.
            host=LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",
        )
        return cls(distributed.Client(cluster), owned=True)

    @property
    def workers(self) -> int:
        return max(1, len(self._alive()))

    def add(self, shard: Shardlike) -> int:
        self._shards.append(shard)
        self._homes.append(None)
        return len(self._shards) - 1

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]:
        distributed = _distributed()
        answers: dict[int, Any] = {}
        self._assign([k for k in shards if self._homes[k] is None])
        pending = {self._submit(k, method, args, send=k not in self._sent): k for k in shards}
        while pending:
            finished = self._finished(pending)
            stuck = not finished
            for future in finished:
                k = pending[future]
                try:
                    # A worker may die between announcing its result and handing it over.
                    found = future.result(timeout=RESULT_TIMEOUT)
                except TimeoutError:
                    stuck = True
                    continue
                except (distributed.KilledWorker, CancelledError, OSError):
                    found = MISSING
                del pending[future]
                future.release()
                if isinstance(found, str) and found == MISSING:
                    self._move(k)
                    pending[self._submit(k, method, args, send=True)] = k
                else:
                    answers[k] = found
                    self._sent.add(k)
                    on_answer(len(answers))
            if stuck:
                self._resubmit_lost(pending, method, args)
        self.calls += 1
        self.numbers_received += sum(map(_count_numbers, answers.values()))
        return [answers[k] for k in shards]

    def _submit(self, k: int, method: str, args: tuple[Any, ...], *, send: bool) -> Any:
        return self.client.submit(
            _answer_on_worker,
            f"{self._prefix}-{k}",
            self._shards[k] if send else None,
            method,
            args,
            workers=[self._homes[k]],
            pure=False,
        )

    def _finished(self, pending: dict[Any, int]) -> list[Any]:
        """All futures as soon as all are finished; those that are finished, after `POLL`."""
        try:
            _distributed().wait(list(pending), timeout=POLL)
        except TimeoutError:
            return [future for future in pending if future.done()]
        return list(pending)

    def _resubmit_lost(self, pending: dict[Any, int], method: str, args: tuple[Any, ...]) -> None:
        """Ask again, elsewhere, what was asked of workers that are gone."""
        alive = self._alive()
        for future, k in list(pending.items()):
            if self._homes[k] not in alive:
                del pending[future]
                future.cancel()
                self._move(k)
                pending[self._submit(k, method, args, send=True)] = k

    def _move(self, k: int) -> None:
        """Another home for a shard that was lost."""
        self._assign([k])
        LOG.warning(
            "shard %d (%s) was lost with its worker; it is made again on %s",
            k, self._shards[k], self._homes[k],
        )  # fmt: skip

    def _assign(self, shards: Sequence[int]) -> None:
        """Give every shard without a living home the worker that has the fewest."""
        if not shards:
            return
        alive = self._alive()
        if not alive:
            self._wait_for_workers()
            alive = self._alive()
        for k in shards:
            if self._homes[k] not in alive:
                load = {home: self._homes.count(home) for home in alive}
                self._homes[k] = min(load, key=lambda home: load[home])

    def _wait_for_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
        except TimeoutError:
            raise MetaKelError(
                f"no Dask worker is left, and none came back within {WORKER_TIMEOUT:.0f} s; "
                "start workers for this scheduler and learn again"
            ) from None

    def _alive(self) -> list[str]:
        return list(self.client.nthreads())

    def close(self) -> None:
        if self._owned:
            cluster = self.client.cluster
            self.client.close()
            cluster.close()
        elif self.client.status == "running":
            self.client.run(_release_on_worker, self._prefix)


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise MetaKelError("Dask is not installed: pip install metakel[dask]") from None
