"""Outputs that say more than a number: bounds (``<0.01``, ``>3600``), and runs with a status.

The true value of a run with a bound is somewhere beyond it. It is taken as the mean of what the
values of the task beyond the bound say, which is Efron's redistribution to the right (the mean of
the Kaplan-Meier estimate beyond the bound), and as the bound itself where nothing is beyond.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.io.cleaning import FAILED, Place, as_number, normalised
from metakel.io.columns import Column, Mask

_BOUND = re.compile(r"\s*(<=?|>=?|≤|≥)\s*([^<>=≤≥]+)").fullmatch
# Words in a status that say that a run gave its value.
DONE = frozenset(
    {"ok", "okay", "success", "successful", "succeeded", "done", "complete", "completed"}
    | {"finished", "passed", "valid", "true", "1", "0k"}
)
NOT_DONE = FAILED | {
    "diverged",
    "oom",
    "out of memory",
    "cancelled",
    "canceled",
    "invalid",
    "false",
}
STATUS_NAMES = frozenset({"status", "state", "outcome", "result", "run_status", "run status"})


def without_bounds(column: Column) -> tuple[Column, NDArray[np.int8]]:
    """The column with ``<0.01`` as 0.01, and (n,) on which side the truth is: -1, 1, or 0."""
    signs = np.zeros(len(column), dtype=np.int8)
    if column.levels is None:
        return column, signs
    levels, sides = list(column.levels), np.zeros(len(column.levels), dtype=np.int8)
    for i, level in enumerate(levels):
        found = _BOUND(level) if isinstance(level, str) else None
        if found and as_number(found[2]) is not None:
            levels[i], sides[i] = found[2].strip(), -1 if found[1] in "<=≤" else 1
    if not sides.any():
        return column, signs
    plain = all(as_number(v) is not None or not isinstance(v, str) for v in levels)
    if plain and not any(isinstance(v, str) and "," in v for v in levels):
        levels = [as_number(v) if isinstance(v, str) else v for v in levels]
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


def bound_note(name: str, column: Column, signs: NDArray[np.int8]) -> tuple[str, ...]:
    """What a report says about outputs that are bounds."""
    if not signs.any():
        return ()
    rows = np.flatnonzero(signs)
    example = repr(column[int(rows[0])])
    note = (
        f"{name} is a bound in {len(rows)} rows (e.g. {example}): taken as the mean of the values "
        "of its task beyond it, or as the bound where there are none"
    )
    return (note,)


def failed_by_status(column: Column, place: Place) -> Mask:
    """(n,) which runs a column of statuses calls failed; every word has to be a known one."""
    words = [None if v is None else normalised(str(v)) for v in column.tolist()]
    odd = [i for i, w in enumerate(words) if w is not None and w not in DONE | NOT_DONE]
    if odd:
        raise InputError(
            f"the status {column[odd[0]]!r} in {place(odd[0])} is not known; expected words such "
            "as 'ok', 'done' and 'failed', 'crashed'"
        )
    return np.array([word in NOT_DONE for word in words], dtype=bool)


def is_status(name: str, column: Column) -> bool:
    """Whether a column says by its name and its words which runs failed."""
    words = {normalised(text) for text in column.texts}
    named = normalised(name) in STATUS_NAMES
    return named and bool(words & NOT_DONE) and words <= DONE | NOT_DONE
