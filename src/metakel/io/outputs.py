"""What was measured: outputs, bounds, failed and unfinished runs, and their noise.

The true value of a run with a bound (``<0.01``, ``>3600``) is somewhere beyond it. It is taken as
the mean of what the values of the task beyond the bound say, which is Efron's redistribution to the
right (the mean of the Kaplan-Meier estimate beyond the bound), and as the bound itself where
nothing is beyond.
"""

from __future__ import annotations

from math import nan

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError, Problems, first_of
from metakel.io.cleaning import (
    BOUND,
    MOSTLY,
    Place,
    comma_note,
    decimal_commas,
    normalized,
    odd_one,
    recognized,
)
from metakel.io.columns import Column, Mask, TaskLabels, grouped
from metakel.io.schema import Schema, Table
from metakel.io.words import DONE, FAILED, NOT_DONE, STATUS_NAMES, UNFINISHED, is_share
from metakel.space.configurations import as_float, as_number, split_unit

# Medians on two scales differ by a factor of about 100 or 1,000, and those of tasks on the two
# sides by more than tasks on one scale do.
FACTORS = (50.0, 2000.0)
APART = 5.0
# Runs with less than this may just be poor ones, in per cent as the others.
POOR = 0.1
# More runs than this do not fail with a number such as -1 in place of a word.
RARELY = 0.2
SHOWN = 5


def read_outputs(
    source: Table, schema: Schema, labels: TaskLabels, problems: Problems, notes: list[str]
) -> tuple[Array, Array | None, Mask]:
    """(n,) outputs, nan for runs that failed, their noise if there is a column of it, and (n,)
    which runs were not finished.

    What is wrong with them joins the problems.
    """
    roles, column = schema.roles, source.columns[schema.roles.output]
    values = np.zeros(len(column))  # inputs are looked at as if every run had an output
    unfinished = np.zeros(len(column), dtype=bool)
    measured, signs = without_bounds(column)
    with problems.collected():
        values = clean_output(roles.output, measured, source.place, notes)
    if signs.any():
        rows = np.flatnonzero(signs)
        notes.append(
            f"{roles.output} is a bound in {len(rows)} rows (e.g. {column[rows[0]]!r}): taken as "
            "the mean of the values of its task beyond it, or as the bound where there are none"
        )
    others = [n for n in source.columns if n not in (roles.task, roles.output)]
    found = [n for n in others if is_status(n, source.columns[n])]
    statuses = found if roles.status is None else [roles.status]
    empty = int((column.missing & (labels.codes >= 0)).sum())
    if empty and not statuses and source.space is None:  # else a program has written it
        notes.append(
            f"{roles.output} is empty in {empty} {'row' if empty == 1 else 'rows'}, counted as "
            "runs that failed: leave out runs that are still open"
        )
    for name in statuses:
        with problems.collected():
            failed, stopped = _failed_by_status(source, name)
            unfinished |= stopped
            if count := int((failed & np.isfinite(values)).sum()):
                notes.append(
                    f"{name} says that {count} runs with an output failed: it does not count"
                )
            values = np.where(failed, nan, values)
    with problems.collected():
        notes += _scales(roles.output, values, labels)
    noise_std = None
    with problems.collected():
        noise_std = _noise_levels(source, schema)
    return settled(values, signs, labels.codes), noise_std, unfinished


