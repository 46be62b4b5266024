"""Which columns of a table are settings, and where they have no value.

Columns that are none are left out for a reason: their content or their name. A cell without a value
may have a reason, too: a condition does not hold, as momentum is there only with sgd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, typed_list
from metakel.io.cleaning import MOSTLY
from metakel.io.columns import Column, Columns, Mask, grouped, is_missing
from metakel.io.schema import Schema, TaskLabels
from metakel.io.words import is_bookkeeping, is_metric, is_time
from metakel.space import Categorical, Condition, Fixed, Parameter, Space
from metakel.space.infer import DATE, MOST_CATEGORIES
from metakel.space.parameters import own_value
from metakel.space.text import as_number

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
# A parameter that more tasks did not record is left out; fewer tasks are left out themselves.
FEW_TASKS = 0.25
# Fewer empty cells may be empty by accident.
FEWEST = 3


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
        with_it = np.unique(self.labels.codes[self.measured & ~self.gap(name)])
        found = self.measured & np.isin(self.labels.codes, with_it)
        return found if found.any() else self.measured

    def unrecorded(self, name: str, parents: Sequence[str]) -> str:
        """How many tasks have no value in any run in which it is there, where these are many."""
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

    def condition(self, name: str, parents: Sequence[str]) -> Condition | None:
        """The choices of another column that decide whether it is filled; None if none do."""
        gap, rows = self.gap(name), self.recorded(name)
        if min((gap & rows).sum(), (~gap & rows).sum()) < FEWEST:
            return None
        found = []
        for parent in parents:
            counted = rows & self.recorded(parent)
            values = _deciding(self.columns[parent], gap, counted) if parent != name else ()
            if values:
                # Of several, one that is always there is the simplest.
                holes = int((self.columns[parent].missing & counted).sum())
                found.append((holes, Condition(name, parent, values)))
        return min(found, key=lambda pair: pair[0])[1] if found else None

    def reason(self, name: str) -> str:
        """Why a column cannot be a setting; empty if it can."""
        column, tasks = self.columns[name], len(self.labels.names)
        several = tasks + bool((self.labels.codes < 0).any()) > 1
        if _UNNAMED.fullmatch(name):
            return "has no name of its own"
        if several and (_counts_rows(column) or self._counts_runs(column)):
            return "is a running number"
        # With one row per task every column describes the task.
        if tasks < len(self.labels.codes) and _constant_in_tasks(column, self.labels):
            return "has one value in every task"
        if column.missing.all():
            return "is empty"
        rows = self.recorded(name)
        count, n = int((column.missing & rows).sum()), int(rows.sum())
        if count > MOSTLY_EMPTY * n and self.condition(name, self.candidates) is None:
            return f"is empty in {count} of {n} rows"
        absent = self.unrecorded(name, self.candidates)
        return absent or _no_choices(column) or self._status(column)

    @property
    def candidates(self) -> list[str]:
        """Columns that may be settings, as far as the caller says."""
        return [name for name in self.columns if name not in self.schema.roles]

    def doubt(self, name: str, known: Mask) -> str:
        """What speaks against a column that could be a setting.

        ``known`` (n,) are rows of which most cells are: a failed run may lack everything.
        """
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

    def _counts_runs(self, column: Column) -> bool:
        """Whether it numbers the rows of every task, from one and the same number on."""
        if (
            column.levels is not None
            or column.values.dtype.kind not in "iu"
            or column.missing.any()
        ):
            return False
        firsts = set()
        for code, rows in grouped(self.labels.codes):
            numbers = column.values[rows]
            if code < 0 or len(rows) < MIN_ROWS or (np.diff(numbers) != 1).any():
                return False
            firsts.add(int(numbers[0]))
        return len(firsts) == 1

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
        for rows in self._runs:
            present = rows[~column.missing[rows]]
            if len(present) < MIN_ROWS:
                continue
            if abs(_rank_correlation(values[present], self.outputs[present])) < TOO_GOOD:
                return False  # as most settings do in the first task
            found = True
        return found

    @cached_property
    def _runs(self) -> list[NDArray[np.intp]]:
        """The rows of every task that have an output."""
        rows = np.flatnonzero(self.measured)
        return [rows[group] for _, group in grouped(self.labels.codes[rows])]


def choose_inputs(table: InputTable, notes: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The inputs: as given, by the space, or all columns that look like settings.

    Also the columns that may be settings after all, each with what speaks against it.
    """
    schema, doubtful = table.schema, dict[str, str]()
    if schema.inputs is not None:
        names = tuple(schema.inputs)
    elif schema.space is not None:
        names = tuple(name for name in schema.space.names if name in table.columns)
    else:
        names, doubtful = _guess(table, notes)
    roles: dict[str, str] = {}
    asked = [("the task", schema.task), ("the output", schema.output)]
    for role, name in (*asked, *(("an input", name) for name in names)):
        if name in roles:
            raise InputError(
                f"column {name!r} is named as {roles[name]} and as {role}; expected one of them"
            )
        roles[name] = role
    return names, doubtful


