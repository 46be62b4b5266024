"""Where a parameter has no value, and why: its condition does not hold, or the task lacks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.io.columns import Column, Columns, Mask
from metakel.io.conditions import find_condition, inactive_rows
from metakel.io.schema import Schema, TaskLabels, absent
from metakel.space import Condition
from metakel.space.parameters import own_value


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