def clean_output(name: str, column: Column, place: Place, notes: list[str]) -> Array:
    """(n,) outputs, nan where a run failed; notes say how they were read."""
    levels = column.levels
    if column.values.dtype.kind == "b" or any(isinstance(v, bool) for v in levels or ()):
        notes.append(f"{name} holds true and false, taken as 1 and 0")
    if levels is None:
        return np.asarray(np.where(column.missing, nan, column.values), dtype=np.float64)
    empty, number, _ = recognized(levels)
    counts, words = column.counts, [normalized(str(v)) for v in levels]
    word = ~empty & ~number & np.array([isinstance(v, str) for v in levels], dtype=bool)
    # Where most cells are numbers, any other word says that a run gave none.
    meant = counts[number].sum() >= MOSTLY * counts[number | word].sum()
    says_so = [w in FAILED or (meant and not any(map(str.isdigit, w))) for w in words]
    failed = word & np.array(says_so, dtype=bool)
    if failed.any():
        shown = ", ".join(repr(levels[i]) for i in np.flatnonzero(failed))
        count = counts[failed].sum()
        rows = "1 row" if count == 1 else f"{count} rows"
        notes.append(f"{name} says {shown} in {rows}, counted as failed")
    known = [None if gone else v for v, gone in zip(levels, empty | failed, strict=True)]
    written = [v for v in known if isinstance(v, str)]
    if decimal_commas(written) is not None:
        notes.append(comma_note({name: written}))
        known = [as_number(v) if isinstance(v, str) else v for v in known]
    found: list[float | None] = [nan] * len(known)
    for i, v in enumerate(known):
        if isinstance(v, str):  # a comma may be for decimals or thousands
            found[i] = None if "," in v else as_number(v)
        elif v is not None:
            found[i] = as_float(v)
    bad = np.array([v is None for v in found], dtype=bool)
    if bad.any():
        row, doubt = odd_one(column, bad, number)
        raise InputError(
            f"output column {name!r} holds {column[row]!r} in {place(row)}; expected numbers"
            f"{doubt}, or nothing or a word such as 'failed' for a run that gave none"
        )
    return np.asarray(np.array(found, dtype=np.float64)[column.values])


def without_bounds(column: Column) -> tuple[Column, NDArray[np.int8]]:
    """The column with ``<0.01`` as 0.01, and (n,) on which side the truth is: -1, 1, or 0."""
    levels = list(column.levels or ())
    sides = np.zeros(len(levels), dtype=np.int8)
    for i, level in enumerate(levels):
        found = BOUND(level) if isinstance(level, str) else None
        if found and (as_number(found[2]) is not None or split_unit(found[2])):
            levels[i], sides[i] = found[2].strip(), -1 if found[1] in "<=≤" else 1
    if not sides.any():
        return column, np.zeros(len(column), dtype=np.int8)
    return Column.of_levels(column.values, levels), sides[column.values]


def settled(values: Array, signs: NDArray[np.int8], tasks: NDArray[np.intp]) -> Array:
    """(n,) the values with those beyond a bound as what the values of their task say."""
    found = values.copy()
    for task in np.unique(tasks[signs != 0]):
        rows = np.flatnonzero((tasks == task) & np.isfinite(values))
        for side in (1, -1):
            beyond = _redistributed(side * found[rows], signs[rows] == side)
            found[rows] = side * beyond
    return found


def _redistributed(y: Array, censored: Mask) -> Array:
    """Values (n,) with each censored one as the mean of all larger ones, themselves settled."""
    order = np.lexsort((censored, y))  # of equal values, the observed ones first
    found, total, count = y.copy(), 0.0, 0
    for i in order[::-1]:
        if censored[i] and count:
            found[i] = max(total / count, y[i])
        total, count = total + found[i], count + 1
    return found


