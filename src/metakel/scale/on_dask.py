"""Shards held by Dask workers.

A worker keeps its shards in a table of its own process; the driver asks by name and sends the
recipe only where the answer is that the shard is not there. So a lost worker costs the making of
its shards on another one, and nothing else: answers depend on the arguments alone.
"""

from __future__ import annotations

import importlib
import logging
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

from metakel.errors import MetaKelError
from metakel.scale.executors import Done, answer, numbers_in
from metakel.scale.shard import Recipe, Shard

LOG = logging.getLogger("metakel")
POLL = 0.5  # seconds between looks at who is still alive
PATIENCE_FOR_ANSWER = 2.0  # seconds for an answer that is said to be there
PATIENCE = 60.0  # seconds to wait for any worker at all
MISSING = "missing"
LOOPBACK = "127.0.0.1"

_TABLE: dict[str, Shard] = {}  # of a worker's process
_LOCK = threading.Lock()


def ask(name: str, recipe: Recipe | None, method: str, args: tuple[Any, ...]) -> Any:
    """Runs on a worker."""
    with _LOCK:
        if name not in _TABLE and recipe is not None:
            _TABLE[name] = Shard(recipe)
        shard = _TABLE.get(name)
    return MISSING if shard is None else answer(shard, method, args)


def forget(prefix: str) -> None:
    """Runs on a worker: drop all shards of one learning."""
    with _LOCK:
        for name in [name for name in _TABLE if name.startswith(prefix)]:
            del _TABLE[name]


class OnDask:
    """Shards on the workers of a Dask client, which is used as it is."""

    def __init__(self, client: Any, *, owned: bool = False) -> None:
        self.client = client
        self.floats = self.calls = 0
        self._owned = owned
        self._prefix = uuid.uuid4().hex
        self._recipes: list[Recipe] = []
        self._homes: list[str | None] = []
        self._made: set[int] = set()  # shards that some worker has made before

    @classmethod
    def local(cls, workers: int) -> OnDask:
        """A cluster of processes on this machine, which no other machine can reach."""
        distributed = _dask()
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

    def add(self, recipe: Recipe) -> int:
        self._recipes.append(recipe)
        self._homes.append(None)
        return len(self._recipes) - 1

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], done: Done
    ) -> list[Any]:
        distributed = _dask()
        answers: dict[int, Any] = {}
        self._settle([k for k in shards if self._homes[k] is None])
        pending = {self._submit(k, method, args, fresh=k not in self._made): k for k in shards}
        while pending:
            finished = self._finished(pending)
            stuck = not finished
            for future in finished:
                k = pending[future]
                try:
                    # A worker may die between its answer and our asking for it.
                    found = future.result(timeout=PATIENCE_FOR_ANSWER)
                except TimeoutError:
                    stuck = True
                    continue
                except (distributed.KilledWorker, CancelledError, OSError):
                    found = MISSING
                del pending[future]
                future.release()
                if isinstance(found, str) and found == MISSING:
                    self._move(k)
                    pending[self._submit(k, method, args, fresh=True)] = k
                else:
                    answers[k] = found
                    self._made.add(k)
                    done(len(answers))
            if stuck:
                self._rescue(pending, method, args)
        self.calls += 1
        self.floats += sum(map(numbers_in, answers.values()))
        return [answers[k] for k in shards]

    def _submit(self, k: int, method: str, args: tuple[Any, ...], *, fresh: bool) -> Any:
        recipe = self._recipes[k] if fresh else None
        return self.client.submit(
            ask, f"{self._prefix}-{k}", recipe, method, args, workers=[self._homes[k]], pure=False
        )

    def _finished(self, pending: dict[Any, int]) -> list[Any]:
        """Whatever has an answer when all have one, or after a while."""
        try:
            _dask().wait(list(pending), timeout=POLL)
        except TimeoutError:
            return [future for future in pending if future.done()]
        return list(pending)

    def _rescue(self, pending: dict[Any, int], method: str, args: tuple[Any, ...]) -> None:
        """Ask again, elsewhere, what was asked of workers that are gone."""
        alive = self._alive()
        for future, k in list(pending.items()):
            if self._homes[k] not in alive:
                del pending[future]
                future.cancel()
                self._move(k)
                pending[self._submit(k, method, args, fresh=True)] = k

    def _move(self, k: int) -> None:
        """Another home for a shard that was lost."""
        self._settle([k])
        count = len(self._recipes[k].sources)
        LOG.warning(
            "shard %d (%d source%s) was lost with its worker; it is made again on %s",
            k, count, "s" if count > 1 else "", self._homes[k],
        )  # fmt: skip

    def _settle(self, shards: Sequence[int]) -> None:
        """Give every shard whose home is not alive another one: where the fewest live."""
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
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise MetaKelError(
                f"no Dask worker is left, and none came back within {PATIENCE:.0f} s"
            ) from None

    def _alive(self) -> list[str]:
        return list(self.client.nthreads())

    def close(self) -> None:
        if self._owned:
            cluster = self.client.cluster
            self.client.close()
            cluster.close()
        elif self.client.status == "running":
            self.client.run(forget, self._prefix)


def _dask() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise MetaKelError("Dask is not installed: pip install metakel[dask]") from None
