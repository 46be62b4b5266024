"""What runs gave: numbers, bounds (``<0.01``, ``>3600``), noise, and statuses of failed ones.

The true value of a run with a bound is somewhere beyond it. It is taken as the mean of what the
values of the task beyond the bound say, which is Efron's redistribution to the right (the mean of
the Kaplan-Meier estimate beyond the bound), and as the bound itself where nothing is beyond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import InputError, Problems
from metakel.io.cleaning import FAILED, Place, as_number, clean_output, normalised
from metakel.io.columns import Column, Mask
from metakel.io.schema import SUGGESTION, Schema, Source

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


@dataclass(frozen=True, eq=False)
class Outputs:
    """The column of outputs as numbers.

    Parameters
    ----------
    values : (n,) array
        A bound counts as its number; nan where there is none, or a status says that the run failed.
    signs : (n,) array of int8
        On which side of a bound the truth is: -1 or 1, and 0 where the value is no bound.
    noise_std : (n,) array, optional
        Noise of each value, nan where it is not known.
    notes : tuple of str
    """

    values: Array
    signs: NDArray[np.int8]
    noise_std: Array | None
    notes: tuple[str, ...]

    def settled(self, tasks: NDArray[np.intp]) -> Array:
        """(n,) values, those of bounds by what else is known of their task."""
        return settled(self.values, self.signs, tasks)


def read_outputs(source: Source, schema: Schema, problems: Problems) -> Outputs:
    """The outputs of a source; what is wrong with them joins the problems."""
    column, noise_std = source.columns[schema.output], None
    values, notes = np.zeros(len(column)), tuple[str, ...]()
    measured, signs = without_bounds(column)
    with problems.collected():  # else inputs are looked at as if every run had an output
        values, notes = clean_output(schema.output, measured, source.place)
    notes = (*notes, *bound_note(schema.output, column, signs))
    with problems.collected():
        values, status_notes = _without_failed(source, schema, values)
        notes = (*notes, *status_notes)
    with problems.collected():
        noise_std = _noise_levels(source, schema)
    return Outputs(values, signs, noise_std, notes)


def with_waiting(source: Source, outputs: Array) -> Array:
    """(n,) outputs, 0 for suggestions that wait for a result: these are no failed runs."""
    suggested = source.columns.get(SUGGESTION)
    if suggested is None:
        return outputs
    empty = source.columns[source.output].missing
    return np.where(empty & ~suggested.missing, 0.0, outputs)


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


def _noise_levels(source: Source, schema: Schema) -> Array | None:
    """(n,) standard deviations of the outputs, nan where there is none."""
    if schema.noise is None:
        return None
    found, _ = clean_output(schema.noise, source.columns[schema.noise], source.place)
    wrong = (found < 0) | np.isinf(found)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"the noise in {source.place(row)} is {found[row]:g}; expected a number >= 0"
        )
    return found


def _without_failed(
    source: Source, schema: Schema, outputs: Array
) -> tuple[Array, tuple[str, ...]]:
    """(n,) outputs, nan where a column of statuses says that a run failed."""
    others = (n for n in source.columns if n not in (schema.task, schema.output))
    names = [n for n in others if schema.status is None and is_status(n, source.columns[n])]
    found, notes = outputs, list[str]()
    for name in names if schema.status is None else [schema.status]:
        failed = failed_by_status(source.columns[name], source.place)
        count = int((failed & np.isfinite(found)).sum())
        found = np.where(failed, np.nan, found)
        if count:
            notes.append(f"{name} says that {count} runs with an output failed: it does not count")
    return found, tuple(notes)
