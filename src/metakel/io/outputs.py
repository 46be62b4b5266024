"""What was measured: outputs, bounds, failed and unfinished runs, and their noise.

The true value of a run with a bound (``<0.01``, ``>3600``) is somewhere beyond it. It is taken as
the mean of what the values of the task beyond the bound say, which is Efron's redistribution to the
right (the mean of the Kaplan-Meier estimate beyond the bound), and as the bound itself where
nothing is beyond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError, Problems, first_of
from metakel.io.cleaning import clean_output, normalized, without_bounds
from metakel.io.columns import Column, Mask, TaskLabels, grouped
from metakel.io.schema import Schema, Table
from metakel.io.words import DONE, NOT_DONE, STATUS_NAMES, UNFINISHED, is_share

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
    column = source.columns[schema.roles.output]
    values = np.zeros(len(column))  # inputs are looked at as if every run had an output
    unfinished = np.zeros(len(column), dtype=bool)
    measured, signs = without_bounds(column)
    with problems.collected():
        values = clean_output(schema.roles.output, measured, source.place, notes)
    if signs.any():
        rows = np.flatnonzero(signs)
        notes.append(
            f"{schema.roles.output} is a bound in {len(rows)} rows (e.g. {column[rows[0]]!r}): "
            "taken as the mean of the values of its task beyond it, or as the bound where there "
            "are none"
        )
    others = [n for n in source.columns if n not in (schema.roles.task, schema.roles.output)]
    found = [n for n in others if is_status(n, source.columns[n])]
    statuses = found if schema.roles.status is None else [schema.roles.status]
    empty = int((column.missing & (labels.codes >= 0)).sum())
    if empty and not statuses and source.space is None:  # else a program has written it
        notes.append(
            f"{schema.roles.output} is empty in {empty} {'row' if empty == 1 else 'rows'}, counted "
            "as runs that failed: leave out runs that are still open"
        )
    for name in statuses:
        with problems.collected():
            failed, stopped = _failed_by_status(source, name)
            unfinished |= stopped
            count = int((failed & np.isfinite(values)).sum())
            values = np.where(failed, np.nan, values)
            if count:
                notes.append(
                    f"{name} says that {count} runs with an output failed: it does not count"
                )
    with problems.collected():
        if not _check_scales(schema.roles.output, values, labels, notes):
            notes += _two_scales(schema.roles.output, values, labels)
    noise_std = None
    with problems.collected():
        noise_std = _noise_levels(source, schema)
    return settled(values, signs, labels.codes), noise_std, unfinished


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


def _check_scales(name: str, values: Array, labels: TaskLabels, notes: list[str]) -> bool:
    """Refuse shares in some tasks beside per cent in others; a note where both may be meant.

    Whether there is anything to say.
    """
    rows = np.flatnonzero(np.isfinite(values) & (labels.codes >= 0))
    y, codes = values[rows], labels.codes[rows]
    largest = np.full(len(labels.names), -np.inf)
    np.maximum.at(largest, codes, y)
    low = largest[codes] <= 1
    if not len(y) or y.min() < 0 or low.all() or not low.any():
        return False
    small, large = float(np.median(y[low])), float(np.median(y[~low]))
    if not 0 < FACTORS[0] * small <= large <= FACTORS[1] * small:
        return False
    medians = {s: float(np.median(y[part])) for s, part in grouped(codes)}
    below, above = ([s for s in medians if (largest[s] <= 1) == side] for side in (True, False))
    if min(medians[s] for s in above) < APART * max(medians[s] for s in below):
        return False
    few, many = (
        ", ".join(labels.names[s] for s in side[:SHOWN]) + (" ..." if len(side) > SHOWN else "")
        for side in (below, above)
    )
    found = (
        f"{name} is between 0 and 1 in {len(below)} tasks ({few}; median {small:.3g}) and about "
        f"{large / small:.0f} times as large in {len(above)} ({many}; median {large:.3g})"
    )
    if is_share(name) and small >= POOR and y.max() <= 100:
        raise InputError(
            f"{found}; expected one scale. Multiply the former by 100, or learn from the two "
            "separately"
        )
    notes.append(f"{found}: is this one unit?")
    return True


def _two_scales(name: str, values: Array, labels: TaskLabels) -> list[str]:
    """Notes on tasks that are two groups far apart, and on rows of shares on another scale."""
    rows = np.flatnonzero(np.isfinite(values) & (labels.codes >= 0))
    y = values[rows]
    medians = sorted(
        (float(np.median(y[part])), labels.names[s]) for s, part in grouped(labels.codes[rows])
    )
    if len(y) and is_share(name):
        shares = (y >= 0) & (y <= 1)
        if 0 < (y < 0).sum() <= RARELY * len(y):
            return [f"{name} is below 0 in {(y < 0).sum()} rows: a number for runs that failed?"]
        small, large = y[shares], y[~shares]
        if (
            len(small)
            and len(large)
            and large.max() <= 100
            and POOR <= np.median(small) <= large.min() / APART
        ):
            ends = f"{large.min():g} to {large.max():g} in {len(large)}"
            return [
                f"{name} is between 0 and 1 in {len(small)} rows and from {ends}: is this one unit?"
            ]
    if k := _jump(np.array([median for median, _ in medians])):
        few, many = (first_of([n for _, n in side], SHOWN) for side in (medians[:k], medians[k:]))
        times = f"{medians[k][0] / medians[k - 1][0]:.0f} times as large"
        tasks = f"{len(medians) - k} tasks ({many}) as in {k} ({few})"
        return [f"{name} is about {times} in {tasks}: is this one unit?"]
    y = np.sort(y)
    if k := _jump(y):
        times = f"{np.median(y[k:]) / np.median(y[:k]):.0f} times as large"
        rows_ = f"{len(y) - k} rows as in the other {k}"
        return [f"{name} is about {times} in {rows_}: is this one unit?"]
    return []


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
