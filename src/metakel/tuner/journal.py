"""An append-only record of events on disk: one JSON line each, safe before `append` returns.

A writer that is killed can leave an unfinished last line. Its event was never confirmed to anybody:
the next writer removes it, and a reader does not see it. Nothing else is ever taken from a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock, get_ident
from typing import Any
from weakref import WeakSet

from metakel.errors import InputError, MetaKelError
from metakel.tuner.lock import locked

FORMAT = "metakel.journal"
Event = dict[str, Any]

# The first bytes of every journal.
BEGINNING = json.dumps({"event": "started", "format": FORMAT})[:-1].encode()


class JournalError(MetaKelError, OSError):
    """The journal cannot be opened, read or written; nothing was recorded."""


class Journal:
    """Events in a file that several processes may share, or in memory where there is no path."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        # The process may change its folder.
        self.place = None if path is None else Path(path).absolute()
        self.line = 0  # how many were read so far
        self._offset, self._last = 0, b""  # where the last line read ends, and that line
        self._memory: list[Event] = []
        self._descriptor: int | None = None
        self._file: os.stat_result | None = None  # which file it is, once it was seen
        self._threads, self._locked = RLock(), False
        self._holder: int | None = None  # the thread whose turn it is
        _OPEN.add(self)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else writes meanwhile. Opens the file, and creates it where there is none."""
        with self._threads, self._noted_holder():
            if self.path is None or self._locked:  # a turn within a turn does not end it
                yield
                return
            descriptor = self._open()
            with locked(descriptor, str(self.path)):
                self._refuse_another()
                self._mend(descriptor)
                self._locked = True
                try:
                    yield
                finally:
                    self._locked = False

    @property
    def held(self) -> bool:
        """Whether this thread is within its turn."""
        return self._holder == get_ident()

    @contextmanager
    def _noted_holder(self) -> Iterator[None]:
        before, self._holder = self._holder, get_ident()
        try:
            yield
        finally:
            self._holder = before

    def read(self) -> list[Event]:
        """Events that came since the last call."""
        with self.reading() as events:
            return events

    @contextmanager
    def reading(self) -> Iterator[list[Event]]:
        """The same, for who may refuse them: they count as read when this ends without an error."""
        if self.path is None:
            yield self._memory[self.line :]
            self.line = len(self._memory)
            return
        events, lines = [], self._unread().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # unfinished, by a writer that is at work or was killed
        for number, line in enumerate(lines, start=self.line + 1):
            event = parsed(line)
            if event is None:
                where = f"{self.path}, line {number}" + " (is it a journal?)" * (number == 1)
                raise InputError(f"{where}: found {line[:60]!r}; expected an event")
            events.append(event)
        yield events
        self.line += len(lines)
        self._offset += sum(map(len, lines))
        self._last = lines[-1] if lines else self._last

    def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Write events and wait until they are on disk; within `exclusive`.

        All of them are recorded or none. They come back by `read`, like everybody's.
        """
        text = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events).encode()
        if self.path is None:
            self._memory += [json.loads(line) for line in text.splitlines()]
            return
        descriptor = self._open()
        end = os.lseek(descriptor, 0, os.SEEK_END)
        self._write(descriptor, text, end)
        self._refuse_another()

    def _write(self, descriptor: int, text: bytes, end: int) -> None:
        """At the end of the file; where it cannot be, the file is as it was."""
        try:
            while text:
                text = text[os.write(descriptor, text) :]
            os.fsync(descriptor)
        except OSError as error:
            with suppress(OSError):  # else the next writer does it
                os.ftruncate(descriptor, end)
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from error

    def _unread(self) -> bytes:
        """What follows the last line read, in the file that it was read from."""
        assert self.place is not None
        try:
            with self.place.open("rb") as stream:
                self._recognise(os.fstat(stream.fileno()))
                stream.seek(self._offset - len(self._last))
                text = stream.read()
        except FileNotFoundError:
            if self._file is None:
                return b""
            raise self._lost("removed") from None
        except JournalError:
            raise
        except OSError as error:
            raise JournalError(f"{self.path} cannot be read: {error.strerror}") from error
        if not text.startswith(self._last):
            raise self._lost("rewritten")
        return text[len(self._last) :]

    def _mend(self, descriptor: int) -> None:
        """Remove an unfinished last line of a journal, and of nothing else."""
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if not size:
            return
        os.lseek(descriptor, size - 1, os.SEEK_SET)
        if os.read(descriptor, 1) == b"\n":
            return
        self._unread()  # refuses a file that lacks what was read of it
        os.lseek(descriptor, 0, os.SEEK_SET)
        text = _read_all(descriptor)
        if not (text.startswith(BEGINNING) or BEGINNING.startswith(text)):
            raise InputError(
                f"{self.path} is not a journal, and is left as it is: it begins with "
                f"{text[:60]!r}; expected {BEGINNING.decode()} ..."
            )
        end = text.rfind(b"\n") + 1
        if parsed(text[end:]) is None:
            os.ftruncate(descriptor, end)
        else:  # only the end of the line is lacking, as some editors leave it
            self._write(descriptor, b"\n", size)

    def _open(self) -> int:
        if self._descriptor is None:
            assert self.place is not None
            create = os.O_CREAT if self._file is None else 0
            flags = os.O_RDWR | create | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            try:
                self._descriptor = os.open(self.place, flags, 0o644)
                _sync_folder(self.place.parent)
            except FileNotFoundError as error:
                if self._file is not None:
                    raise self._lost("removed") from None
                raise JournalError(f"{self.path} cannot be opened: {error.strerror}") from error
            except OSError as error:
                raise JournalError(f"{self.path} cannot be opened: {error.strerror}") from error
            self._recognise(os.fstat(self._descriptor))
        return self._descriptor

    def _refuse_another(self) -> None:
        """What is written to a file that has lost its name is lost."""
        assert self.place is not None
        try:
            found = os.stat(self.place)
        except OSError:
            raise self._lost("removed") from None
        self._recognise(found)

    def _recognise(self, found: os.stat_result) -> None:
        if self._file is None:
            self._file = found
        if not os.path.samestat(self._file, found):
            raise self._lost("replaced")

    def _lost(self, what: str) -> JournalError:
        return JournalError(
            f"{self.path} was {what} by another program since it was opened, {self.line} lines "
            "were read of it; nothing more is recorded. Open what is there now with a new Tuner"
        )

    def _leave_to_parent(self) -> None:
        """In a fork: the file, its lock and the turn are the parent's; here it is opened anew.

        A lock ends when the last copy of the descriptor is closed, so a fork that kept its copy
        would hold the lock of a parent that was killed.
        """
        self.close()
        self._threads, self._locked, self._holder = RLock(), False, None

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_OPEN: WeakSet[Journal] = WeakSet()


def _after_fork() -> None:
    for journal in list(_OPEN):
        journal._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def parsed(line: bytes) -> Event | None:
    """The event that a line holds; None for anything else."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _sync_folder(folder: Path) -> None:
    """A new file outlives a power cut only with its entry in the folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
