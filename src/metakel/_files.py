"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from metakel.errors import CannotWrite, MetaKelError


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
    content = content.encode() if isinstance(content, str) else content
    with writing(path):
        target = Path(os.path.realpath(path))
        mode = _existing_mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            target.write_bytes(content)
            return
        temporary = target.with_name(f".{token_hex(8)}.tmp")
        try:
            _write_new(temporary, content)
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


def _write_new(path: Path, content: bytes) -> None:
    """Write a file with the permissions of any new file, and wait until it is on disk."""
    with open(path, "xb") as file:
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
