"""What was written to a file, read again: whatever is wrong with it is said in one way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metakel.errors import InputError, MetaKelError

VERSION = 1
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def parsed(text: str, what: str) -> Any:
    """What a JSON text holds."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{what} is not JSON: {error}") from None


def check_format(data: Any, what: str, expected: str, expected_version: int = VERSION) -> None:
    """Refuse what was stored by something else, or by another version."""
    found = data if isinstance(data, Mapping) else {}
    name, version = found.get("format"), found.get("version")
    if name != expected or version != expected_version:
        raise InputError(
            f"{what} has format {name!r}, version {version!r}; "
            f"expected {expected!r}, version {expected_version}"
        )


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Entries that are missing or of the wrong kind are damage, and say where."""
    try:
        yield
    except MetaKelError:
        raise
    except DAMAGE as error:
        raise InputError(f"{what} is damaged: {error!r}") from error


@contextmanager
def from_file(path: str | Path) -> Iterator[str]:
    """The text of a file; what is found wrong with it names the file."""
    try:
        yield Path(path).read_text(encoding="utf-8")
    except (UnicodeDecodeError, MetaKelError) as error:
        raise InputError(f"{path}: {error}") from error
