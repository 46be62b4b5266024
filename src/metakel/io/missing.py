"""Where a parameter has no value, and why: its condition does not hold, or the task lacks it.

A conditional parameter is there only with some choices of another one, as momentum with sgd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.io.columns import Column, Columns, Mask
from metakel.io.schema import Schema, TaskLabels, absent
from metakel.space import Condition, Space
from metakel.space.infer import MOST_CATEGORIES
from metakel.space.parameters import own_value

# Fewer empty cells may be empty by accident.
FEWEST = 3


def find_condition(
    name: str,
    gap: Mask,
    columns: Columns,
    parents: Sequence[str],
    rows: Mask,
    lacked: Callable[[str], Mask],
) -> Condition | None:
    """The choices of another column that decide whether a parameter is there; None if none do.

    Parameters
    ----------
    name : str
    gap : (n,) array of bool
        Rows without the parameter.
    columns : dict of Column
    parents : names of the columns that may decide
    rows : (n,) array of bool
        Those that count.
    lacked : callable
        Gives the rows of tasks that did not record a column at all.
    """
    if (gap & rows).sum() < FEWEST or (~gap & rows).sum() < FEWEST:
        return None
    found = []
    for parent in parents:
        if parent == name:
            continue
        column = columns[parent]
        counted = rows & ~lacked(parent)
        values = _deciding(column, gap, counted)
        if values:
            # Of several, one that is always there is the simplest.
            found.append((int((column.missing & counted).sum()), Condition(name, parent, values)))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def inactive_rows(condition: Condition, columns: Columns, inactive: Mapping[str, Mask]) -> Mask:
    """(n,) rows in which a parameter is not there, by the value of its parent."""
    column = columns[condition.parent]
    levels, codes = _choices(column)
    off = np.array([level not in condition.values for level in levels], dtype=bool)[codes]
    off &= ~column.missing
    return np.asarray(off | inactive.get(condition.parent, np.zeros(len(off), dtype=bool)))


def fitting(conditions: Sequence[Condition], space: Space) -> tuple[Condition, ...]:
    """The conditions with values that parents have in a space, without those that always hold."""
    found = []
    for c in conditions:
        known = getattr(space[c.parent], "values", ())
        values = tuple(v for v in known if v in c.values)
        if c.name in space.free and values and len(values) < len(known):
            found.append(Condition(c.name, c.parent, values))
    return tuple(found)


def condition_note(condition: Condition) -> str:
    """What a report says about it."""
    return f"{condition.name} is there only {condition.describe()}: a conditional parameter"


def _deciding(column: Column, gap: Mask, rows: Mask) -> tuple[Any, ...]:
    """The values with which a parameter is there, if they decide it."""
    levels, codes = _choices(column)
    if not levels or not gap[column.missing & rows].all():
        return ()
    counted = rows & ~column.missing
    total = np.bincount(codes[counted], minlength=len(levels))
    lacking = np.bincount(codes[gap & counted], minlength=len(levels))
    used = total > 0
    if used.sum() < 2 or ((lacking[used] != 0) & (lacking[used] != total[used])).any():
        return ()
    with_it = np.flatnonzero(used & (lacking == 0))
    return () if len(with_it) == used.sum() else tuple(levels[i] for i in with_it)


def _choices(column: Column) -> tuple[list[Any], NDArray[np.intp]]:
    """Distinct values of a column of choices, and the index of each row's; none for numbers."""
    if column.levels is None:
        if column.values.dtype.kind != "b":
            return [], np.zeros(len(column), dtype=np.intp)
        return [False, True], column.values.astype(np.intp)
    flags = all(isinstance(v, bool) for v in column.levels if v is not None and v == v)
    texts = 2 <= len(column.texts) <= MOST_CATEGORIES
    return (column.levels if texts or flags else []), np.asarray(column.values)


@dataclass(frozen=True, eq=False)
class Gaps:
    """Rows without a value, by parameter.

    Parameters
    ----------
    conditions : list of Condition
        Which choices decide whether parameters are there, those of parents first.
    lacking : dict of (tasks + 1,) bool
        Tasks that have no value in any run; the last entry is for no task.
    lacked : dict of (n,) bool
        The rows of these tasks in which there could be one.
    unfilled : dict of (n,) bool
        All rows that need none.
    missing : dict of (n,) bool
        Rows that need one and have none, and so cannot be used.
    """

    conditions: list[Condition]
    lacking: Mapping[str, Mask]
    lacked: Mapping[str, Mask]
    unfilled: Mapping[str, Mask]
    missing: Mapping[str, Mask]


def find_gaps(inputs: Columns, schema: Schema, labels: TaskLabels, outputs: Array) -> Gaps:
    """Where the inputs have no value, and why."""
    gaps = {name: absent(column, name, schema.space) for name, column in inputs.items()}
    conditions = _conditions(inputs, gaps, schema, labels, outputs)
    inactive = {name: np.zeros(len(outputs), dtype=bool) for name in gaps}
    for c in conditions:
        inactive[c.name] = inactive_rows(c, inputs, inactive)
    lacking = {
        name: lacking_tasks(gap, labels, outputs, ~inactive[name]) for name, gap in gaps.items()
    }
    lacked = {name: lack[labels.codes] & ~inactive[name] for name, lack in lacking.items()}
    unfilled = {name: lacked[name] | inactive[name] for name in gaps}
    missing = {name: gap & ~unfilled[name] for name, gap in gaps.items()}
    return Gaps(conditions, lacking, lacked, unfilled, missing)


def with_default(column: Column, name: str, schema: Schema) -> Column:
    """The default where there is no value, written as the column writes it: True for 'true'."""
    default, gaps = schema.defaults.get(name), absent(column, name, schema.space)
    if default is None or not gaps.any():
        return column
    values = [column[i] for i in range(len(column))]
    own = own_value([v for v, gap in zip(values, gaps, strict=True) if not gap], default)
    return Column.of([own if gap else v for v, gap in zip(values, gaps, strict=True)])


def _conditions(
    inputs: Columns,
    gaps: Mapping[str, Mask],
    schema: Schema,
    labels: TaskLabels,
    outputs: Array,
) -> list[Condition]:
    """Which choices decide whether parameters are there, those of parents first."""
    if schema.space is not None:
        return [c for c in schema.space.parents_first if {c.name, c.parent} <= inputs.keys()]

    def lacked(name: str) -> Mask:
        return lacking_tasks(gaps[name], labels, outputs)[labels.codes]

    found = []
    for name, gap in gaps.items():
        rows = np.isfinite(outputs) & ~lacked(name)
        found.append(find_condition(name, gap, inputs, tuple(inputs), rows, lacked))
    known = {c.name: c for c in found if c is not None}
    return sorted(known.values(), key=lambda c: c.parent in known)


def lacking_tasks(gap: Mask, labels: TaskLabels, outputs: Array, rows: Mask | bool = True) -> Mask:
    """(tasks + 1,) which tasks have no value of a parameter in any of the runs ``rows``.

    The last entry is for no task.
    """
    lacks = np.zeros(len(labels.names) + 1, dtype=bool)
    measured = np.isfinite(outputs) & (labels.codes >= 0) & rows
    if (gap | ~measured).all():  # lacking in all of them: nothing to learn it from
        return lacks
    lacks[labels.codes[measured]] = True
    lacks[labels.codes[measured & ~gap]] = False
    return lacks
