"""Parameters and names of several studies, brought together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from numbers import Real

from metakel.errors import InputError
from metakel.space import Categorical, Float, Integer, Ordinal, Parameter, Space


def joint_space(found: Iterable[Parameter]) -> Space:
    """The parameters of all studies, with ranges wide enough for each."""
    known: dict[str, Parameter] = {}
    for parameter in found:
        name = parameter.name
        known[name] = widen(known[name], parameter) if name in known else parameter
    if not known:
        raise InputError("the studies have no trials with parameters")
    return Space(tuple(known.values()))


def widen(a: Parameter, b: Parameter) -> Parameter:
    """A parameter that takes the values of both."""
    if a == b:
        return a
    if isinstance(a, Categorical) and isinstance(b, Categorical):
        return Categorical(a.name, tuple(dict.fromkeys((*a.values, *b.values))))
    if isinstance(a, Ordinal) and isinstance(b, Ordinal):
        values = {*a.values, *b.values}
        if all(isinstance(value, Real) for value in values):
            return Ordinal(a.name, tuple(sorted(values)))
    if isinstance(a, Float) and isinstance(b, Float) and type(a) is type(b) and a.log == b.log:
        low, high = min(a.low, b.low), max(a.high, b.high)
        whole = isinstance(a, Integer)
        step = a.step if a.step == b.step and a.low == b.low else (1 if whole else None)
        return type(a)(a.name, low, high, a.log, step)
    raise InputError(
        f"parameter {a.name!r} is {a.describe()} in one study and {b.describe()} in another; "
        "expected one type and scale"
    )


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number where several are the same."""
    times, taken = Counter(names), set(names)
    numbers = {name: count(1) for name in times}
    found = []
    for name in names:
        if times[name] > 1:
            name = next(new for i in numbers[name] if (new := f"{name} ({i})") not in taken)
        found.append(name)
    return found
