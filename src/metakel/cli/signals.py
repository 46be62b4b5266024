"""Signals that stop a run, without leaving a program behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPING = (
    "SIGINT",
    "SIGTERM",
    "SIGHUP",
    "SIGQUIT",
    "SIGBREAK",
)  # the last is Ctrl-Break on Windows


class StopSignals:
    """Ctrl-C, kill, a closed terminal and quit raise KeyboardInterrupt, but not just anywhere.

    While a program is started or ended (`deferred`) they wait, so that it cannot be lost. Signals
    that were ignored before, as under nohup, stay ignored.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._deferred, self._received = False, False

    def __enter__(self) -> StopSignals:
        for name in STOPPING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        if not self._deferred:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals wait until the end of this block."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Within a deferred block: signals raise here, those that came before at once."""
        try:
            self._deferred = False
            if self._received:
                raise KeyboardInterrupt
            yield
        finally:
            self._deferred = True
