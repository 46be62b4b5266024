"""Spaces that data say: of a table's columns, and of several studies; every guess has a note."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import Hint, InputError, first_of
from metakel.space.configurations import Values, is_numeric, listed, storable, to_python
from metakel.space.parameters import Categorical, Fixed, Float, Integer, Ordinal, Parameter
from metakel.space.space import Space

# Numbers over two decades or more, and more evenly spread on the log scale, are taken on it.
LOG_RATIO = 100.0
MOST_CATEGORIES = 50
# Numbers with more digits were computed, and not written down by people.
MOST_DIGITS = 6
MIN_STEPS = 50
# A physical unit in brackets at the end of a name, as in Temperature (°C).
UNIT = re.compile(
    r"[\[(]\s*(°?[CFK]|h|hrs?|min|s|sec|ms|[mµu]?l|[mk]?g|[mµu]?mol|eq|equiv|m?bar|psi|atm|[kM]?Pa|rpm|"
    r"m?[VA]|k?W|k?Hz|[nµucm]?m|(mol|wt|vol)? ?%|ppm|m?l/min|m/s)\s*[\])]\s*$",
    re.IGNORECASE,
)
# 2024-01-31, 31.1.2024 or 1/31/24, with a time or without.
DATE = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4}|\d{1,2}/\d{1,2}/\d{2})"
    r"([T ]\d{1,2}:\d{2}.*)?"
)
SHOWN = 3  # studies in a note
# A parameter as some studies have it, with the names of those.
Versions = Mapping[Parameter, Sequence[str]]


def infer_space(
    columns: Mapping[str, Values],
    *,
    log: Collection[str] | None = None,
    categories: Collection[str] = (),
) -> tuple[Space, tuple[str, ...]]:
    """Space of a table's input columns, and notes on what was guessed.

    Parameters
    ----------
    columns : mapping from name to a sequence or array of values
        Without missing ones.
    log : names, optional
        Which numbers live on a log scale; by default the data decide.
    categories : names
        Columns of choices without an order, whatever they hold.
    """
    if isinstance(log, str):
        raise InputError(f"log is the text {log!r}; expected names in a list: [{log!r}]")
    for name in log or ():
        if name not in columns:
            raise InputError(f"log scale asked for {name!r}; the inputs are {', '.join(columns)}")
    parameters, notes = [], []
    for name, values in columns.items():
        if not len(values):
            raise InputError(f"column {name!r} has no value in a row that can be used")
        on_log = None if log is None else name in log
        parameter, note = _infer(name, values, on_log, chosen=name in categories)
        parameters.append(parameter)
        notes += [note] if note else []
    return Space(tuple(parameters)), tuple(notes)


def _infer(name: str, values: Values, log: bool | None, *, chosen: bool) -> tuple[Parameter, str]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and not chosen:
        if values.min() == values.max():
            return _fixed(name, values[0].item())
        whole = values.dtype.kind != "f"
    else:
        distinct = _distinct(listed(values))
        if len(distinct) == 1 and storable(to_python(distinct[0])):
            return _fixed(name, distinct[0])
        if chosen or not all(map(is_numeric, distinct)):
            return _choices(name, distinct, log, chosen=chosen)
        # Integers of more than 64 bits are numbers, but no counts.
        whole = all(isinstance(v, int | np.integer) and abs(int(v)) < 2**63 for v in distinct)
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except OverflowError:
        raise InputError(
            f"column {name!r} holds an integer that is too large for a float"
        ) from None
    low, high = float(numbers.min()), float(numbers.max())
    on_log = _looks_log(numbers) if log is None else log
    guessed = f"{name} is taken on a log scale, as its values span {low:.3g} to {high:.3g}"
    note = guessed if on_log and log is None else ""
    # What was measured with a unit is no count, also if all values are whole numbers.
    if whole and UNIT.search(name) and not on_log:
        return Float(name, low, high, digits=0), note
    if whole:
        return Integer(name, int(low), int(high), on_log), note
    return Float(name, low, high, on_log, digits=_digits(numbers, log=on_log)), note


def _digits(numbers: Array, *, log: bool) -> int | None:
    """Decimals that the numbers are written with, on a log scale significant digits, if few.

    There are enough of them for `MIN_STEPS` different values, whatever the numbers have.
    """
    values = np.unique(numbers)
    if log:
        fits = (
            d for d in range(2, MOST_DIGITS + 1) if all(float(f"{v:.{d}g}") == v for v in values)
        )
        return next(fits, None)
    for digits in range(MOST_DIGITS + 1):
        if (np.round(values, digits) == values).all():
            steps = (values[-1] - values[0]) * 10.0**digits
            return digits if steps >= MIN_STEPS else digits + 1
    return None


def _distinct(values: list[Any]) -> list[Any]:
    """Each value once; those that cannot be hashed, as dicts, as often as they are there."""
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        return values


def _fixed(name: str, value: Any) -> tuple[Parameter, str]:
    return Fixed(name, value), f"{name} never varies and is kept fixed at {value}"


def _choices(
    name: str, distinct: Sequence[Any], log: bool | None, *, chosen: bool
) -> tuple[Parameter, str]:
    """Choices, with a note on those that differ only by case or spaces; others are refused."""
    for odd in (v for v in distinct if not storable(to_python(v))):
        raise InputError(
            f"column {name!r} holds {odd!r}; expected numbers, text or true and false: write it "
            "as one of them, or name the inputs you mean"
        )
    if log:
        shown = ", ".join(map(repr, distinct[:3]))
        raise InputError(f"log scale asked for {name!r}, which holds {shown}; expected numbers")
    if not chosen and all(isinstance(v, str) and DATE.fullmatch(v.strip()) for v in distinct):
        raise InputError(
            f"column {name!r} holds dates ({distinct[0]!r}); expected numbers, text or true and "
            "false",
            Hint("name the inputs you mean", "inputs=[...]", "--input NAME"),
            Hint("take it as choices", f"categories=[{name!r}]", f"--category {name!r}"),
        )
    if len(distinct) > MOST_CATEGORIES:
        raise InputError(
            f"column {name!r} holds text with {len(distinct)} distinct values "
            f"(e.g. {distinct[0]!r}); expected an input, so name the inputs you mean"
        )
    ordered = sorted(distinct, key=lambda v: (str(type(v)), v))
    plain = {v: " ".join(v.split()).lower() for v in ordered if isinstance(v, str)}
    first = {text: v for v, text in reversed(plain.items())}
    twins = [(first[text], v) for v, text in plain.items() if first[text] != v]
    note = f"{name} has {twins[0][0]!r} and {twins[0][1]!r}, taken as two choices" if twins else ""
    return Categorical(name, tuple(ordered)), note


def _looks_log(numbers: Array) -> bool:
    low, high = numbers.min(), numbers.max()
    if low <= 0 or high / low < LOG_RATIO:
        return False
    median = float(np.median(numbers))
    plain = (median - low) / (high - low)
    on_log = np.log(median / low) / np.log(high / low)
    return bool(abs(on_log - 0.5) < abs(plain - 0.5))


# One space for several studies


def merge_spaces(found: Iterable[tuple[str, Parameter]]) -> tuple[Space, list[str], dict[str, str]]:
    """One space for all, from pairs of a study's name and a parameter that it has.

    Its ranges are wide enough for each. Also notes on where studies differ, and for parameters that
    cannot be merged why.
    """
    versions: dict[str, dict[Parameter, dict[str, None]]] = {}
    for study, parameter in found:
        versions.setdefault(parameter.name, {}).setdefault(parameter, {})[study] = None
    if not versions:
        raise InputError("the studies have no trials with parameters")
    merged, notes, conflicts = list[Parameter](), list[str](), dict[str, str]()
    for name, several in versions.items():
        one, note = merge_parameter({p: tuple(studies) for p, studies in several.items()})
        if one is not None:
            merged.append(one)
            notes += [note] if note else []
        elif note:
            conflicts[name] = note
        else:
            notes.append(f"left out: {name} has one value in every task")
    if conflicts and all(isinstance(p, Fixed) for p in merged):
        raise InputError(next(iter(conflicts.values())))
    return Space(tuple(merged)), notes, conflicts


def merge_parameter(versions: Versions) -> tuple[Parameter | None, str]:
    """A parameter that takes the values of all, and a note on what it had to give up.

    None with a note where there is none, and without one where it only describes the studies.
    """
    first = next(iter(versions))
    if len(versions) == 1:
        return first, ""
    values = [p.value for p in versions if isinstance(p, Fixed)]
    if len(values) == len(versions):
        studies = [study for several in versions.values() for study in several]
        if len(set(studies)) == len(studies):
            return None, ""
        kinds: set[type[Parameter]] = {Float if all(map(is_numeric, values)) else Categorical}
    else:
        kinds = {_family(p) for p in versions if not isinstance(p, Fixed)}
    choices = [v for p in versions for v in (p.choices if not isinstance(p, Fixed) else ())]
    ranks = {*choices, *values}
    if kinds == {Categorical}:
        return Categorical(first.name, tuple(dict.fromkeys((*choices, *values)))), ""
    if kinds == {Ordinal} and all(map(is_numeric, ranks)):
        return Ordinal(first.name, tuple(sorted(ranks))), ""
    if kinds == {Float} and all(map(is_numeric, values)):
        return _numbers(versions)
    first, *others = sorted(versions, key=lambda p: isinstance(p, Fixed))
    other = next((p for p in others if _family(p) is not _family(first)), others[-1])
    return None, (
        f"parameter {first.name!r} is {first.describe()} in {first_of(versions[first], SHOWN)} and "
        f"{other.describe()} in {first_of(versions[other], SHOWN)}; expected one kind in all: "
        "leave it out by naming the other inputs, or declare what it is in a space"
    )


def _family(parameter: Parameter) -> type[Parameter]:
    number = isinstance(parameter, Fixed) and is_numeric(parameter.value)
    return Float if number or isinstance(parameter, Float) else type(parameter)


def _numbers(versions: Versions) -> tuple[Parameter, str]:
    """A range over all ranges and values; a log scale and fractions count before their absence."""
    ranges = [p for p in versions if isinstance(p, Float)]
    values = [p.value for p in versions if isinstance(p, Fixed)]
    name = next(iter(versions)).name
    low = min([*(p.low for p in ranges), *values])
    high = max([*(p.high for p in ranges), *values])
    whole = {
        p: isinstance(p, Integer) or (isinstance(p, Fixed) and float(p.value).is_integer())
        for p in versions
    }
    integer = all(whole.values())
    wants_log = any(p.log for p in ranges)
    log = wants_log and low > 0
    steps, lows = {p.step for p in ranges}, {p.low for p in ranges}
    step: float | None = 1 if integer else None
    if len(steps) == len(lows) == 1 and not any(ranges[0].unlike(v) for v in values):
        step = steps.pop()
    notes = []
    if len({p.log for p in ranges}) > 1 or wants_log != log:
        split = _split(versions, {p: isinstance(p, Float) and p.log for p in versions})
        taken = "on a log scale" if log else f"on a plain one, as it starts at {low:g}"
        notes.append(f"{name} is on a log scale in {split}: taken {taken}")
    if not integer and any(isinstance(p, Integer) for p in ranges):
        notes.append(f"{name} is a whole number in {_split(versions, whole)}: taken as any number")
    kind = Integer if integer else Float
    return kind(name, low, high, log, step), "; ".join(notes)


def _split(versions: Versions, has: Mapping[Parameter, bool]) -> str:
    """Studies that have it, and those that have not."""
    yes, no = (
        [s for p, studies in versions.items() if has[p] is side for s in studies]
        for side in (True, False)
    )
    return f"{first_of(yes, SHOWN)} and not in {first_of(no, SHOWN)}"
