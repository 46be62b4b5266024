"""An append-only record of events on disk: one JSON line each, safe before `append` returns.

A writer that is killed can leave at most an unfinished last line. Its event was never confirmed to
anybody: the next writer removes it, and a reader does not see it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from metakel.errors import InputError, MetaKelError
from metakel.tuner.lock import locked

Event = dict[str, Any]


class JournalError(MetaKelError, OSError):
    """The journal cannot be opened, read or written; nothing was recorded."""


class Journal:
    """Events in a file that several processes may share, or in memory where there is no path."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._offset = 0  # bytes read so far, always the end of a line
        self._line = 0
        self._memory: list[Event] = []
        self._descriptor: int | None = None
        self._process, self._threads, self._depth = os.getpid(), RLock(), 0

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else writes meanwhile. Opens the file, and creates it where there is none."""
        if self._process != os.getpid():  # a fork shares the lock of its parent
            self._process, self._threads, self._descriptor = os.getpid(), RLock(), None
            self._depth = 0
        with self._threads:
            if self.path is None or self._depth:  # a turn within a turn does not end it
                yield
                return
            with locked(self._open()):
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1

    def read(self) -> list[Event]:
        """Events that came since the last call."""
        if self.path is None:
            events, self._line = self._memory[self._line :], len(self._memory)
            return events
        if not self.path.exists():
            return []
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                text = stream.read()
        except OSError as error:
            raise JournalError(f"{self.path} cannot be read: {error.strerror}") from error
        events = []
        for line in text.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break  # unfinished, by a writer that is at work or was killed
            event = _parsed(line)
            if event is None:
                raise InputError(
                    f"{self.path}, line {self._line + 1}: found {line[:60]!r}; expected an event"
                )
            events.append(event)
            self._offset += len(line)
            self._line += 1
        return events

    def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Write events and wait until they are on disk; within `exclusive`.

        All of them are recorded or none. They come back by `read`, like everybody's.
        """
        text = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events).encode()
        if self.path is None:
            self._memory += [json.loads(line) for line in text.splitlines()]
            return
        descriptor = self._open()
        end = self._without_torn_tail(descriptor)
        try:
            _write_all(descriptor, text)
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, end)
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from error

    def _without_torn_tail(self, descriptor: int) -> int:
        """Size of the file after an unfinished last line, if there is one, was removed."""
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size == self._offset:
            return size
        os.lseek(descriptor, self._offset, os.SEEK_SET)
        unread = _read_all(descriptor)
        end = self._offset + unread.rfind(b"\n") + 1
        if end < size:
            os.ftruncate(descriptor, end)
        return end

    def _open(self) -> int:
        if self._descriptor is None:
            assert self.path is not None
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            try:
                self._descriptor = os.open(self.path, flags, 0o644)
                _sync_folder(self.path.parent)
            except OSError as error:
                raise JournalError(f"{self.path} cannot be opened: {error.strerror}") from error
        return self._descriptor

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _parsed(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _sync_folder(folder: Path) -> None:
    """A new file outlives a power cut only with its entry in the folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
