"""Guess what a table says: which columns are parameters, of which kind, and why others are none.

Every heuristic is here, and every guess leaves a note. `read` obeys what is proposed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, typed_list
from metakel.io.cleaning import MOSTLY, odd_values
from metakel.io.columns import MIN_ROWS, UNNAMED, Column, Mask, TaskLabels, counts_rows
from metakel.io.rows import CleanRows, Rows
from metakel.io.schema import Schema, Table, known_export
from metakel.io.words import is_bookkeeping, is_metric, is_score, is_time
from metakel.space import Categorical, Condition, Fixed, Parameter, Space, infer_space
from metakel.space.configurations import as_number, is_missing
from metakel.space.infer import DATE, MOST_CATEGORIES, with_sums

# Whole numbers below this are exact as floats.
EXACT = 2.0**53
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
# Columns with empty cells that are compared with each other.
MOST_HOLED = 40
# A setting that explains the output to this rank correlation in every task is hardly one.
TOO_GOOD = 0.99


def propose(source: Table, **options: Any) -> Schema:
    """What a source says, in full: parameters with their kinds and ranges, conditions, notes.

    Parameters
    ----------
    source : Table
    **options
        Those of `Schema`; they take precedence over what is guessed.
    """
    return proposal(source, **options)[0]


def proposal(source: Table, **options: Any) -> tuple[Schema, CleanRows]:
    """The schema, and the rows that were cleaned on the way."""
    source = known_export(source, _named(options))
    schema, notes, on_outputs = Schema.of(source, **options), list(source.notes), list[str]()
    if options.get("minimize", source.minimize) is None and is_score(source.output):
        said = "larger is taken as better; if smaller is, say so (minimize=True, --minimize)"
        notes.append(f"{source.output}: {said}")
    table = Rows.of(source, schema, notes, on_outputs)
    recorded = source.space is not None and schema.space is source.space
    if source.space is not None and recorded:
        schema = replace(schema, space=recorded_space(table, source.space, source.conflicts, notes))
        table = replace(table, schema=schema)
    names, doubtful = choose_inputs(table, notes)
    notes += on_outputs
    schema = replace(schema, inputs=names)
    rows, space = CleanRows.of(replace(table, schema=schema), notes), schema.space
    if space is None:
        space = _inferred(rows, schema, notes)
    if schema.sums is not None:
        space = replace(space, sums=()).summing(schema.sums)
    elif recorded or schema.space is None:
        space = with_sums(space, rows.cells, notes)
    notes += _odd(rows) + _two_names(table)
    schema = replace(
        schema, space=space, categories=(), log=None, sums=None, notes=tuple(notes),
        doubtful=doubtful,
    )  # fmt: skip
    return schema, replace(rows, rows=replace(rows.rows, schema=schema))


def _named(options: Mapping[str, Any]) -> set[str]:
    """All names that a caller uses; `Schema.of` refuses what is no list of names."""
    given = [options.get(name) for name in ("inputs", "exclude", "categories", "log", "defaults")]
    lists = [x for x in given if isinstance(x, Collection) and getattr(x, "ndim", 1) == 1]
    listed = [name for names in lists for name in names]
    asked = [*listed, *(options.get(name) for name in ("status", "noise"))]
    return {name for name in asked if isinstance(name, str)}


def choose_inputs(table: Rows, notes: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
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
    roles = {schema.roles.task: "the task"}
    for role, name in (("the output", schema.roles.output), *(("an input", n) for n in names)):
        if name in roles:
            raise InputError(
                f"column {name!r} is named as {roles[name]} and as {role}; expected one of them"
            )
        roles[name] = role
    return names, doubtful


def _guess(table: Rows, notes: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    schema = table.schema
    said = {*schema.categories, *schema.defaults, *(schema.log or ())}
    excluded = {*schema.exclude}
    others = [name for name in table.candidates if name not in excluded]
    left_out = {n: why for n in others if n not in said and (why := _reason(table, n))}
    left = [name for name in others if name not in left_out]
    known = 2 * sum((~table.columns[n].missing).astype(np.intp) for n in left) >= len(left)
    doubts = {
        n: why for n in left if n not in said and (why := _doubt(table, n, np.asarray(known)))
    }
    kept = [name for name in left if name not in doubts]
    inputs = {*kept}
    for name in tuple(kept):  # what decides whether it is there must be an input, too
        decided = table.condition(name) if name not in said else None
        if decided is not None and table.condition(name, inputs) is None:
            left_out[name] = f"is only there {decided.describe()}"
    kept = [name for name in kept if name not in left_out]
    if not kept and doubts:  # better a doubtful input than none
        kept, doubts = list(doubts), {}
    if not kept:
        why = "".join(f"; {name} {reason}" for name, reason in left_out.items())
        why += "".join(f"; {note}" for note in _two_names(table))
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
        notes.append("to use such a column anyway, name it: --input NAME, inputs=[...] in Python")
    return tuple(kept), doubts


def recorded_space(
    table: Rows, space: Space, conflicts: Mapping[str, str], notes: list[str]
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


def _reason(table: Rows, name: str) -> str:
    """Why a column cannot be a setting; empty if it can."""
    column, tasks = table.columns[name], len(table.labels.names)
    several = tasks + bool((table.labels.codes < 0).any()) > 1
    if UNNAMED.fullmatch(name):
        return "has no name of its own"
    if several and (counts_rows(column) or _numbers_runs(table, column, in_order=True)):
        return "is a running number"
    # With one row per task every column describes the task.
    if tasks < len(table.labels.codes) and _constant_in_tasks(column, table.labels):
        return "has one value in every task"
    if column.missing.all():
        return "is empty"
    rows = table.recorded(name)
    count, n = int((column.missing & rows).sum()), int(rows.sum())
    if count > MOSTLY_EMPTY * n and table.condition(name) is None:
        return f"is empty in {count} of {n} rows"
    absent = table.unrecorded(name)
    return absent or _no_choices(column) or _status(table, column)


def _doubt(table: Rows, name: str, known: Mask) -> str:
    """What speaks against a column that could be a setting; of a failed run few cells are known."""
    column, failed = table.columns[name], known & ~np.isfinite(table.outputs)
    keys = column.keys()[~column.missing]
    if (keys == keys[0]).all():  # kept fixed, which changes nothing
        return ""
    values = column.take(~column.missing)
    numeric = values.dtype.kind in "iuf"
    if is_bookkeeping(name, numbers=numeric):
        return "looks like bookkeeping, by its name"
    if not numeric:
        return ""
    numbers, n, lacking = values.astype(np.float64), len(values), column.missing

    @cache
    def distinct() -> int:  # a sort of the column, which hardly any setting needs
        return len(np.unique(numbers))

    def varies() -> bool:
        # An accuracy on a small test set repeats itself, and still has more values than a grid.
        return distinct() > min(MOST_GRID_VALUES, n // 2)

    def differs_in_rows() -> bool:
        return n >= MIN_ROWS and distinct() >= MOSTLY * n

    if _numbers_runs(table, column):
        return "numbers the runs of every task"
    if is_metric(name) and varies():
        return "looks like another measured value, by its name"
    empty_alike = lacking[failed].sum() >= FAILED_ROWS and (lacking == failed)[known].all()
    if empty_alike and varies():
        return "is empty where the output is, as another measured value is"
    if numbers.min() > LARGE and (numbers == np.rint(numbers)).all() and differs_in_rows():
        return "holds a large whole number for nearly every row, as ids and seeds do"
    if is_time(name) and _many_digits(numbers) and differs_in_rows():
        return "looks like a measured time, by its name and its digits"
    if _follows_output(table, column) and differs_in_rows():
        return "follows the output in every task, as another measured value does"
    return ""


def _numbers_runs(table: Rows, column: Column, *, in_order: bool = False) -> bool:
    """Whether it counts the rows of every task, with some gone, or from one number on in order."""
    if column.levels is not None or column.missing.any() or len(table.tasks) < 2:
        return False
    runs = [column.values[rows] for _, rows in table.tasks]
    if min(map(len, runs)) < MIN_ROWS:
        return False
    if in_order:
        whole, all_named = column.values.dtype.kind in "iu", (table.labels.codes >= 0).all()
        steady = whole and all((np.diff(numbers) == 1).all() for numbers in runs)
        return bool(all_named and steady and len({int(numbers[0]) for numbers in runs}) == 1)
    for numbers in map(np.sort, runs):
        n, gone = len(numbers), len(numbers) / MOSTLY - len(numbers)
        if (np.diff(numbers) == 0).any() or (numbers != np.rint(numbers)).any():
            return False
        if not 0 <= numbers[0] <= 1 + gone or numbers[-1] - numbers[0] >= n + gone:
            return False
    return True


def _status(table: Rows, column: Column) -> str:
    """A text that varies, but not among the runs that have an output."""
    if column.levels is None or len(column.texts) < 2:
        return ""
    counts = np.bincount(column.values[np.isfinite(table.outputs)], minlength=len(column.levels))
    used = [level for level, count in zip(column.levels, counts, strict=True) if count]
    return f"is {used[0]!r} in every run with an output" if len(used) == 1 else ""


def _follows_output(table: Rows, column: Column) -> bool:
    """Whether it explains the output of every task, by Spearman's correlation of ranks."""
    values = np.zeros(len(column))
    values[~column.missing] = column.take(~column.missing)
    found = False
    for rows in table.runs:
        present = rows[~column.missing[rows]]
        if len(present) < MIN_ROWS:
            continue
        # Ties are in the order of their rows.
        ranks = [np.argsort(np.argsort(v[present], kind="stable")) for v in (values, table.outputs)]
        if abs(np.asarray(np.corrcoef(ranks))[0, 1]) < TOO_GOOD:
            return False  # as most settings do in the first task
        found = True
    return found


