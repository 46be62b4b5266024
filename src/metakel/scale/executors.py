"""Who asks the shards: this process, or (`on_dask`) workers anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from metakel.errors import ShardError
from metakel.scale.shard import Recipe, Shard

Done = Callable[[int], None]


class Executor(Protocol):
    """Holds shards and asks them."""

    floats: int  # numbers that came back so far
    calls: int  # questions asked so far

    @property
    def workers(self) -> int:
        """How many processes share the shards."""
        ...

    def add(self, recipe: Recipe) -> int:
        """A new shard; its number."""
        ...

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], done: Done
    ) -> list[Any]:
        """Answers in the order of ``shards``; a `ShardError` stands in its shard's place.

        ``done`` is told how many shards have answered, whenever another one has.
        """
        ...

    def close(self) -> None:
        """Forget the shards."""
        ...


class InProcess:
    """Shards in this process, asked one after the other."""

    workers = 1

    def __init__(self) -> None:
        self._shards: list[Shard] = []
        self.floats = self.calls = 0

    def add(self, recipe: Recipe) -> int:
        self._shards.append(Shard(recipe))
        return len(self._shards) - 1

    def call(
        self, method: str, shards: Sequence[int], args: tuple[Any, ...], done: Done
    ) -> list[Any]:
        answers = []
        for k in shards:
            answers.append(answer(self._shards[k], method, args))
            done(len(answers))
        self.calls += 1
        self.floats += sum(map(numbers_in, answers))
        return answers

    def close(self) -> None:
        self._shards = []


def answer(shard: Shard, method: str, args: tuple[Any, ...]) -> Any:
    """What the shard says, or the `ShardError` it raises."""
    try:
        return getattr(shard, method)(*args)
    except ShardError as error:
        return error


def numbers_in(result: Any) -> int:
    """How many numbers an answer holds."""
    if isinstance(result, np.ndarray):
        return int(result.size)
    return sum(np.size(value) for value in getattr(result, "__dict__", {}).values())
