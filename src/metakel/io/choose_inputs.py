"""Which columns of a table are settings, and why others are not: by content and by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np

from metakel._arrays import Array
from metakel.errors import Hint, InputError, typed_list
from metakel.io.cleaning import MOSTLY, as_number
from metakel.io.columns import Column, Columns, Mask, is_missing
from metakel.io.missing import find_condition
from metakel.io.schema import Schema, TaskLabels, is_bookkeeping, is_metric, is_time
from metakel.space import Condition
from metakel.space.infer import DATE, MOST_CATEGORIES

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
            yield f"{name} {why} and is not taken as an input, unless it is named as one"
        if self.doubtful:
            every = (*self.names, *self.doubtful)
            them = "it" if len(self.doubtful) == 1 else "them"
            yield f"to take {them} as well: inputs={list(every)}, or --input {typed_list(every)}"


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
            return "looks like bookkeeping, by its name,"
        values = column.take(~column.missing)
        if values.dtype.kind not in "iuf":
            return ""
        numbers = values.astype(np.float64)
        distinct = len(np.unique(numbers))
        # An accuracy on a small test set repeats itself, and still has more values than a grid.
        if distinct > min(MOST_GRID_VALUES, len(numbers) // 2):
            if is_metric(name):
                return "looks like another measured value, by its name,"
            lacking = column.missing
            if lacking[failed].sum() >= FAILED_ROWS and (lacking == failed)[known].all():
                return "is empty where the output is, as another measured value is,"
        if len(numbers) >= MIN_ROWS and distinct >= MOSTLY * len(numbers):
            if numbers.min() > LARGE and (numbers == np.rint(numbers)).all():
                return "holds a large whole number for nearly every row, as ids and seeds do,"
            if is_time(name) and _many_digits(numbers):
                return "looks like a measured time, by its name and its digits,"
            if self._follows_output(column):
                return "follows the output in every task, as another measured value does,"
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
        usable = np.isfinite(self.outputs) & ~column.missing & (self.labels.codes >= 0)
        strengths = []
        for task in range(len(self.labels.names)):
            rows = usable & (self.labels.codes == task)
            if rows.sum() >= MIN_ROWS:
                strengths.append(_rank_correlation(column.take(rows), self.outputs[rows]))
        return bool(strengths) and min(map(abs, strengths)) >= TOO_GOOD


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
        return f"holds {len(texts)} different texts, as ids and free text do,"
    return ""


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