def _no_choices(column: Column) -> str:
    """Dates, ids and free text."""
    levels = [v for v in column.levels or () if not is_missing(v)]
    if not levels:
        return ""
    if all(
        DATE.fullmatch(v.strip()) if isinstance(v, str) else isinstance(v, date | timedelta)
        for v in levels
    ):
        return f"holds dates or times ({levels[0]})"
    texts, present = column.texts, int((~column.missing).sum())
    if sum(as_number(text) is not None for text in texts) >= MOSTLY * len(levels):
        return ""  # numbers, written in some way or other
    most_differ = present >= MIN_ROWS and len(texts) >= MOSTLY * present
    if len(texts) > MOST_CATEGORIES or most_differ:
        return f"holds {len(texts)} different texts, as ids and free text do"
    return ""


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
    some = numbers[:1000].tolist()
    return bool(2 * sum(float(f"{v:.{DIGITS_OF_SETTINGS}g}") == v for v in some) < len(some))


def _inferred(rows: CleanRows, schema: Schema, notes: list[str]) -> Space:
    """The space that the values of the inputs suggest.

    Columns with holes are floats in most files; those of whole numbers become such.
    """
    cells = rows.cells
    whole = [name for name in cells if name in rows.holed and _whole_floats(cells[name])]
    cells |= {name: cells[name].astype(np.int64) for name in whole}
    space, guesses = infer_space(cells, log=schema.log, categories=schema.categories)
    notes += [*map(condition_note, rows.conditions), *guesses]
    notes += [
        f"{name} is taken as whole numbers, as all its values are but the missing ones "
        "(a space can say otherwise)"
        for name in whole
    ]
    return space.conditioned(rows.conditions)


