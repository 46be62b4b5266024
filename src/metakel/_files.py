"""Files that are replaced as a whole or not at all; JSON documents with a format and a version."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from metakel.errors import CannotWrite, InputError, MetaKelError

# A file that unpacks to more than so many bytes, and more than so many times its size, is refused.
UNPACKED, UNPACKED_RATIO = 1 << 26, 100
UNPACKED_VARIABLE = "METAKEL_LARGEST_UNPACKED"  # in bytes


def as_path(path: str | Path) -> Path:
    """A path that a system can take."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is no path: it holds a NUL character")
    return Path(path)


def refuse_device(path: Path) -> None:
    """Reading a device may never end, and opening a pipe may wait for ever."""
    if path.exists() and not stat.S_ISREG(os.stat(path).st_mode):
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise InputError(f"{path} is {what}; expected a file")


def read_text(path: str | Path, what: str) -> str:
    """The text of a file that should be ``what``; every error names the file."""
    file = as_path(path)
    try:
        refuse_device(file)
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not {what}: not text ({error})") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def refuse_bomb(file: Path, unpacked: int) -> None:
    """Refuse a packed file that would fill the memory: no honest table shrinks that much."""
    size, given = os.stat(file).st_size, os.environ.get(UNPACKED_VARIABLE, "")
    if given and not (given.isascii() and given.isdecimal()):
        raise InputError(f"{UNPACKED_VARIABLE} is {given!r}; expected a number of bytes")
    limit = int(given) if given else max(UNPACKED, UNPACKED_RATIO * size)
    if unpacked > limit:
        raise InputError(
            f"{file.name} unpacks to more than {limit >> 20} MB, from {size:,} bytes; if it is a "
            f"table nevertheless, set {UNPACKED_VARIABLE} to more bytes"
        )


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn errors of the operating system into a `CannotWrite` that names the file."""
    try:
        yield
    except (MetaKelError, BrokenPipeError):
        raise
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from error


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replace a file; after an error or a crash at any time, its old content is still there.

    A link is followed. Devices and pipes, which hold nothing to protect, are written to directly.
    """
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")  # half a character, as of a bad name
    path = as_path(path)
    with writing(path):
        target = Path(os.path.realpath(path))
        mode = _existing_mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            target.write_bytes(content)
            return
        temporary = target.with_name(f".{token_hex(8)}.tmp")
        try:
            write_new(temporary, content, 0o666 if mode is None else 0o600)
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(target.parent)


def _existing_mode(target: Path) -> int | None:
    """Mode of the file that would be replaced; refused where it is protected against writing."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


def write_new(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file, by default as any new file, and wait until it is on disk."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the new name is on disk, where the system can tell."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not offered by the file system
            raise
    finally:
        os.close(descriptor)


Content = dict[str, Any]
# What reading a wrong entry may raise.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Format:
    """One kind of document."""

    name: str  # for example "metakel.Prior"; stored in every document
    version: int  # that is written, and the only one that is read
    noun: str  # what messages call the stored object, for example "prior"

    def dump(self, content: Mapping[str, Any]) -> Content:
        """The document that holds this content."""
        return {"format": self.name, "version": self.version, **content}

    @contextmanager
    def load(self, data: Any, what: str | None = None) -> Iterator[Content]:
        """The content of a document, for the block that reads it.

        Whatever is wrong with the document, or found wrong by the block, becomes an `InputError`
        that names ``what``: a file, or "stored ..." by default.
        """
        what = what or f"stored {self.noun}"
        content = dict(data) if isinstance(data, Mapping) else {}
        name, version = content.pop("format", None), content.pop("version", None)
        if name != self.name or type(version) is not int or version != self.version:
            raise InputError(
                f"{what} has format {name!r}, version {version!r}; "
                f"expected {self.name!r}, version {self.version}"
            )
        try:
            yield content
        except MetaKelError as error:
            if str(error).startswith(what):
                raise
            raise InputError(f"{what}: {error}") from error
        except DAMAGE as error:
            raise InputError(f"{what} is damaged: {error!r}") from error

    def parse(self, text: str, what: str | None = None) -> Any:
        """What a JSON text holds."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:  # the second by brackets within brackets
            what = what or "text"
            raise InputError(f"{what} is not a saved {self.noun}: not JSON ({error})") from None

    @contextmanager
    def read_file(self, path: str | Path) -> Iterator[Content]:
        """`load` a document that `write_file` wrote; every error names the file."""
        text = read_text(path, f"a saved {self.noun}")
        with self.load(self.parse(text, str(path)), str(path)) as content:
            yield content


def write_file(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a document of any format; on an error the old file is still there."""
    write_atomically(path, json.dumps(document, allow_nan=False))
