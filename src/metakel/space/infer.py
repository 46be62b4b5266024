"""Spaces that data say: parameters of columns, their sums, and one space for several studies."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, first_of
from metakel.space.configurations import Values, is_numeric, listed, storable, to_python
from metakel.space.parameters import Categorical, Fixed, Float, Integer, Ordinal, Parameter
from metakel.space.space import Space
from metakel.space.sums import Sum

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
# A column is a sum of others if this share of its standard deviation, or less, is left.
NEARLY = 0.02
# Others with a smaller share in it are not part of the sum.
SMALL = 0.05
# So many more different rows than parameters, or the sum may be by chance.
MORE_ROWS = 3
# Weights this close to whole multiples of each other are such.
CLOSE, LARGEST = 0.02, 10
# Rounding of cells may be this share of the ranges, or it hides what the sum is.
MOST_ROUNDING = 0.02
DECIMALS = 12
# So many rows of a blend may have a slip.
SLIPS = 0.05
# Blends in whole per cent hide so many times as much by rounding as those with decimals.
WHOLE_PER_CENT = 4.0
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
    numeric = isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and not chosen
    if isinstance(values, np.ndarray) and numeric:
        distinct = list({values.min().item(), values.max().item()})
    else:
        distinct = listed(values)
        with suppress(TypeError):  # what cannot be hashed, as dicts, is there as often as before
            distinct = list(dict.fromkeys(distinct))
    if len(distinct) == 1 and (numeric or storable(to_python(distinct[0]))):
        only = distinct[0]
        return Fixed(name, only), f"{name} never varies and is kept fixed at {only}"
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
        few = range(2, MOST_DIGITS + 1)
        return next((d for d in few if all(float(f"{v:.{d}g}") == v for v in values)), None)
    for digits in range(MOST_DIGITS + 1):
        if (np.round(values, digits) == values).all():
            steps = (values[-1] - values[0]) * 10.0**digits
            return digits if steps >= MIN_STEPS else digits + 1
    return None


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


# Sums of columns, as of the parts of a blend, which a test of their rank finds


def with_sums(space: Space, cells: Mapping[str, NDArray[Any]], notes: list[str]) -> Space:
    """The space with the sums that all rows keep; a note where only a few rows do not."""
    optional = {c.name for c in space.conditions}
    numbers = [p.name for p in space.parameters if isinstance(p, Float) and p.name not in optional]
    if len({len(cells[name]) for name in numbers}) != 1:
        return space
    columns = {name: cells[name].astype(np.float64) for name in numbers}
    found = find_sums(columns)
    if not found and (nearly := nearly_sums(columns)):
        total, count = nearly
        notes.append(
            f"{total} in all rows but {count}: if every suggestion should keep it, say so "
            f"(sums=[{str(total)!r}], --sum '{total}'), and look at these rows"
        )
    elif not found:
        found = find_blends(columns)
    notes += [
        f"{total} in all rows: every suggestion keeps it, unless other sums are said (sums=[...], "
        "--sum)"
        for total in found
    ]
    return space.summing(found)


def find_sums(columns: Mapping[str, Array], loose: float = 1.0) -> list[Sum]:
    """The equations that hold in all rows, up to the digits that cells are written with.

    Every column is compared with all independent ones before it, so that there is one sum for
    every rank that the table lacks. Once there are as many as rows, all others may be sums of them.
    Rounding may hide ``loose`` times as much as is sure to be no accident.
    """
    found, independent, basis = list[Sum](), list[str](), list[Array]()
    for name, column in columns.items():
        if np.ptp(column) == 0:
            continue
        if len(column) < len(independent) + MORE_ROWS:
            break
        y = column / np.abs(column).max()  # squares of very large numbers are no numbers
        y = y - y.mean()
        rest = _beside(y, basis)
        size, whole = (float(np.linalg.norm(part)) for part in (rest, y))
        nearly = bool(independent) and size <= 2 * loose * NEARLY * whole
        parts = {n: columns[n] for n in (*independent, name)} if nearly else {}
        total = _sum_of(parts, loose) if nearly else None
        if total is None:
            independent.append(name)
            if size > 1e-9 * whole:
                basis.append(rest / size)
        else:
            found.append(total)
    return found


def find_blends(columns: Mapping[str, Array]) -> list[Sum]:
    """Sums to 1 or 100 that hold up to rounding, which is as often too much as too little."""
    found = []
    for total in find_sums(columns, WHOLE_PER_CENT):
        weights = dict(total.terms)
        off = np.sum([columns[n] for n in weights], axis=0) - total.total
        fair = abs(float(off.mean())) <= 3 * float(off.std()) / len(off) ** 0.5
        if {*weights.values()} == {1.0} and total.total in (1, 100) and fair:
            found.append(total)
    return found


def nearly_sums(columns: Mapping[str, Array]) -> tuple[Sum, int] | None:
    """An equation that holds in all rows but a few, where slips are likely, and in how many not.

    The rows that are worst at the direction in which the columns vary least are left out.
    """
    varying = {name: column for name, column in columns.items() if np.ptp(column) > 0}
    if len(varying) < 2:
        return None
    Z = np.column_stack([c / np.std(c) for c in varying.values()])
    kept = np.ones(len(Z), dtype=bool)
    for _ in range(2):  # the first direction is bent by the slips
        centered = Z - Z[kept].mean(axis=0)
        along = centered @ np.linalg.svd(centered[kept], full_matrices=False)[2][-1]
        off = np.abs(along - np.median(along))
        kept = off <= np.quantile(off, 1 - SLIPS)
    for total in find_sums({name: column[kept] for name, column in varying.items()}):
        weights = dict(total.terms)
        off = np.column_stack([columns[n] for n in weights]) @ [*weights.values()] - total.total
        count = int((np.abs(off) > np.abs(off[kept]).max()).sum())
        if count <= SLIPS * len(off):
            return total, count
    return None


def _beside(y: Array, basis: Sequence[Array]) -> Array:
    """What is left of a column without its share in those of an orthonormal basis."""
    if basis:
        Q = np.array(basis)
        for _ in range(2):  # the second time against rounding
            y = y - Q.T @ (Q @ y)
    return y


def _sum_of(columns: Mapping[str, Array], loose: float) -> Sum | None:
    """The equation that makes the last column a sum of the others, if there is one."""
    *others, last = columns
    weights = _least_squares(columns, others, last, loose)
    if weights is None:
        return None
    spread = float(np.std(columns[last]))
    part = [n for n in others if abs(weights[n]) * float(np.std(columns[n])) > SMALL * spread]
    weights = _least_squares(columns, part, last, loose) if part else None
    if weights is None:
        return None
    names = [*part, last]
    V = np.column_stack([columns[n] for n in names])
    if len(np.unique(V, axis=0)) < len(names) + MORE_ROWS:
        return None
    w = _simple(np.array([*(-weights[n] for n in part), 1.0]))
    values, numerical = V @ w, 1e-9 * float((np.abs(V) @ np.abs(w)).max())
    exact = float(np.ptp(values)) <= numerical  # as whole numbers are, whatever their range
    rounding = float(np.abs(w) @ [0.5 * 10.0 ** -_decimals(columns[n]) for n in names])
    if not exact and rounding > loose * MOST_ROUNDING * float(
        (np.abs(w) * np.ptp(V, axis=0)).min()
    ):
        return None
    slack = numerical + (0.0 if exact else rounding)
    total = float(np.median(values))
    for digits in range(1, 13):
        if abs(float(f"{total:.{digits}g}") - total) <= slack:
            total = float(f"{total:.{digits}g}")
            break
    if np.abs(values - total).max() > slack:
        return None
    return Sum(tuple(zip(names, w.tolist(), strict=True)), "=", total)


def _least_squares(
    columns: Mapping[str, Array], others: Sequence[str], last: str, loose: float
) -> dict[str, float] | None:
    """Weights of others of which the last column is nearly a sum."""
    y = columns[last] - columns[last].mean()
    spread = [float(np.std(columns[n])) for n in others]
    Z = np.column_stack(
        [(columns[n] - columns[n].mean()) / s for n, s in zip(others, spread, strict=True)]
    )
    shares = np.linalg.lstsq(Z, y, rcond=None)[0]
    if float(np.std(y - Z @ shares)) > loose * NEARLY * float(np.std(y)):
        return None
    return {n: float(v) / s for n, v, s in zip(others, shares, spread, strict=True)}


def _simple(w: Array) -> Array:
    """Weights as whole multiples of the smallest, where they are nearly that."""
    multiples = w / np.abs(w).min()
    whole = np.rint(multiples)
    if np.abs(multiples - whole).max() <= CLOSE and np.abs(whole).max() <= LARGEST:
        found = whole
    else:
        found = w
    return np.asarray(-found if found[0] < 0 else found)


def _decimals(column: Array) -> int:
    """With how many decimals the numbers are written."""
    texts = (np.format_float_positional(v, precision=DECIMALS, trim="-") for v in column[:1000])
    return max(len(text.partition(".")[2]) for text in texts)


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
