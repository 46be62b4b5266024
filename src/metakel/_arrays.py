"""Numbers and arrays from outside, checked once where they enter; threads that share them.

A decision is thousands of products and solves of small matrices. BLAS spreads each of them over all
cores, which costs more than it gains, and many times as much where the cores are busy. Locks are
free in a fork, which has no thread that holds one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ContextDecorator
from functools import cache, cached_property
from math import inf
from numbers import Real
from reprlib import repr as shortened
from sys import float_info
from threading import Lock, RLock
from typing import Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, ShapeError

Array = NDArray[np.float64]

# As a lower bound it means "above 0".
TINY = float_info.min
# Squares are multiplied with squares, and the range of a float ends at 1e308.
EXTREME = 1e70


# Beyond this no interval can be computed, and a value says no more than "failed".
LARGEST = 1e50


def is_number(value: Any) -> bool:
    """Whether it is a real number; True and False are not, though Python counts with them.

    Nor are whole numbers beyond the range of a float.
    """
    if isinstance(value, int):
        return not isinstance(value, bool) and -float_info.max <= value <= float_info.max
    return isinstance(value, Real) and not isinstance(value, np.timedelta64)


def shown(value: Any) -> str:
    """A value for a message, which may be a number of a million digits, or fail to show itself."""
    if isinstance(value, int) and not -(10**60) < value < 10**60:
        return f"a whole number of about {int(value.bit_length() * 0.30103) + 1} digits"
    try:
        return repr(value)
    except Exception:  # whatever an object of others raises
        return f"an object of {type(value).__name__}, which cannot be shown"


def is_integer(value: Any) -> bool:
    """Whether it is an integer of Python or NumPy; 12.0 and True are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def as_number(name: str, value: Any, low: float = -inf, below: float = inf) -> float:
    """A finite number with low <= value < below, as a float."""
    if not (is_number(value) and -inf < value and low <= value < below):
        raise InputError(f"{name} is {shown(value)}; expected {_in_range('a number', low, below)}")
    return float(value)


def probability(name: str, value: Any) -> float:
    """A number between 0 and 1, neither of them."""
    if not (is_number(value) and 0 < value < 1):
        raise InputError(f"{name} is {shown(value)}; expected a number between 0 and 1")
    return float(value)


def positive(name: str, value: Any) -> float:
    """A number above 0 whose powers stay within the range of a float."""
    if not (is_number(value) and 0 < value < inf):
        raise InputError(f"{name} is {shown(value)}; expected a positive number")
    number = float(value)
    if not 1 / EXTREME <= number <= EXTREME:
        raise InputError(
            f"{name} is {shown(value)}; expected a number from {1 / EXTREME:g} to {EXTREME:g}, so "
            "that products of squares stay within the range of a float. Use other units"
        )
    return number


def as_numbers(
    name: str,
    values: Any,
    shape: Sequence[int | None] | None = None,
    *,
    low: float = -inf,
    below: float = inf,
) -> Array:
    """A new array of finite numbers in [low, below); None in ``shape`` is any size."""
    _refuse_hidden(values, name)
    try:
        found = np.array(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        raise InputError(f"{name} is {shortened(values)}; expected numbers") from None
    if shape is not None and not (
        found.ndim == len(shape)
        and all(size in (None, n) for size, n in zip(shape, found.shape, strict=True))
    ):
        sizes = ", ".join("n" if size is None else str(size) for size in shape)
        raise ShapeError(f"{name} has shape {found.shape}; expected ({sizes})")
    wrong = ~(np.isfinite(found) & (found >= low) & (found < below))
    if wrong.any():
        expected = _in_range("numbers", low, below)
        raise InputError(f"{name} holds {found[wrong][0]}; expected {expected}")
    return found


def one_each(name: str, values: Any, n: int) -> Array:
    """(n,) numbers, one for every observation; a single one stands for all."""
    found = np.array(values, dtype=np.float64)
    if found.ndim == 0:
        return np.full(n, float(found))
    if found.shape != (n,):
        raise ShapeError(
            f"{name} has shape {found.shape}; expected one number or ({n},), one for every "
            "observation"
        )
    return found


def as_points(X: ArrayLike, where: str) -> Array:
    """Points as a finite ``(n, d0)`` array; a vector is n points of one input each."""
    points = _as_floats(X, f"{where}: X")
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] == 0:
        raise ShapeError(f"{where}: X has shape {points.shape}; expected (n, d0) with d0 >= 1")
    _check_finite(points, f"{where}: X")
    return points


def as_values(y: ArrayLike, n: int, where: str) -> Array:
    """Observed values as a finite ``(n,)`` array; a column ``(n, 1)`` is read as one."""
    values = _as_floats(y, f"{where}: y")
    if values.shape == (n, 1):
        values = values.reshape(n)
    if values.shape != (n,):
        raise ShapeError(
            f"{where}: X has {n} rows but y has shape {values.shape}; "
            "a task pairs X of shape (n, d0) with y of shape (n,)"
        )
    _check_finite(values, f"{where}: y")
    return values


