"""What can go wrong, each with the builtin it refines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


class MetaKelError(Exception):
    """Base of every error this library raises on purpose."""


class ShapeError(MetaKelError, ValueError):
    """An array does not have the shape that the place it was given to needs."""


class InputError(MetaKelError, ValueError):
    """A value cannot be used: not finite, out of range, empty, or an unknown name."""


class NotConverged(UserWarning):
    """A solver stopped before its tolerance; the message carries the gap it reached."""


class ShardError(InputError):
    """A part of a history on disk cannot be read; the message says which and why."""


class CannotWrite(MetaKelError, OSError):
    """A result has nowhere to go."""


def check_generator(rng: Any) -> None:
    """Refuse a seed: what is drawn, and after what, is for the caller to decide."""
    if not isinstance(rng, np.random.Generator):
        seed = rng if isinstance(rng, int | np.integer) and not isinstance(rng, bool) else 0
        raise InputError(
            f"rng is {rng!r}; expected a numpy.random.Generator, as "
            f"numpy.random.default_rng({seed}) gives"
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever goes wrong here is about the file that is written."""
    try:
        yield
    except (MetaKelError, BrokenPipeError):
        raise
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from error
