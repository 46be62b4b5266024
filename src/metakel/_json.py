"""JSON documents with the name and version of their format; numbers are read back bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metakel._files import write_atomically
from metakel.errors import InputError, MetaKelError

Content = dict[str, Any]
# What reading a wrong entry may raise.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Format:
    """One kind of document.

    Parameters
    ----------
    name : str
        For example "metakel.Prior"; stored in every document.
    version : int
        The version that is written.
    noun : str
        What messages call the stored object, for example "prior".
    upgrades : mapping of int to callable
        Turns the content of an older version into that of the version after it.
    """

    name: str
    version: int
    noun: str
    upgrades: Mapping[int, Callable[[Content], Content]] = field(default_factory=dict)

    def dump(self, content: Mapping[str, Any]) -> Content:
        """The document that holds this content."""
        return {"format": self.name, "version": self.version, **content}

    @contextmanager
    def load(self, data: Any, what: str | None = None) -> Iterator[Content]:
        """The content of a document, in the current version, for the block that reads it.

        Whatever is wrong with the document, or found wrong by the block, becomes an `InputError`
        that names ``what``: a file, or "stored ..." by default.
        """
        what = what or f"stored {self.noun}"
        content = dict(data) if isinstance(data, Mapping) else {}
        name, version = content.pop("format", None), content.pop("version", None)
        if name != self.name or not self._reads(version):
            raise InputError(
                f"{what} has format {name!r}, version {version!r}; "
                f"expected {self.name!r}, version {self.version}"
            )
        try:
            for older in range(version, self.version):
                content = self.upgrades[older](content)
            yield content
        except MetaKelError as error:
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
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"there is no file {path}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a saved {self.noun}: not text ({error})") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        with self.load(self.parse(text, str(path)), str(path)) as content:
            yield content

    def _reads(self, version: Any) -> bool:
        return type(version) is int and version in (self.version, *self.upgrades)


def write_file(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a document of any format; on an error the old file is still there."""
    write_atomically(path, json.dumps(document, allow_nan=False))
