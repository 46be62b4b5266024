"""Which columns of a table are settings, and where they have no value.

Columns that are none are left out for a reason: their content or their name. A cell without a value
has a reason, too: a condition does not hold, as momentum is there only with sgd, or the task did
not record the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, typed_list
from metakel.io.cleaning import MOSTLY, as_number
from metakel.io.columns import Column, Columns, Mask, is_missing
from metakel.io.schema import Schema, TaskLabels, absent, is_bookkeeping, is_metric, is_time
from metakel.space import Condition, Space
from metakel.space.infer import DATE, MOST_CATEGORIES
from metakel.space.parameters import own_value

# How pandas calls a column without a name, such as an index that was saved.
_UNNAMED = re.compile(r"\s*|Unnamed: \d+")
# Fewer rows than that may hold 1, 2, 3, ... or as many texts on purpose.
MIN_ROWS = 10
# A column with more empty cells teaches less than the rows that it would cost.
MOSTLY_EMPTY = 0.5
# Whole numbers above this, different in nearly every row, are ids, seeds or times.
LARGE = 1e6
# Settings with the name of a metric have few values: a precision of 16 or 32 bits.
MOST_GRID_VALUES = 10
# Times that people set have fewer digits than those that a clock measures.
DIGITS_OF_SETTINGS = 4
# So many failed runs without a value of a column say that it is measured.
FAILED_ROWS = 3
# A setting that explains the output to this rank correlation in every task is hardly one.
TOO_GOOD = 0.99


@dataclass(frozen=True)
class Chosen:
    """Names of the inputs, and of the columns that are none with the reason.

    ``doubtful`` are those that may be settings after all, as only a name or a pattern speaks
    against them.
    """

    names: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    doubtful: tuple[str, ...] = ()

    @property
    def notes(self) -> Iterator[str]:
        """For the report."""
        for name, why in self.left_out.items():
            yield f"left out: {name} {why}"
        if self.doubtful:
            every = (*self.names, *self.doubtful)
            them = ", ".join(self.doubtful)
            yield f"to take {them} as well: inputs={list(every)}, or --input {typed_list(every)}"
        elif self.left_out:
            yield "what is left out is taken where it is named as an input (inputs=, --input)"


def choose_inputs(columns: Columns, schema: Schema, labels: TaskLabels, outputs: Array) -> Chosen:
    """As given, by the space, or all columns that look like settings."""
    if schema.inputs is not None:
        chosen = Chosen(tuple(schema.inputs))
    elif schema.space is not None:
        chosen = Chosen(tuple(name for name in schema.space.names if name in columns))
    else:
        chosen = _guess(columns, schema, labels, outputs)
    roles: dict[str, str] = {}
    asked = [("the task", schema.task), ("the output", schema.output)]
    for role, name in (*asked, *(("an input", name) for name in chosen.names)):
        if name in roles:
            raise InputError(
                f"column {name!r} is named as {roles[name]} and as {role}; expected one of them"
            )
        roles[name] = role
    return chosen


def _guess(columns: Columns, schema: Schema, labels: TaskLabels, outputs: Array) -> Chosen:
    roles = (schema.task, schema.output, schema.status, schema.noise)
    others = [n for n in columns if n not in (*roles, *schema.exclude)]
    said = {*schema.categories, *schema.defaults, *(schema.log or ())}
    table = _Table(columns, schema, labels, outputs)
    reasons = {name: table.reason(name) for name in others if name not in said}
    left_out = {name: why for name, why in reasons.items() if why}
    left = [name for name in others if name not in left_out]
    known = table.known_rows(left)
    doubts = {name: table.doubt(name, known) for name in left if name not in said}
    doubts = {name: why for name, why in doubts.items() if why}
    kept = tuple(name for name in others if name not in left_out and name not in doubts)
    for name in kept:  # what decides whether it is there must be an input, too
        decided = None if name in said or table.condition(name, kept) else table.condition(name)
        if decided is not None:
            left_out[name] = f"is only there {decided.describe()}"
    kept = tuple(name for name in kept if name not in left_out)
    if not kept and doubts:  # better a doubtful input than none
        kept, doubts = tuple(doubts), {}
    if not kept:
        why = "".join(f"; {name} {reason}" for name, reason in left_out.items())
        raise InputError(
            f"no column varies within a task; found {', '.join(columns)}{why}",
            Hint("name the inputs", "inputs=[...]", "--input NAME"),
        )
    return Chosen(kept, {**left_out, **doubts}, tuple(doubts))


@dataclass(frozen=True, eq=False)
class _Table:
    """A table, and what there is to say against its columns."""

    columns: Columns
    schema: Schema
    labels: TaskLabels
    outputs: Array

    def reason(self, name: str) -> str:
        """Why a column cannot be a setting; empty if it can."""
        column, tasks = self.columns[name], len(self.labels.names)
        several = tasks + bool((self.labels.codes < 0).any()) > 1
        if _UNNAMED.fullmatch(name):
            return "has no name of its own"
        if several and _counts_rows(column):
            return "is a running number"
        # With one row per task every column describes the task.
        if tasks < len(self.labels.codes) and _constant_in_tasks(column, self.labels):
            return "has one value in every task"
        return self._empty(name) or _no_choices(column) or self._status(column)

    def known_rows(self, names: Sequence[str]) -> Mask:
        """(n,) rows of which most of these cells are known; a failed run may lack everything."""
        filled = sum((~self.columns[name].missing).astype(np.intp) for name in names)
        return np.asarray(2 * filled >= len(names))

    def doubt(self, name: str, known: Mask) -> str:
        """What speaks against a column that could be a setting."""
        column, failed = self.columns[name], known & ~np.isfinite(self.outputs)
        keys = column.keys()[~column.missing]
        if (keys == keys[0]).all():  # kept fixed, which changes nothing
            return ""
        if is_bookkeeping(name):
            return "looks like bookkeeping, by its name"
        values = column.take(~column.missing)
        if values.dtype.kind not in "iuf":
            return ""
        numbers = values.astype(np.float64)
        lacking, n = column.missing, len(numbers)

        @cache
        def distinct() -> int:  # a sort of the column, which hardly any setting needs
            return len(np.unique(numbers))

        def varies() -> bool:
            # An accuracy on a small test set repeats itself, and still has more values than a grid.
            return distinct() > min(MOST_GRID_VALUES, n // 2)

        def differs_in_rows() -> bool:
            return n >= MIN_ROWS and distinct() >= MOSTLY * n

        if is_metric(name) and varies():
            return "looks like another measured value, by its name"
        empty_alike = lacking[failed].sum() >= FAILED_ROWS and (lacking == failed)[known].all()
        if empty_alike and varies():
            return "is empty where the output is, as another measured value is"
        if numbers.min() > LARGE and (numbers == np.rint(numbers)).all() and differs_in_rows():
            return "holds a large whole number for nearly every row, as ids and seeds do"
        if is_time(name) and _many_digits(numbers) and differs_in_rows():
            return "looks like a measured time, by its name and its digits"
        if self._follows_output(column) and differs_in_rows():
            return "follows the output in every task, as another measured value does"
        return ""

    def _empty(self, name: str) -> str:
        column = self.columns[name]
        if column.missing.all():
            return "is empty"
        rows = np.isfinite(self.outputs)  # a failed run may lack everything
        rows &= ~self._lacking(column)[self.labels.codes]
        count, n = int((column.missing & rows).sum()), int(rows.sum())
        if not count:
            return ""
        if count > MOSTLY_EMPTY * n and self.condition(name) is None:
            return f"is empty in {count} of {n} rows"
        return ""

    def condition(self, name: str, among: Sequence[str] | None = None) -> Condition | None:
        """The choice that decides whether a column is filled, among all columns or some."""
        roles = (self.schema.task, self.schema.output, self.schema.status, self.schema.noise)
        candidates = self.columns if among is None else among
        parents = [other for other in candidates if other not in roles]
        rows = np.isfinite(self.outputs) & (self.labels.codes >= 0)
        column = self.columns[name]
        rows &= ~self._lacking(column)[self.labels.codes]

        def lacked(parent: str) -> Mask:
            return self._lacking(self.columns[parent])[self.labels.codes]

        return find_condition(name, column.missing, self.columns, parents, rows, lacked)

    def _lacking(self, column: Column) -> Mask:
        """(tasks + 1,) tasks in which it is empty; they may lack a parameter that others have."""
        found = np.ones(len(self.labels.names) + 1, dtype=bool)
        found[self.labels.codes[np.isfinite(self.outputs) & ~column.missing]] = False
        return found

    def _status(self, column: Column) -> str:
        """A text that varies, but not among the runs that have an output."""
        if column.levels is None or len(column.texts) < 2:
            return ""
        counts = np.bincount(column.values[np.isfinite(self.outputs)], minlength=len(column.levels))
        used = [level for level, count in zip(column.levels, counts, strict=True) if count]
        return f"is {used[0]!r} in every run with an output" if len(used) == 1 else ""

    def _follows_output(self, column: Column) -> bool:
        values = np.zeros(len(column))
        values[~column.missing] = column.take(~column.missing)
        found = False
        for rows in self._rows_of_tasks:
            present = rows[~column.missing[rows]]
            if len(present) < MIN_ROWS:
                continue
            if abs(_rank_correlation(values[present], self.outputs[present])) < TOO_GOOD:
                return False  # as most settings do in the first task
            found = True
        return found

    @cached_property
    def _rows_of_tasks(self) -> list[NDArray[np.intp]]:
        """The rows of every task that have an output."""
        rows = np.flatnonzero(np.isfinite(self.outputs) & (self.labels.codes >= 0))
        rows = rows[np.argsort(self.labels.codes[rows], kind="stable")]
        return np.split(rows, np.flatnonzero(np.diff(self.labels.codes[rows])) + 1)


def _no_choices(column: Column) -> str:
    """Dates, ids and free text."""
    levels = [v for v in column.levels or () if not is_missing(v)]
    if not levels:
        return ""
    if all(
        isinstance(v, date) or (isinstance(v, str) and DATE.fullmatch(v.strip())) for v in levels
    ):
        return f"holds dates ({levels[0]})"
    texts = column.texts
    if sum(as_number(text) is not None for text in texts) >= MOSTLY * len(levels):
        return ""  # numbers, written in some way or other
    present = int((~column.missing).sum())
    many = len(texts) > MOST_CATEGORIES
    if many or (present >= MIN_ROWS and len(texts) >= MOSTLY * present):
        return f"holds {len(texts)} different texts, as ids and free text do"
    return ""


def numbers_rows(name: str, column: Column) -> bool:
    """Whether it only says where in the table a row is: an index, or a running number."""
    return bool(_UNNAMED.fullmatch(name)) or _counts_rows(column)


def _counts_rows(column: Column) -> bool:
    """Whether its whole numbers are first, first + 1, ..., each in one row of the table.

    Rows that were added later may have none.
    """
    present = column.take(~column.missing)
    n = len(present)
    if n < MIN_ROWS or 2 * n <= len(column) or present.dtype.kind not in "iu":
        return False
    return int(present.max()) - int(present.min()) == n - 1 and len(np.unique(present)) == n


def _constant_in_tasks(column: Column, labels: TaskLabels) -> bool:
    """Whether it has one value in every task, and several in all."""
    present = ~column.missing
    keys, tasks = column.keys()[present], labels.codes[present]
    if not len(keys) or (keys == keys[0]).all():
        return False
    first = np.empty(len(labels.names) + 1, dtype=keys.dtype)
    for rows in (slice(1000), slice(None)):  # most columns vary within a task early on
        first[tasks[rows][::-1]] = keys[rows][::-1]  # what is written last is of the first row
        if (first[tasks[rows]] != keys[rows]).any():
            return False
    return True


def _many_digits(numbers: Array) -> bool:
    """Whether most numbers have more digits than people write."""
    short: list[bool] = [float(f"{v:.{DIGITS_OF_SETTINGS}g}") == v for v in numbers[:1000].tolist()]
    return 2 * sum(short) < len(short)


def _rank_correlation(x: Array, y: Array) -> float:
    """Spearman's, with ties in the order of their rows."""
    ranks = [np.argsort(np.argsort(v, kind="stable")).astype(np.float64) for v in (x, y)]
    x, y = (rank - rank.mean() for rank in ranks)
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


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
