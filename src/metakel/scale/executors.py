"""Where shards live and are asked: in this process, or on the workers of a Dask cluster."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import numpy as np

from metakel.errors import MetaKelError, ShardError
from metakel.scale.evaluator import TaskSums
from metakel.scale.sample import LookingShard

LOG = logging.getLogger("metakel")
POLL = 0.5  # seconds between checks of which workers are alive
RESULT_TIMEOUT = 2.0  # seconds for a result that its worker has announced
WORKER_TIMEOUT = 60.0  # seconds to wait for any worker at all
LOOPBACK = "127.0.0.1"
QUICK = ("evaluate",)  # answers of a round, from statistics that a shard holds
MISSING = "missing"
# Dask makes malloc return freed memory to the system at once. The next array then costs a page
# fault per 4 kB, which takes as long as the arithmetic of a round. Arrays of a block fit in these.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": 1 << 25, "MALLOC_TRIM_THRESHOLD_": 1 << 26}

Shardlike = TaskSums | LookingShard
OnAnswer = Callable[[int], None]


class Executor(ABC):
    """Holds shards and asks them."""

    def __init__(self) -> None:
        self.numbers_received = self.calls = 0
        self._shards: list[Shardlike] = []  # as they were added

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many processes share the shards."""

    def add(self, shard: Shardlike) -> int:
        """Hold a shard that was not asked anything yet; returns its number."""
        self._shards.append(shard)
        return len(self._shards) - 1

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]:
        """Call a method of some shards.

        Answers are in the order of ``shards``, with the `ShardError` of a shard in its place.
        ``on_answer`` is called after every answer with the number of answers so far.
        """
        answers = self._ask(method, shards, args, on_answer)
        self.calls += 1
        self.numbers_received += sum(map(_count_numbers, answers))
        return answers

    @abstractmethod
    def _ask(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]: ...

    @abstractmethod
    def close(self) -> None:
        """Release the shards."""


class SerialExecutor(Executor):
    """Shards in this process, asked one after the other."""

    workers = 1

    def _ask(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]:
        answers = []
        for k in shards:
            answers.append(_answer(self._shards[k], method, args))
            on_answer(len(answers))
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


def _answers_on_worker(
    parts: Sequence[tuple[str, Shardlike | None]], method: str, args: tuple[Any, ...]
) -> list[Any]:
    """Answers of shards by name; those that are not here yet come with their name."""
    found = []
    for name, shard in parts:
        with _lock:
            if name not in _shards and shard is not None:
                _shards[name] = shard
            held = _shards.get(name)
        found.append(MISSING if held is None else _answer(held, method, args))
    return found


def _release_on_worker(prefix: str) -> None:
    with _lock:
        for name in [name for name in _shards if name.startswith(prefix)]:
            del _shards[name]


class DaskExecutor(Executor):
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
        super().__init__()
        self.client, self._owned = client, owned
        self._prefix = uuid.uuid4().hex
        self._homes: dict[int, str] = {}  # addresses of workers
        self._sent: set[int] = set()

    @classmethod
    def local(cls, workers: int) -> DaskExecutor:
        """Processes on this machine, which no other machine can reach."""
        distributed = _distributed()
        LOG.info("no Dask client given: starting %d worker processes on this machine", workers)
        with _keeping_freed_memory():
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

    def _ask(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], on_answer: OnAnswer
    ) -> list[Any]:
        answers: dict[int, Any] = {}
        self._assign([k for k in shards if k not in self._homes])
        pending = {self._submit(part, method, args): part for part in self._parts(shards, method)}
        while pending:
            finished = self._finished(pending)
            stuck = not finished
            for future, found in zip(finished, self._results(finished), strict=True):
                if found is None:
                    stuck = True
                    continue
                part = pending.pop(future)
                future.release()
                for k, answer in zip(part, found or [MISSING] * len(part), strict=True):
                    if isinstance(answer, str) and answer == MISSING:
                        self._move(k)
                        pending[self._submit([k], method, args)] = [k]
                    else:
                        answers[k] = answer
                        self._sent.add(k)
                        on_answer(len(answers))
            if stuck:
                self._resubmit_lost(pending, method, args)
        return [answers[k] for k in shards]

    def _parts(self, shards: Sequence[int], method: str) -> list[list[int]]:
        """Shards that are asked in one message: those of a worker, where an answer takes little.

        Others are asked one by one, so that progress can be seen.
        """
        if method not in QUICK:
            return [[k] for k in shards]
        parts: dict[str, list[int]] = {}
        for k in shards:
            parts.setdefault(self._homes[k], []).append(k)
        return list(parts.values())

    def _submit(self, part: Sequence[int], method: str, args: tuple[Any, ...]) -> Any:
        named = [
            (f"{self._prefix}-{k}", None if k in self._sent else self._shards[k]) for k in part
        ]
        home = self._homes[part[0]]
        return self.client.submit(
            _answers_on_worker, named, method, args, workers=[home], pure=False
        )

    def _results(self, futures: Sequence[Any]) -> list[list[Any] | None]:
        """What finished futures hold; nothing for a lost one, None for one that is on its way."""
        if not futures:
            return []
        lost: tuple[type[BaseException], ...] = (TimeoutError, *_lost_errors())
        try:  # all in one message, as almost always
            found: list[list[Any] | None] = self.client.sync(
                self._gathered, futures, callback_timeout=RESULT_TIMEOUT
            )
            return found
        except lost:
            return [self._result(future) for future in futures]

    async def _gathered(self, futures: Sequence[Any]) -> Any:
        return await self.client.gather(list(futures), asynchronous=True)

    def _result(self, future: Any) -> list[Any] | None:
        try:
            # A worker may die between announcing its result and handing it over.
            found: list[Any] = future.result(timeout=RESULT_TIMEOUT)
        except TimeoutError:
            return None
        except _lost_errors():
            return []
        return found

    def _finished(self, pending: dict[Any, list[int]]) -> list[Any]:
        """All futures as soon as all are finished; those that are finished, after `POLL`."""
        try:
            _distributed().wait(list(pending), timeout=POLL)
        except TimeoutError:
            return [future for future in pending if future.done()]
        return list(pending)

    def _resubmit_lost(
        self, pending: dict[Any, list[int]], method: str, args: tuple[Any, ...]
    ) -> None:
        """Ask again, elsewhere, what was asked of workers that are gone."""
        alive = self._alive()
        for future, part in list(pending.items()):
            if self._homes[part[0]] not in alive:
                del pending[future]
                future.cancel()
                for k in part:
                    self._move(k)
                    pending[self._submit([k], method, args)] = [k]

    def _move(self, k: int) -> None:
        """Another home for a shard that was lost."""
        self._sent.discard(k)
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
            if self._homes.get(k) not in alive:
                load = Counter(self._homes.values())
                self._homes[k] = min(alive, key=lambda home: load[home])

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


@contextmanager
def _keeping_freed_memory() -> Iterator[None]:
    """For workers that Dask starts meanwhile; variables that the user has set come first."""
    config, place = importlib.import_module("dask.config"), "distributed.nanny.pre-spawn-environ"
    usual = config.get(place)
    for name in KEEP_FREED_MEMORY:
        # An earlier cluster of this process has left Dask's choice in the environment.
        if os.environ.get(name) == str(usual.get(name)):
            del os.environ[name]
    with config.set({place: usual | KEEP_FREED_MEMORY}):
        yield


def _lost_errors() -> tuple[type[BaseException], ...]:
    """What a future raises whose worker is gone."""
    return (_distributed().KilledWorker, CancelledError, OSError)


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise MetaKelError("Dask is not installed: pip install metakel[dask]") from None
