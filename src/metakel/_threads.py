"""One BLAS thread for loops over small matrices.

A decision is thousands of products and solves of small matrices. BLAS spreads each of them over all
cores, which costs more than it gains, and many times as much where the cores are busy.
"""

from __future__ import annotations

import os
from contextlib import ContextDecorator
from functools import cache
from threading import Lock
from typing import Any, ClassVar, Self


@cache
def _libraries() -> list[Any]:
    """Of BLAS; none without threadpoolctl, which comes with most extras."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    import scipy.linalg  # noqa: F401  it brings a library of its own, which must be loaded by now

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class SingleBlasThread(ContextDecorator):
    """Limit BLAS to one thread while a block or a decorated function runs.

    The limit is one of the process: the first block that is entered sets it and the last that is
    left, in whatever thread, takes it back.
    """

    _lock = Lock()
    _inside = 0
    _before: ClassVar[list[tuple[Any, int]]] = []  # libraries that had more threads

    def __enter__(self) -> Self:
        kind = type(self)
        with kind._lock:
            kind._inside += 1
            if kind._inside == 1:
                found = [(library, library.get_num_threads()) for library in _libraries()]
                kind._before = [(library, threads) for library, threads in found if threads != 1]
                for library, _ in kind._before:
                    library.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        kind = type(self)
        with kind._lock:
            kind._inside = max(kind._inside - 1, 0)
            if kind._inside == 0:
                # Empty in a forked child that leaves a block of its parent.
                for library, threads in kind._before:
                    library.set_num_threads(threads)
                kind._before = []


def _after_fork() -> None:
    """The thread that held the lock is not in the child, and nobody is inside a block there."""
    SingleBlasThread._lock = Lock()
    SingleBlasThread._inside, SingleBlasThread._before = 0, []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

single_blas_thread = SingleBlasThread()