def _guess(table: InputTable, notes: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    schema = table.schema
    said = {*schema.categories, *schema.defaults, *(schema.log or ())}
    others = [name for name in table.candidates if name not in schema.exclude]
    left_out = {n: why for n in others if n not in said and (why := table.reason(n))}
    left = [name for name in others if name not in left_out]
    known = 2 * sum((~table.columns[n].missing).astype(np.intp) for n in left) >= len(left)
    doubts = {n: why for n in left if n not in said and (why := table.doubt(n, np.asarray(known)))}
    kept = [name for name in left if name not in doubts]
    for name in tuple(kept):  # what decides whether it is there must be an input, too
        decided = table.condition(name, table.candidates) if name not in said else None
        if decided is not None and table.condition(name, kept) is None:
            left_out[name] = f"is only there {decided.describe()}"
    kept = [name for name in kept if name not in left_out]
    if not kept and doubts:  # better a doubtful input than none
        kept, doubts = list(doubts), {}
    if not kept:
        why = "".join(f"; {name} {reason}" for name, reason in left_out.items())
        raise InputError(
            f"no column varies within a task; found {', '.join(table.columns)}{why}",
            Hint("name the inputs", "inputs=[...]", "--input NAME"),
        )
    notes += [f"left out: {name} {reason}" for name, reason in (left_out | doubts).items()]
    if doubts:
        every = (*kept, *doubts)
        how = f"inputs={list(every)}, or --input {typed_list(every)}"
        notes.append(f"to take {', '.join(doubts)} as well: {how}")
    elif left_out:
        notes.append("what is left out is taken where it is named as an input (inputs=, --input)")
    return tuple(kept), doubts


def recorded_space(
    table: InputTable, space: Space, conflicts: Mapping[str, str], notes: list[str]
) -> Space:
    """The parameters to learn from, of those that the source knows; notes name the others.

    By default those that all runs with an output have, or all of some tasks. The rows that happen
    to have a conditional parameter are no fair sample of all: to keep them alone would favour the
    choice that it belongs to.
    """
    schema = table.schema
    for name in conflicts if schema.inputs is None else schema.inputs:
        if name in conflicts:
            raise InputError(conflicts[name])
    if schema.inputs is not None:
        known = [space[name] for name in schema.inputs if name in space.names]
        return space.among(known) if known else space
    kept, conditions = dict[str, Parameter](), list[Condition]()
    runs = int(table.measured.sum())
    for name, parameter in zip(space.names, space.parameters, strict=True):
        count = int((table.gap(name) & table.recorded(name)).sum())
        if count and name not in schema.defaults:
            decided = table.condition(name, space.names)
            if decided is None or not isinstance(space[decided.parent], Categorical):
                notes.append(
                    f"{name} is missing in {count} of {runs} rows and is not taken as an input, "
                    "unless a default says what they used"
                )
                continue
            conditions.append(decided)
            notes.append(condition_note(decided))
        absent = "" if name in schema.defaults else table.unrecorded(name, space.names)
        if absent:
            notes.append(
                f"{name} {absent} and is not taken as an input, unless a default says what they "
                "used"
            )
            continue
        kept[name] = parameter
    while lost := [c for c in conditions if c.name in kept and c.parent not in kept]:
        kept = {name: p for name, p in kept.items() if name not in {c.name for c in lost}}
    if all(isinstance(parameter, Fixed) for parameter in kept.values()):
        raise InputError(
            f"no parameter that varies is in every one of the {runs} completed trials; found "
            f"{', '.join(space.names)}, each in some of them only",
            Hint("say what the others used", "defaults={name: value}", "--default NAME=VALUE"),
        )
    return Space(tuple(kept.values())).conditioned([c for c in conditions if c.name in kept])


def condition_note(condition: Condition) -> str:
    """What a report says about it."""
    return f"{condition.name} is there only {condition.describe()}: a conditional parameter"


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
        found = {name: c for name in names if (c := table.condition(name, names)) is not None}
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
