"""Stored values: as JSON by the type hints of their classes, in files that are replaced as a whole.

`encode` turns a frozen dataclass into a dict of its fields, arrays and tuples into lists, and
numbers that are not finite into text. `decode` reads that for a type and says where something is
wrong: ``prior.json.info.runs is 'many'; expected int``. Ranges and shapes are checked by the
classes themselves, in ``__post_init__``. A `Format` wraps it into a document with a version.

A class may say more:

- ``kind``: a family of classes is stored by it. Every subclass of the type that is asked for is
  known.
- ``computed``: names of fields that are not stored.
- ``later``: names of fields that older files lack; they have their defaults.
- ``restored(fields, functions)``: makes the object from the fields that were stored, where some
  are computed again; ``functions`` are those of the user, by name.
- ``to_dict`` and ``from_dict``: a form of its own.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from secrets import token_hex
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

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


Functions = Mapping[str, Callable[..., Any]]
T = TypeVar("T")
NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def encode(value: Any) -> Any:
    """The value as JSON: dicts, lists, text, finite numbers, true, false and null."""
    if isinstance(value, np.ndarray):
        if not value.size and value.ndim > 1:
            return {"shape": list(value.shape)}
        found = value.tolist()
        return found if value.dtype.kind != "f" or np.isfinite(value).all() else encode(found)
    if isinstance(value, float | np.floating):
        return float(value) if isfinite(value) else str(float(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, list | tuple):
        return [encode(one) for one in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): encode(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        return kind | {name: encode(getattr(value, name)) for name in _stored(type(value))}
    raise InputError(f"a {type(value).__name__} cannot be stored")


def decode(hint: type[T], data: Any, where: str, functions: Functions | None = None) -> T:
    """Inverse of `encode` for a value of this type; ``where`` stands in messages."""
    return cast(T, _decode(hint, data, where, functions or {}))


def _decode(hint: Any, data: Any, where: str, functions: Functions) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return data
    if origin is Literal:
        if data not in arguments:
            raise _wrong(where, data, " or ".join(map(repr, arguments)))
        return data
    if origin in (Union, UnionType):
        return _one_of(arguments, data, where, functions)
    if origin is np.ndarray:
        return _array(get_args(arguments[1])[0], data, where)
    if origin is tuple:
        return _tuple(arguments, data, where, functions)
    if origin in (dict, Mapping):
        found = _of(dict, data, where)
        return {n: _decode(arguments[1], v, f"{where}.{n}", functions) for n, v in found.items()}
    if hint is float:
        return _number(data, where)
    if hint in (int, str, bool, NoneType):
        if type(data) is not hint:
            raise _wrong(where, data, hint.__name__)
        return data
    return _object(hint, data, where, functions)


def _object(hint: Any, data: Any, where: str, functions: Functions) -> Any:
    stored = _of(dict, data, where)
    if hasattr(hint, "kind") or "kind" in getattr(hint, "__annotations__", {}):
        known = {cls.kind: cls for cls in _subclasses(hint) if "kind" in vars(cls)}
        if stored.get("kind") not in known:
            expected = "one of the kinds " + ", ".join(sorted(known))
            raise _wrong(f"{where}.kind", stored.get("kind"), expected)
        hint = known[stored["kind"]]
        stored = {name: value for name, value in stored.items() if name != "kind"}
    try:
        if hasattr(hint, "from_dict"):
            return hint.from_dict(stored)
        names, hints = _stored(hint), _hints(hint)
        older = set(getattr(hint, "later", ())) - set(stored)
        names = tuple(name for name in names if name not in older)
        if set(stored) != set(names):
            odd = sorted(set(stored) ^ set(names))[0]
            found = "has an unknown entry" if odd in stored else "has no entry"
            raise InputError(f"{where} {found} {odd!r}; expected {', '.join(names)}")
        parts = {n: _decode(hints[n], stored[n], f"{where}.{n}", functions) for n in names}
        if hasattr(hint, "restored"):
            return hint.restored(parts, functions)
        return hint(**parts)
    except MetaKelError as error:
        if str(error).startswith(where):
            raise
        raise InputError(f"{where}: {error}") from error


def _one_of(hints: Sequence[Any], data: Any, where: str, functions: Functions) -> Any:
    """The first of several types that fits; the last one that could says what is wrong."""
    if data is None and NoneType in hints:
        return None
    hints = [hint for hint in hints if hint is not NoneType]
    objects = [hint for hint in hints if isinstance(hint, type) and is_dataclass(hint)]
    fitting = (objects if isinstance(data, dict) else []) or hints
    for hint in fitting[:-1]:
        try:
            return _decode(hint, data, where, functions)
        except InputError:
            continue
    return _decode(fitting[-1], data, where, functions)


def _tuple(hints: Sequence[Any], data: Any, where: str, functions: Functions) -> tuple[Any, ...]:
    found = _of(list, data, where)
    each = [hints[0]] * len(found) if hints[1:] == (...,) else list(hints)
    if len(each) != len(found):
        raise _wrong(where, data, f"{len(each)} entries")
    pairs = enumerate(zip(each, found, strict=True))
    return tuple(_decode(hint, one, f"{where}[{i}]", functions) for i, (hint, one) in pairs)


def _array(dtype: Any, data: Any, where: str) -> Any:
    if isinstance(data, dict) and set(data) == {"shape"}:
        return np.empty(_tuple((int, ...), data["shape"], f"{where}.shape", {}), dtype)
    kind = np.dtype(dtype).kind
    numbers = _of(list, data, where)
    try:
        found = np.array(numbers)
        if found.dtype.kind in "UO":  # text stands for numbers that are not finite
            found = np.array(_finite(numbers))
        if not found.size or found.dtype.kind in {"f": "fiu", "i": "iu", "b": "b"}[kind]:
            return found.astype(dtype)
    except (OverflowError, TypeError, ValueError):
        pass
    raise _wrong(where, data, "an array of numbers")


def _finite(data: Any) -> Any:
    if isinstance(data, list):
        return [_finite(one) for one in data]
    return NOT_FINITE.get(data, data) if isinstance(data, str) else data


def _number(data: Any, where: str) -> float:
    if isinstance(data, str) and data in NOT_FINITE:
        return NOT_FINITE[data]
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _wrong(where, data, "a number")
    return float(data)


def _of(kind: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, kind):
        raise _wrong(where, data, "a list" if kind is list else "an object")
    return data


def _wrong(where: str, data: Any, expected: str) -> InputError:
    shown = repr(data)
    return InputError(f"{where} is {shown[:60] + (shown[60:] and '...')}; expected {expected}")


@cache
def _stored(cls: type[Any]) -> tuple[str, ...]:
    """Names of the fields that are stored."""
    computed = getattr(cls, "computed", ())
    return tuple(f.name for f in fields(cls) if f.init and f.name not in computed)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [cls, *(deeper for sub in cls.__subclasses__() for deeper in _subclasses(sub))]
