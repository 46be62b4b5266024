"""Values as JSON and back, by the type hints of their classes.

`encode` turns a frozen dataclass into a dict of its fields, arrays and tuples into lists, and
numbers that are not finite into text. `decode` reads that for a type and says where something is
wrong: ``prior.json.info.runs is 'many'; expected int``. Ranges and shapes are checked by the
classes themselves, in ``__post_init__``.

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

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from metakel.errors import InputError, MetaKelError

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
    if origin in (dict, MappingType):
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
