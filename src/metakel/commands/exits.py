"""Exit codes that a script can rely on, and what leads to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metakel.errors import MetaKelError

UNUSABLE_INPUT = 1
WRONG_USAGE = 2
NOTHING_SUCCEEDED = 3
CANNOT_WRITE = 4
INTERRUPTED = 130


class CannotWrite(MetaKelError, OSError):
    """A result has nowhere to go."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever goes wrong here is about the file that is written."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from error