def _scales(name: str, values: Array, labels: TaskLabels) -> list[str]:
    """Notes on tasks or rows on two scales; shares in tasks beside per cent are refused."""
    rows = np.flatnonzero(np.isfinite(values) & (labels.codes >= 0))
    y, parts = values[rows], grouped(labels.codes[rows])
    if not len(y):
        return []
    medians = {s: float(np.median(y[part])) for s, part in parts}
    shares = {s: bool(y[part].max() <= 1) for s, part in parts}
    below, above = ([s for s in shares if shares[s] == side] for side in (True, False))
    if y.min() >= 0 and below and above:
        low = np.isin(labels.codes[rows], below)
        small, large = float(np.median(y[low])), float(np.median(y[~low]))
        apart = min(medians[s] for s in above) >= APART * max(medians[s] for s in below)
        if apart and 0 < FACTORS[0] * small <= large <= FACTORS[1] * small:
            few, many = (
                first_of([labels.names[s] for s in side], SHOWN) for side in (below, above)
            )
            found = (
                f"{name} is between 0 and 1 in {len(below)} tasks ({few}; median {small:.3g}) and "
                f"about {large / small:.0f} times as large in {len(above)} ({many}; median "
                f"{large:.3g})"
            )
            if is_share(name) and small >= POOR and y.max() <= 100:
                raise InputError(
                    f"{found}; expected one scale. Multiply the former by 100, or learn from the "
                    "two separately"
                )
            return [f"{found}: is this one unit?"]
    if is_share(name):
        negative = int((y < 0).sum())
        if 0 < negative <= RARELY * len(y):
            return [f"{name} is below 0 in {negative} rows: a number for runs that failed?"]
        inside, beyond = y[(y >= 0) & (y <= 1)], y[(y < 0) | (y > 1)]
        fits = len(inside) and len(beyond) and beyond.max() <= 100
        if fits and POOR <= np.median(inside) <= beyond.min() / APART:
            ends = f"{beyond.min():g} to {beyond.max():g} in {len(beyond)}"
            share = f"{name} is between 0 and 1 in {len(inside)} rows"
            return [f"{share} and from {ends}: is this one unit?"]
    ordered = sorted((median, labels.names[s]) for s, median in medians.items())
    if k := _jump(np.array([median for median, _ in ordered])):
        few, many = (first_of([n for _, n in side], SHOWN) for side in (ordered[:k], ordered[k:]))
        times = ordered[k][0] / ordered[k - 1][0]
        where = f"{len(ordered) - k} tasks ({many}) as in {k} ({few})"
    elif k := _jump(y := np.sort(y)):
        times = float(np.median(y[k:]) / np.median(y[:k]))
        where = f"{len(y) - k} rows as in the other {k}"
    else:
        return []
    return [f"{name} is about {times:.0f} times as large in {where}: is this one unit?"]


def _jump(values: Array) -> int:
    """Where sorted values are two groups on two scales, two at least in each; 0 where not."""
    if len(values) < 4 or values[0] <= 0:
        return 0
    logs = np.log(values)
    k = int(np.argmax(np.diff(logs[1:-1]))) + 2
    apart, within = logs[k] - logs[k - 1], max(logs[k - 1] - logs[0], logs[-1] - logs[k])
    times = np.exp(np.median(logs[k:]) - np.median(logs[:k]))
    return k if apart >= 2 * within and FACTORS[0] <= times <= FACTORS[1] else 0


def is_status(name: str, column: Column) -> bool:
    """Whether a column says by its name and its words which runs failed."""
    if normalized(name) not in STATUS_NAMES:
        return False
    words = {normalized(text) for text in column.texts}
    return bool(words & (NOT_DONE | UNFINISHED)) and words <= DONE | NOT_DONE | UNFINISHED


def _failed_by_status(source: Table, name: str) -> tuple[Mask, Mask]:
    """(n,) which runs a column of statuses calls failed or not finished, and which of them the
    latter; every word has to be a known one.
    """
    words = ["ok" if v is None else normalized(str(v)) for v in source.columns[name].tolist()]
    for i, word in enumerate(words):
        if word not in DONE | NOT_DONE | UNFINISHED:
            raise InputError(
                f"the status {source.columns[name][i]!r} in {source.place(i)} is not known; "
                "expected words such as 'ok', 'done' and 'failed', 'crashed'"
            )
    stopped = np.array([word in UNFINISHED for word in words], dtype=bool)
    return stopped | np.array([word in NOT_DONE for word in words], dtype=bool), stopped


def _noise_levels(source: Table, schema: Schema) -> Array | None:
    """(n,) standard deviations of the outputs, nan where there is none."""
    if schema.roles.noise is None:
        return None
    found = clean_output(schema.roles.noise, source.columns[schema.roles.noise], source.place, [])
    wrong = (found < 0) | np.isinf(found)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"the noise in {source.place(row)} is {found[row]:g}; expected a number >= 0"
        )
    return found
