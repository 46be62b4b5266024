"""An append-only log of events on disk: one JSON line each, safe before `append` returns.

What the events amount to, trials and their results, is worked out in `metakel.tuner.fold`.

A writer that is killed can leave an unfinished last line. Its event was never confirmed to anybody:
the next writer removes it, and a reader does not see it. Nothing else is ever taken from a file.

Every line ends with a checksum of itself and of the checksum before it, so that a line that was
changed, removed or moved is noticed. What other programs do to the ends of lines changes no event:
a mark at the beginning of the file, CRLF, and a few empty lines after an event are passed over.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from weakref import WeakSet
from zlib import crc32

from metakel._arrays import lock_of
from metakel._files import as_path, sync_folder
from metakel.errors import Hint, InputError, MetaKelError
from metakel.tuner.lock import take_lock, unlock

LOG = logging.getLogger("metakel")
FORMAT = "metakel.journal"
VERSION = 2
Event = dict[str, Any]
T = TypeVar("T")

# The first bytes of every journal.
BEGINNING = json.dumps({"event": "started", "format": FORMAT})[:-1].encode()
LONGEST_LINE = 1 << 24
MARK = b"\xef\xbb\xbf"  # some editors begin a file with it
EMPTY = 16  # bytes of empty lines that may follow an event
LARGE, BYTES_PER_SECOND = 1 << 26, 15_000_000  # a file whose reading is announced


class JournalError(MetaKelError, OSError):
    """The journal cannot be opened, read or written; the message says if anything was recorded."""


@dataclass
class _Position:
    """How far a file was read: lines, bytes and their checksum, the last line, what it amounts to.

    ``first`` is the checksum of the first line.

    All in one object, which takes the place of another at once: an interrupt leaves both or none.
    """

    line: int = 0
    offset: int = 0
    total: int = 0
    last: bytes = b""
    first: int = 0
    made: Any = None


class Journal:
    """Events in a file that several processes may share, or in memory where there is no path.

    ``made`` is what no event amounts to, for who makes something of them by `fold`.
    """

    def __init__(self, path: str | Path | None = None, made: Any = None) -> None:
        self.path = None if path is None else Path(path)
        # The process may change its folder.
        self.place = None if path is None else as_path(path).absolute()
        self._read = _Position(made=made)
        self._memory: list[Event] = []
        self._descriptor: int | None = None  # open during a turn only
        self._file: os.stat_result | None = None  # which file it is, once it was seen
        self._unchanged: tuple[int, int] | None = None  # size and time when it was as read
        self._threads = lock_of(self, "_threads")
        _JOURNALS.add(self)

    @property
    def line(self) -> int:
        """How many lines were read so far."""
        return self._read.line

    @property
    def made(self) -> Any:
        """What all events that were read amount to."""
        return self._read.made

    def alone(self) -> AbstractContextManager[Any]:
        """No other thread uses this journal meanwhile; other processes may."""
        return self._threads

    def exclusively(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, while nobody else writes; a file is created where there is none.

        Between two calls a Tuner that waits for a value holds nothing. This is no context manager:
        an interrupt just before its ``__exit__`` would leave the file open and locked.
        """
        with self._threads:
            descriptor, outer = None, used_by_this_thread()
            try:
                _THREAD.busy = True
                if self.path is not None and self._descriptor is None:  # no turn within a turn
                    descriptor = self._descriptor = self._open()
                    self._lock(descriptor)
                return work()
            finally:
                _THREAD.busy = outer
                if descriptor is not None and descriptor == self._descriptor:
                    # Forgotten before it is closed: an interrupt in between must not leave the
                    # number of a closed file behind, which may be another file's by then.
                    self._descriptor = None
                    try:
                        unlock(descriptor)
                    finally:
                        _close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            self._recognize(os.fstat(descriptor))
            take_lock(descriptor, str(self.path))
            self._refuse_another()
            self._remove_unfinished_line(descriptor)
        except MetaKelError:
            raise
        except OSError as error:  # a disk that fails, or a file system without locks
            raise JournalError(
                f"{self.path} cannot be locked and continued: {error.strerror}; nothing was "
                "recorded"
            ) from error

    def read(self) -> list[Event]:
        """Events that came since the last call."""
        found: list[Event] = []
        self.fold(found.extend)
        return found

    def fold(self, take: Callable[[Iterator[Event]], Any]) -> None:
        """Let ``take`` make something of them one by one; if it ends by an error, none was read."""
        if self.path is None:
            position = _Position(len(self._memory))
            events = iter(self._memory[self.line : position.line])
        else:
            position = replace(self._read)
            events = self._events(position)
        position.made = take(events)
        self._read = position

    def _events(self, position: _Position) -> Iterator[Event]:
        """Those of complete lines that were not read yet; ``position`` notes how far it came."""
        assert self.place is not None
        seal = checksum(position.last)
        # Before the lines: others may add some meanwhile.
        noted, had = (0, 0) if position.line else noted_count(self.place)
        for line in self._lines():
            if _is_empty(line, position.last):
                position.line += position.last.endswith(b"\n")  # or the end that was lacking
                position.offset += len(line)
                position.total = crc32(line, position.total)
                position.last += line
                continue
            event, seal = _sealed(line if position.line else line.removeprefix(MARK), seal)
            if event is None:
                hint = "" if position.line else " (is it a journal?)"
                wrong = what_is_wrong(line)
                raise InputError(
                    f"{self.path}, line {position.line + 1}{hint}: {wrong}",
                    *([self._remedy] if line.removeprefix(MARK)[:1] == b"{" or not hint else []),
                )
            if not position.line:
                position.first = seal
            position.line += 1
            position.offset += len(line)
            position.total = crc32(line, position.total)
            position.last = line
            yield event
        if position.line < had and position.first in (0, noted) and self.place.exists():
            raise InputError(
                f"{self.path} has {position.line} lines, and had {had} at least: its end was cut "
                "off; put the whole file back",
                self._remedy,
            )

    @property
    def _remedy(self) -> Hint:
        typed = f"`metakel status {self.path} --salvage OUT`"
        return Hint("write what is whole to a new journal", typed, typed)

    def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Write events and wait until they are on disk; within `exclusively`.

        All of them are recorded or none. They come back by `read`, like everybody's. An event whose
        line would be too long to be read is refused.
        """
        if self.path is None:
            self._memory += [json.loads(_as_json(event)) for event in events]
            return
        assert self._descriptor is not None, "append belongs within exclusively"
        found = os.fstat(self._descriptor)
        self._recognize(found)
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        last = self._read.last if end == self._read.offset else _last_line(self._descriptor, end)
        text = encoded(events, last)
        self._write(self._descriptor, text, end)
        if end == self._read.offset and self.place is not None:
            first = self._read.first or checksum(text.partition(b"\n")[0])
            note_count(self.place, first, self._read.line + len(events))
        if self._unchanged == _size_and_time(found):  # nobody else wrote
            self._unchanged = _size_and_time(os.fstat(self._descriptor))
        self._refuse_another()

    def _write(self, descriptor: int, text: bytes, end: int) -> None:
        """At the end of the file; where it cannot be, the file is as it was."""
        try:
            while text:
                text = text[os.write(descriptor, text) :]
            os.fsync(descriptor)
        except OSError as error:
            what = f"{self.path} cannot be written: {error.strerror}"
            try:
                os.ftruncate(descriptor, end)
            except OSError as second:
                raise JournalError(
                    f"{what}; and what was written of it cannot be removed ({second.strerror}), so "
                    "others may see it: look at the journal before you report it again"
                ) from error
            raise JournalError(f"{what}; nothing was recorded") from error

    def _lines(self) -> Iterator[bytes]:
        """Complete lines after the last one read, in the file that it was read from."""
        with self._reading_file() as stream:
            if stream is None:
                return
            known = self._read
            stream.seek(known.offset - len(known.last))
            if stream.read(len(known.last)) != known.last:
                raise self._lost("rewritten")
            found = os.fstat(stream.fileno())
            if self._unchanged != _size_and_time(found):  # somebody wrote: only at the end?
                if _total(stream, known.offset) != known.total:
                    raise self._lost("rewritten")
                self._unchanged = _size_and_time(found)
            self._announce(found.st_size - known.offset)
            while line := stream.readline(LONGEST_LINE):
                if not line.endswith(b"\n"):
                    if len(line) == LONGEST_LINE:
                        raise InputError(
                            f"{self.path} has a line of more than {LONGEST_LINE >> 20} MB; expected"
                            " the events of a journal, one short line each"
                        )
                    ended = not known.line and parsed(line.removeprefix(MARK)) is not None
                    if not (ended or _goes_on(line)):
                        return  # unfinished, by a writer that is at work or was killed
                yield line

    def _announce(self, size: int) -> None:
        if size > LARGE:
            LOG.warning(
                "%s: reading %d MB of events takes about %d s",
                *(self.path, size >> 20, size // BYTES_PER_SECOND),
            )

    @contextmanager
    def _reading_file(self) -> Iterator[BinaryIO | None]:
        """The file; None where it was never there."""
        assert self.place is not None
        try:
            self._refuse_device()
            with self.place.open("rb") as stream:
                self._recognize(os.fstat(stream.fileno()))
                yield stream
        except FileNotFoundError:
            if self._file is not None:
                raise self._lost("removed") from None
            yield None
        except MetaKelError:
            raise
        except OSError as error:
            raise JournalError(f"{self.path} cannot be read: {error.strerror}") from error

    def _remove_unfinished_line(self, descriptor: int) -> None:
        """Of a journal, and of nothing else."""
        size = os.lseek(descriptor, 0, os.SEEK_END)
        last = _last_line(descriptor, size)
        if last.endswith(b"\n") or not last:
            return
        next(self._lines(), None)  # refuses a file that lacks what was read of it
        os.lseek(descriptor, 0, os.SEEK_SET)
        first = os.read(descriptor, len(MARK + BEGINNING)).removeprefix(MARK)[: len(BEGINNING)]
        if not BEGINNING.startswith(first):
            raise InputError(
                f"{self.path} is not a journal, and is left as it is: {what_is_wrong(first)}; a "
                f"journal begins with {BEGINNING.decode()} ..."
            )
        if _goes_on(last):
            raise InputError(
                f"{self.path}, last line: found {last[-20:]!r} at its end; expected a line end; "
                "nothing was recorded",
                self._remedy,
            )
        if parsed(last.removeprefix(MARK)) is None:
            os.ftruncate(descriptor, size - len(last))
        else:  # only the end of the line is lacking, as some editors leave it
            self._write(descriptor, b"\n", size)

    def _open(self) -> int:
        assert self.place is not None
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        flags |= getattr(os, "O_BINARY", 0)  # Windows would change the ends of lines, and offsets
        try:
            self._refuse_device()
            if self._file is not None or self.place.exists():
                return os.open(self.place, flags)
            count_file(self.place).unlink(missing_ok=True)  # of another journal
            descriptor = os.open(self.place, flags | os.O_CREAT, 0o644)
            sync_folder(Path(os.path.realpath(self.place)).parent)  # a link may have led elsewhere
            return descriptor
        except FileNotFoundError as error:
            if self._file is not None:
                raise self._lost("removed") from None
            raise JournalError(f"{self.path} cannot be opened: {error.strerror}") from error
        except OSError as error:
            if isinstance(error, MetaKelError):
                raise
            raise JournalError(f"{self.path} cannot be opened: {error.strerror}") from error

    def _refuse_device(self) -> None:
        """Reading a device may never end, and opening a pipe may wait for ever."""
        assert self.place is not None
        if self.place.exists() and not stat.S_ISREG(os.stat(self.place).st_mode):
            what = "Is a directory" if self.place.is_dir() else "not a regular file"
            raise JournalError(f"{self.path} cannot be opened: {what}")

    def _refuse_another(self) -> None:
        """What is written to a file that has lost its name is lost."""
        assert self.place is not None
        try:
            found = os.stat(self.place)
        except OSError:
            raise self._lost("removed") from None
        self._recognize(found)

    def _recognize(self, found: os.stat_result) -> None:
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
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_JOURNALS: WeakSet[Journal] = WeakSet()
_THREAD = threading.local()


def _after_fork() -> None:
    for journal in list(_JOURNALS):
        journal._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def used_by_this_thread() -> bool:
    """Whether this thread is in the middle of using some journal."""
    return getattr(_THREAD, "busy", False)


def _close(descriptor: int) -> None:
    with suppress(OSError):  # what was written is on disk
        os.close(descriptor)


# Lines

_SEAL = b', "crc": "%08x"}'
SEAL_LENGTH = len(_SEAL % 0)
_PARSER = json.JSONDecoder()  # it skips what `json.loads` finds out anew for every line


def encoded(events: Sequence[Mapping[str, Any]], last: bytes = b"") -> bytes:
    """Lines that follow the line ``last``, with their checksums."""
    lines, before = [], checksum(last)
    for event in events:
        line = _as_json(event)
        before = crc32(line, before)
        lines.append(line[:-1] + _SEAL % before + b"\n")
        if len(lines[-1]) > LONGEST_LINE:
            raise InputError(
                f"an event {event.get('event')!r} of {len(line)} bytes; expected at most "
                f"{LONGEST_LINE >> 20} MB, as a longer line cannot be read; nothing was recorded"
            )
    return b"".join(lines)


def _as_json(event: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(event, allow_nan=False).encode()
    except TypeError as error:
        raise InputError(f"{error}; expected text, numbers, True or False") from None


def _sealed(line: bytes, before: int) -> tuple[Event | None, int]:
    """The event of a line, and its checksum; None where that does not follow the one ``before``."""
    line = line.rstrip(b"\r\n") + b"\n"
    end = len(line) - SEAL_LENGTH - 1
    found = crc32(b"}", crc32(line[:end], before))
    if line[end:] != _SEAL % found + b"\n":
        return None, 0
    return parsed(line[:end] + b"}"), found


def _goes_on(line: bytes) -> bool:
    """Whether something follows the event of an unfinished line, which no writer leaves behind."""
    text = line.removeprefix(MARK).decode("latin-1").rstrip("\r")
    try:
        event, end = _PARSER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and "crc" in event and end < len(text)


def _is_empty(line: bytes, last: bytes) -> bool:
    """Whether a line is one of a few empty ones after the event ``last``."""
    return line in (b"\n", b"\r\n") and bool(last) and bool(last[-EMPTY:].strip(b"\r\n"))


def what_is_wrong(line: bytes) -> str:
    """With a line whose checksum does not follow from the lines before."""
    if line[:8].count(0) > 1:
        return "it is UTF-16; expected UTF-8; save it so, as by `iconv -f UTF-16 -t UTF-8`"
    if parsed(line) is None:
        return f"found {line[:60]!r}; expected an event"
    if line.rstrip(b"\r\n")[-SEAL_LENGTH:] != _SEAL % checksum(line):
        return "it has no checksum; expected one, as on the lines of every journal"
    return "it, or the line before it, was changed after it was written: its checksum differs"


def checksum(line: bytes) -> int:
    """The number at the end of a line; 0 where there is none."""
    try:
        return int(line.rstrip(b"\r\n")[-10:-2], 16)
    except ValueError:
        return 0


def parsed(line: bytes) -> Event | None:
    """The event that a line holds; None for anything else."""
    try:
        event = _PARSER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _size_and_time(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _total(stream: BinaryIO, size: int, block: int = 1 << 20) -> int:
    """The checksum of the first bytes of a file, which ends up behind them."""
    stream.seek(0)
    total = 0
    while size and (text := stream.read(min(size, block))):
        total, size = crc32(text, total), size - len(text)
    return total


def _last_line(descriptor: int, end: int, block: int = 1 << 16) -> bytes:
    """The last line that is not empty, with what follows it; all of an unfinished line."""
    start, text = end, b""
    while start and b"\n" not in text.rstrip(b"\r\n"):
        start = max(start - block, 0)
        os.lseek(descriptor, start, os.SEEK_SET)
        text = os.read(descriptor, end - start)
        block *= 2
    return text[text.rstrip(b"\r\n").rfind(b"\n") + 1 :]


# How many lines a journal had, noted beside it: lines that were cut off leave no other trace. The
# hidden file has the checksum of the first line, by which it knows its journal, and a number of
# lines. It is written after the lines are on disk, so that it never says more than there were.
# Without it, as of a journal that was copied, nothing is lost but this guard.


def count_file(journal: Path) -> Path:
    """Where the number of lines of a journal is noted."""
    place = Path(os.path.realpath(journal))
    return place.with_name(f".{place.name}.count")


def note_count(journal: Path, first: int, lines: int) -> None:
    """Note that it has so many lines; where that cannot be written, it is not noted."""
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with suppress(OSError):
        descriptor = os.open(count_file(journal), flags, 0o644)
        try:
            # As long as before, in one piece.
            os.write(descriptor, b"%08x %012d\n" % (first, lines))
        finally:
            os.close(descriptor)


def noted_count(journal: Path) -> tuple[int, int]:
    """The checksum of its first line, and how many lines it had; 0 where nothing is noted."""
    try:
        first, lines = count_file(journal).read_bytes().split()
        return int(first, 16), int(lines)
    except (OSError, ValueError):
        return 0, 0