def _odd(clean: CleanRows) -> list[str]:
    """Notes on numbers that look like slips, of the output and of inputs."""
    rows = clean.rows
    numbers = {rows.schema.roles.output: np.where(rows.measured, rows.outputs, np.nan)}
    for name, column in rows.columns.items():
        if column.levels is None and column.values.dtype.kind in "iuf":
            numbers[name] = np.where(column.missing, np.nan, column.values.astype(np.float64))
    found = (odd_values(name, values, rows.source.place) for name, values in numbers.items())
    return [note for note in found if note]


def _two_names(table: Rows) -> list[str]:
    """Notes on columns that may be one parameter under two names.

    They are never filled together, together always, and over ranges that overlap.
    """
    known = [n for n in table.candidates if n not in table.schema.exclude]
    holed = {n: c for n in known if (c := table.columns[n]).missing.any() and not c.missing.all()}
    notes, names = list[str](), list(holed)[:MOST_HOLED]
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            a, b = holed[one], holed[other]
            if (a.missing == ~b.missing)[table.measured].all() and _overlap(a, b):
                notes.append(
                    f"{one} and {other} are never filled together and have one range: if it is "
                    f"one parameter, rename={{{other!r}: {one!r}}} (--rename {other}={one})"
                )
    return notes


def _overlap(one: Column, other: Column) -> bool:
    """Whether numbers have ranges that overlap, or choices are mostly the same."""
    if one.levels is not None and other.levels is not None:
        a, b = set(one.texts), set(other.texts)
        return 2 * len(a & b) > max(len(a), len(b))
    if one.levels is not None or other.levels is not None:
        return False
    x, y = (column.values[~column.missing].astype(np.float64) for column in (one, other))
    return bool(max(x.min(), y.min()) < min(x.max(), y.max()))


def _whole_floats(values: NDArray[Any]) -> bool:
    """Whether whole numbers became floats only because others are missing."""
    if values.dtype.kind == "O":
        kinds = set(map(type, values))
        if kinds != {int, float} or max(map(abs, values)) > EXACT:  # beyond floats, too
            return False
        return _whole_floats(values.astype(np.float64))
    if values.dtype.kind != "f":
        return False
    return bool((np.abs(values) < EXACT).all() and (values == np.rint(values)).all())
