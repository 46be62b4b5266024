"""The errors and warnings of the library, each with the builtin it refines."""

from __future__ import annotations


class MetaKelError(Exception):
    """Base class of the errors that this library raises on purpose."""


class ShapeError(MetaKelError, ValueError):
    """An array has the wrong shape."""


class InputError(MetaKelError, ValueError):
    """A value cannot be used: not finite, out of range, empty, or an unknown name."""


class NotConverged(UserWarning):
    """A solver stopped before its tolerance; the message carries the gap it reached."""


class ShardError(InputError):
    """A part of a history on disk cannot be read; the message says which and why."""


class CannotWrite(MetaKelError, OSError):
    """A file cannot be written; what stood there before is still there."""
