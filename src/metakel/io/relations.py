"""What columns say of each other: one is there only with some values of another, or they sum up.

Momentum is there only with sgd, and the parts of a blend sum to 100, which a test of their rank
finds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.io.columns import Column, Columns, Mask, grouped
from metakel.io.schema import Schema, TaskLabels
from metakel.space import Condition, Sum
from metakel.space.configurations import is_missing, own_value
from metakel.space.infer import MOST_CATEGORIES

# A parameter that more tasks did not record is left out; fewer tasks are left out themselves.
FEW_TASKS = 0.25
# Fewer empty cells may be empty by accident.
FEW_NUMBERS = 8  # distinct whole numbers, of which some may decide what else is there
FEWEST = 3
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
MOST_PARENTS = 100
# So many rows of a blend may have a slip.
SLIPS = 0.05
# Blends in whole per cent hide so many times as much by rounding as those with decimals.
WHOLE_PER_CENT = 4.0


@dataclass(frozen=True, eq=False)
class InputTable:
    """Columns, what is said about them, and the task and the output of every row."""

    columns: Columns
    schema: Schema
    labels: TaskLabels
    outputs: Array

    @cached_property
    def measured(self) -> Mask:
        """(n,) rows of a task with an output; a failed run may lack everything."""
        return np.isfinite(self.outputs) & (self.labels.codes >= 0)

    def gap(self, name: str) -> Mask:
        """(n,) rows without a value."""
        return self.schema.gap(name, self.columns[name])

    def recorded(self, name: str) -> Mask:
        """(n,) rows with an output, of tasks that have the parameter in some run."""
        gap = self.gap(name)
        if not gap.any():  # as in almost all columns of a wide table
            return self.measured
        with_it = np.unique(self.labels.codes[self.measured & ~gap])
        found = self.measured & np.isin(self.labels.codes, with_it)
        return found if found.any() else self.measured

    def unrecorded(self, name: str, parents: Collection[str] | None = None) -> str:
        """How many tasks have no value in any run in which it is there, where these are many."""
        if not self.gap(name).any():
            return ""
        decided, rows = self.condition(name, parents), self.measured
        if decided is not None:
            rows = rows & self.holds(decided)
        without = rows & ~self.recorded(name)
        count, tasks = (len(np.unique(self.labels.codes[part])) for part in (without, rows))
        many = count > FEW_TASKS * tasks
        return f"is not recorded in {count} of {tasks} tasks" if many else ""

    def holds(self, condition: Condition) -> Mask:
        """(n,) rows in which the parent has one of the values."""
        parent = self.columns[condition.parent]
        if parent.levels is None:
            numbers = [float(v) for v in condition.values if isinstance(v, Real)]
            return np.asarray(np.isin(parent.values, numbers) & ~parent.missing)
        return np.asarray(
            np.array([v in condition.values for v in parent.levels], dtype=bool)[parent.values]
        )

    def condition(self, name: str, parents: Collection[str] | None = None) -> Condition | None:
        """The choices of another column that decide whether it is filled; None if none do.

        Only the first `MOST_PARENTS` columns of choices are looked at: in a wide table every column
        may be one, with gaps of its own.
        """
        gap = self.gap(name)
        if not gap.any():
            return None
        rows = self.recorded(name)
        if min((gap & rows).sum(), (~gap & rows).sum()) < FEWEST:
            return None
        found = []
        for parent, (levels, codes, recorded) in self._parents.items():
            if parent == name or (parents is not None and parent not in parents):
                continue
            counted, missing = rows & recorded, self.columns[parent].missing
            values = _deciding(levels, codes, missing, gap, counted)
            if values:
                # Of several, one that is always there is the simplest.
                holes = int((missing & counted).sum())
                found.append((holes, Condition(name, parent, values)))
        return min(found, key=lambda pair: pair[0])[1] if found else None

    @cached_property
    def _parents(self) -> dict[str, tuple[list[Any], NDArray[np.intp], Mask]]:
        """Columns of choices, the choice of every row, and rows of tasks that have them."""
        choices = ((name, *_choices(self.columns[name])) for name in self.candidates)
        some = islice((found for found in choices if found[1]), MOST_PARENTS)
        return {name: (levels, codes, self.recorded(name)) for name, levels, codes in some}

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """Columns that may be settings, as far as the caller says."""
        roles = self.schema.roles.names
        return tuple(name for name in self.columns if name not in roles)

    @cached_property
    def tasks(self) -> list[tuple[int, NDArray[np.intp]]]:
        """The rows of every task, by its code."""
        return [(int(code), rows) for code, rows in grouped(self.labels.codes)]

    @cached_property
    def runs(self) -> list[NDArray[np.intp]]:
        """The rows of every task that have an output."""
        rows = np.flatnonzero(self.measured)
        return [rows[group] for _, group in grouped(self.labels.codes[rows])]


def find_gaps(table: InputTable) -> tuple[list[Condition], dict[str, Mask]]:
    """Why the columns of a table have no value in some rows.

    Returns
    -------
    conditions : list of Condition
        Which choices decide whether parameters are there, those of parents first.
    unfilled : dict of (n,) bool
        Rows that need no value, as a condition does not hold.
    """
    names, space = tuple(table.columns), table.schema.space
    if space is not None:
        conditions = [c for c in space.parents_first if {c.name, c.parent} <= {*names}]
    else:
        found = {name: c for name in names if (c := table.condition(name)) is not None}
        conditions = sorted(found.values(), key=lambda c: c.parent in found)
    unfilled = {name: np.zeros(len(table.outputs), dtype=bool) for name in names}
    for c in conditions:
        unfilled[c.name] = (~table.holds(c) & ~table.gap(c.parent)) | unfilled[c.parent]
    return conditions, unfilled


def with_default(column: Column, name: str, schema: Schema) -> Column:
    """The default where there is no value, written as the column writes it: True for 'true'."""
    default, gaps = schema.defaults.get(name), schema.gap(name, column)
    if default is None or not gaps.any():
        return column
    values = [column[i] for i in range(len(column))]
    own = own_value([v for v, gap in zip(values, gaps, strict=True) if not gap], default)
    return Column.of([own if gap else v for v, gap in zip(values, gaps, strict=True)])


def _deciding(
    levels: list[Any], codes: NDArray[np.intp], missing: Mask, gap: Mask, rows: Mask
) -> tuple[Any, ...]:
    """The values with which a parameter is there, if they decide it."""
    if not gap[missing & rows].all():
        return ()
    counted = rows & ~missing
    total = np.bincount(codes[counted], minlength=len(levels))
    lacking = np.bincount(codes[gap & counted], minlength=len(levels))
    used = total > 0
    if used.sum() < 2 or ((lacking[used] != 0) & (lacking[used] != total[used])).any():
        return ()
    with_it = np.flatnonzero(used & (lacking == 0))
    return () if len(with_it) == used.sum() else tuple(levels[i] for i in with_it)


def _choices(column: Column) -> tuple[list[Any], NDArray[np.intp]]:
    """Distinct values of a column of choices, and the index of each row's.

    Numbers are choices where they are a few whole ones, as of layers.
    """
    if column.levels is None:
        if column.values.dtype.kind == "b":
            return [False, True], column.values.astype(np.intp)
        found = np.unique(column.values[~column.missing])
        if not 2 <= len(found) <= FEW_NUMBERS or (found != np.round(found)).any():
            return [], np.zeros(len(column), dtype=np.intp)
        codes = np.searchsorted(found, np.where(column.missing, found[0], column.values))
        return [int(value) for value in found], codes
    flags = all(isinstance(v, bool) for v in column.levels if not is_missing(v))
    texts = 2 <= len(column.texts) <= MOST_CATEGORIES
    return (column.levels if texts or flags else []), np.asarray(column.values)


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