def check_count(name: str, value: Any) -> None:
    """Refuse what is not an integer of at least 1."""
    if not is_integer(value) or value < 1:
        raise InputError(f"{name} is {shown(value)}; expected an integer >= 1")


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Refuse what is not one of the known names."""
    if not isinstance(value, str) or value not in known:
        *others, last = map(repr, known)
        raise InputError(f"{name} is {shown(value)}; expected {', '.join(others)} or {last}")


def check_generator(rng: Any) -> None:
    """Refuse a seed: the caller decides what is drawn, and in which order."""
    if not isinstance(rng, np.random.Generator):
        seed = rng if is_integer(rng) else 0
        raise InputError(
            f"rng is {rng!r}; expected a numpy.random.Generator, as "
            f"numpy.random.default_rng({seed}) gives"
        )


def as_generator(rng: Any = None, seed: int | None = None) -> np.random.Generator:
    """The generator that was given, or one of a seed; without either, always the same."""
    if rng is None:
        return np.random.default_rng(0 if seed is None else seed)
    if seed is not None:
        raise InputError(f"rng and seed={seed!r} are given; expected one of them")
    check_generator(rng)
    return cast("np.random.Generator", rng)


def _in_range(noun: str, low: float, below: float) -> str:
    if below < inf:
        return f"{noun} in [{low:g}, {below:g})"
    if low == -inf:
        return f"{noun}, not inf or nan"
    return f"{noun} > 0" if low == TINY else f"{noun} >= {low:g}"


def _as_floats(values: Any, what: str) -> Array:
    _refuse_hidden(values, what)
    try:
        return np.array(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be read as an array of numbers: {error}") from None


def _refuse_hidden(values: Any, what: str) -> None:
    """An array made of a masked one holds what the mask should hide."""
    if np.ma.is_masked(values):
        raise InputError(f"{what} is masked in places; drop or impute what is missing first")


def _check_finite(values: Array, what: str) -> None:
    if not np.isfinite(values).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(
            f"{what} holds {values[first]} at index {first if len(first) > 1 else first[0]}; "
            "expected finite numbers (drop or impute the row first)"
        )


def refuse_masked(name: str, values: Any) -> None:
    """Refuse missing entries of a masked array, which look like numbers when they are read."""
    entries = values if isinstance(values, list | tuple) else [values]
    if any(np.ma.is_masked(entry) for entry in entries):
        raise InputError(
            f"{name} is masked: it is missing; expected a number, or None for a failed run"
        )


@cache
def _blas_libraries() -> list[Any]:
    """Of BLAS; none without threadpoolctl, which comes with most extras."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    import scipy.linalg  # noqa: F401  it brings a library of its own, which must be loaded by now

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class SingleBlasThread(ContextDecorator):
    """Limit BLAS to one thread while a block or a decorated function runs.

    The limit is one of the process: the first block that is entered sets it and the last that is
    left, in whatever thread, takes it back.
    """

    _lock = Lock()
    _inside = 0
    _before: ClassVar[list[tuple[Any, int]]] = []  # libraries that had more threads

    def __enter__(self) -> Self:
        kind = type(self)
        with kind._lock:
            kind._inside += 1
            if kind._inside == 1:
                found = [(library, library.get_num_threads()) for library in _blas_libraries()]
                kind._before = [(library, threads) for library, threads in found if threads != 1]
                for library, _ in kind._before:
                    library.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        kind = type(self)
        with kind._lock:
            kind._inside = max(kind._inside - 1, 0)
            if kind._inside == 0:
                # Empty in a forked child that leaves a block of its parent.
                for library, threads in kind._before:
                    library.set_num_threads(threads)
                kind._before = []


def _after_fork() -> None:
    """The thread that held the lock is not in the child, and nobody is inside a block there."""
    SingleBlasThread._lock = Lock()
    SingleBlasThread._inside, SingleBlasThread._before = 0, []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

single_blas_thread = SingleBlasThread()


_OWNERS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def lock_of(owner: object, name: str) -> AbstractContextManager[Any]:
    """A lock that an object keeps under this name; in a fork it gets another one."""
    _OWNERS[owner] = name
    return RLock()


def _renew() -> None:
    for owner, name in list(_OWNERS.items()):
        setattr(owner, name, RLock())
    if sys.version_info < (3, 12):  # there, a property is computed by one thread at a time
        modules = [m for n, m in sys.modules.items() if n.partition(".")[0] == "metakel"]
        classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
        for entry in (entry for c in classes for entry in vars(c).values()):
            if isinstance(entry, cached_property):
                vars(entry)["lock"] = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
