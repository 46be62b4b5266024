"""Read the rows of a source as a schema says: numbers, or a refusal with its line and a remedy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, Problems, first_of, typed_list
from metakel.io.cleaning import clean_input, missing_words_note, without_unit
from metakel.io.columns import Column, Columns, Mask, TaskLabels, grouped, numbers_rows
from metakel.io.outputs import read_outputs
from metakel.io.schema import Report, Schema, Table, known_export
from metakel.space import Condition, Space
from metakel.space.configurations import is_missing, is_numeric, own_value
from metakel.space.infer import MOST_CATEGORIES
from metakel.space.parameters import RANGE_SLACK

SHOWN = 5
# Names of tasks that stand above blocks of rows are hardly ever repeated.
BLOCKS_PER_TASK = 3
# A parameter that more tasks did not record is left out; fewer tasks are left out themselves.
FEW_TASKS = 0.25
# Fewer empty cells may be empty by accident.
FEWEST = 3
FEW_NUMBERS = 8  # distinct whole numbers, of which some may decide what else is there
MOST_PARENTS = 100


def read(source: Table, schema: Schema) -> tuple[list[dict[str, Any]], Space, Report]:
    """The rows that a schema describes, as numbers, with a report on the others.

    Nothing is guessed: what does not fit the schema is refused. `propose` makes a schema.

    Returns
    -------
    tasks : list of dict
        Arguments of `metakel.data.Task`. Of outputs, larger is better.
    space : Space
    report : Report
    """
    if schema.space is None or schema.inputs is None:
        raise InputError("the schema has no space; expected one that `propose` has completed")
    source = known_export(source, {*schema.inputs, *schema.exclude, *schema.roles.names})
    return CleanRows.of(Rows.of(source, schema, [], []), []).assembled()


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a source under a schema: their tasks, outputs and cells.

    ``columns`` are those of the source without units; of clean rows, the inputs as numbers and
    choices. What is wrong joins the ``problems``, which are raised together.
    """

    source: Table
    schema: Schema
    columns: Columns
    labels: TaskLabels
    outputs: Array  # (n,) nan where a run failed
    noise_std: Array | None
    unfinished: Mask  # (n,) runs without an output that did not fail
    problems: Problems

    @classmethod
    def of(cls, source: Table, schema: Schema, notes: list[str], on_outputs: list[str]) -> Rows:
        """With notes on how columns, and in a list of their own how outputs, were read."""
        if source.space is None:  # else a program has written it
            source = replace(source, columns=_readable(source.columns, schema, notes))
        problems = Problems(source.name)
        labels = TaskLabels.of(source.columns[schema.roles.task], notes)
        outputs = read_outputs(source, schema, labels, problems, on_outputs)
        return cls(source, schema, source.columns, labels, *outputs, problems)

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
        held = np.array([v in condition.values for v in parent.levels], dtype=bool)
        return np.asarray(held[parent.values])

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
            if values := _deciding(levels, codes, missing, gap, counted):
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


@dataclass(frozen=True, eq=False)
class CleanRows:
    """Rows with their inputs alone: which can be used, and which lack values by a condition."""

    rows: Rows
    conditions: Sequence[Condition]  # those of parents first
    unfilled: Mapping[str, Mask]  # (n,) rows that need no value, as a condition does not hold
    holed: frozenset[str]  # inputs that had empty cells before defaults
    kept: Mask  # (n,)
    counts: Mapping[str, int]  # of other rows, by reason

    @classmethod
    def of(cls, rows: Rows, notes: list[str]) -> CleanRows:
        """The inputs of the schema as numbers and choices; all problems are raised together."""
        source, schema, inputs = rows.source, rows.schema, Columns()
        task, names = schema.roles.task, schema.inputs or ()
        for name in names:
            column, said = source.columns[name], schema.meaning(name)
            with rows.problems.collected(name):
                inputs[name] = clean_input(name, column, said, source.place, notes)
        for name, column in ((task, source.columns[task]), *inputs.items()):
            notes += missing_words_note(name, column)
        rows.problems.refuse(names)
        holed = frozenset(name for name, column in inputs.items() if column.missing.any())
        rows = replace(
            rows, columns={name: _with_default(c, name, schema) for name, c in inputs.items()}
        )
        conditions, unfilled = _find_gaps(rows)
        kept, counts = _usable(rows, unfilled, notes)
        return cls(rows, conditions, unfilled, holed, kept, counts)

    @property
    def cells(self) -> dict[str, NDArray[Any]]:
        """The values of every input in the rows that are used."""
        columns = self.rows.columns.items()
        return {name: column.take(self.kept & ~self.unfilled[name]) for name, column in columns}

    def assembled(self) -> tuple[list[dict[str, Any]], Space, Report]:
        """Tasks, space and report."""
        rows, kept, labels, schema = self.rows, self.kept, self.rows.labels, self.rows.schema
        space, notes = schema.space, list(schema.notes)
        assert space is not None
        X = self._points(space)
        if schema.extrapolate:
            beyond = int((np.abs(X) > 1 + RANGE_SLACK).any(axis=1).sum())
            notes += [f"{beyond} rows lie outside of the ranges of the space"] if beyond else []
        y = (-1.0 if schema.minimize else 1.0) * rows.outputs[kept]
        failures = self._failures(space)
        noise_std = None if rows.noise_std is None else rows.noise_std[kept]
        tasks = [
            {
                "X": X[part],
                "y": y[part],
                "name": labels.names[s],
                "failed": failures.get(s),
                "noise_std": None if noise_std is None else noise_std[part],
            }
            for s, part in grouped(labels.codes[kept])
        ]
        report = Report(
            rows.source.name,
            schema.roles.task,
            schema.roles.output,
            schema.minimize,
            rows=len(kept) + rows.source.failed,
            kept=int(kept.sum()),
            notes=tuple(notes),
            inputs=tuple(schema.inputs or ()),
            doubtful=schema.doubtful,
            left_out=self.counts,
        )
        return tasks, space, report

    def _points(self, space: Space) -> Array:
        """(n, d0) points of the rows that are used, 0 where a parameter is not there.

        If a value cannot be encoded, the error says in which row it is.
        """
        rows, cells = np.flatnonzero(self.kept), self.cells
        X = np.zeros((len(rows), space.d0))
        for name, values in cells.items():
            here = np.flatnonzero(~self.unfilled[name][rows])
            encode = partial(space[name].encode, extrapolate=self.rows.schema.extrapolate)
            try:
                found = encode(values)
            except InputError:
                first, error = _first_refused(encode, values)
                row = int(rows[here[first]])
                task = self.rows.labels.names[self.rows.labels.codes[row]]
                raise error.at(f"{self.rows.source.place(row)}, task {task}") from None
            X[here if len(here) < len(X) else slice(None), space.columns[name]] = found
        active = space.active(X)
        for name in space.free:
            if name not in cells and np.any(active.get(name, True)):
                raise InputError(f"parameter {name!r} is missing")
        return X

    def _failures(self, space: Space) -> dict[int, Array]:
        """Points of runs that gave no value, by task; beyond all ranges if need be.

        Those that are not finished, lack a parameter, or have a choice that no other run has are
        none.
        """
        rows, codes = self.rows, self.rows.labels.codes
        failed = ~np.isfinite(rows.outputs) & (codes >= 0) & ~rows.unfinished
        for name in rows.columns:
            failed &= self.unfilled[name] | ~rows.gap(name)
        points: dict[int, list[Array]] = {}
        for i in np.flatnonzero(failed).tolist():
            x = np.zeros(space.d0)
            with suppress(InputError):
                for name, column in rows.columns.items():
                    if not self.unfilled[name][i]:
                        x[space.columns[name]] = space[name].encode([column[i]], extrapolate=True)[
                            0
                        ]
                points.setdefault(int(codes[i]), []).append(x)
        return {s: np.array(found) for s, found in points.items()}


def _first_refused(
    encode: Callable[[NDArray[Any]], Array], values: NDArray[Any]
) -> tuple[int, InputError]:
    """The index of the first value that cannot be encoded, and why."""
    errors: dict[int, InputError] = {}

    def refused(i: int) -> bool:
        try:
            encode(values[: i + 1])
        except InputError as error:
            errors[i] = error
        return i in errors

    first = bisect_left(range(len(values)), True, key=refused)
    return first, errors[first]


def _find_gaps(rows: Rows) -> tuple[list[Condition], dict[str, Mask]]:
    """Which choices decide whether inputs are there, parents first, and rows that need no value."""
    names, space = tuple(rows.columns), rows.schema.space
    if space is not None:
        conditions = [c for c in space.parents_first if {c.name, c.parent} <= {*names}]
    else:
        found = {name: c for name in names if (c := rows.condition(name)) is not None}
        conditions = sorted(found.values(), key=lambda c: c.parent in found)
    unfilled = {name: np.zeros(len(rows.outputs), dtype=bool) for name in names}
    for c in conditions:
        unfilled[c.name] = (~rows.holds(c) & ~rows.gap(c.parent)) | unfilled[c.parent]
    return conditions, unfilled


def _with_default(column: Column, name: str, schema: Schema) -> Column:
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
    """Distinct values of a column of choices or of a few whole numbers, as of layers; else none."""
    levels, codes = column.coded()
    flags = all(isinstance(v, bool) for v in levels if not is_missing(v))
    if flags or 2 <= len(column.texts) <= MOST_CATEGORIES:
        return levels, codes
    few = column.levels is None and 2 <= len(levels) <= FEW_NUMBERS
    return (list(map(int, levels)) if few and all(v == v // 1 for v in levels) else []), codes


def _readable(columns: Columns, schema: Schema, notes: list[str]) -> Columns:
    """Without units, and with the task in every row of a block, where people wrote it once."""
    found = dict(columns)
    for name, column in columns.items():
        if name == schema.roles.task or schema.meaning(name) == "choices":
            continue
        found[name], unit = without_unit(name, column)
        if unit:
            cells = zip(column.tolist(), found[name].tolist(), strict=True)
            shown = [(w, f"{v:g}" if is_numeric(v) else v) for w, v in cells if unit in str(w)]
            was, now = next((pair for pair in shown if pair[1] not in str(pair[0])), shown[0])
            notes.append(f"{name} has a unit: {was!r} is read as {now}")
    column = columns[schema.roles.task]
    n, named = len(column), np.flatnonzero(~column.missing)
    if 0 < 2 * len(named) <= n and named[0] == 0:
        values = column.tolist()
        # Where names are repeated, empty cells are just unknown.
        if len(named) <= BLOCKS_PER_TASK * len({str(values[i]) for i in named}):
            above = np.searchsorted(named, np.arange(n), side="right") - 1
            found[schema.roles.task] = Column.of([values[named[k]] for k in above])
            rows = f"{n - len(named)} rows, which are taken as of the one above"
            notes.append(f"{schema.roles.task} is empty in {rows}")
    return found


def _usable(
    rows: Rows, unfilled: Mapping[str, Mask], notes: list[str]
) -> tuple[Mask, dict[str, int]]:
    """(n,) rows to learn from, and how many others there are by reason.

    Runs with one result are copies if the other columns agree, too: a replicate has another date.
    """
    source, inputs, codes, outputs = rows.source, rows.columns, rows.labels.codes, rows.outputs
    gaps = {name: rows.gap(name) & ~unfilled[name] for name in inputs}
    measured = rows.measured
    emptied = {name: count for name, gap in gaps.items() if (count := int((measured & gap).sum()))}
    kept = measured & ~np.any([np.zeros(len(codes), dtype=bool), *gaps.values()], axis=0)
    counts = {
        "missing_tasks": int((codes < 0).sum()),
        "failed": int(((codes >= 0) & ~measured).sum()) + source.failed,
        "missing_inputs": int((measured & ~kept).sum()),
    }
    if not kept.any():
        why = {
            "without a task": counts["missing_tasks"],
            "without a finite output": counts["failed"],
        }
        why |= {f"with an empty {name!r}": count for name, count in emptied.items()}
        shown = ", ".join(f"{count} {what}" for what, count in why.items() if count)
        hints = []
        if emptied:
            name = max(emptied, key=lambda name: emptied[name])
            hints = [
                Hint("leave it out", f"exclude=[{name!r}]", f"--exclude {typed_list((name,))}"),
                Hint(
                    "say what was used",
                    f"defaults={{{name!r}: value}}",
                    f"--default '{name}=value'",
                ),
            ]
        raise InputError(
            f"{source.name}: none of the {len(kept)} rows can be used: {shown}", *hints
        )
    notes += [
        f"{name} is empty in {count} {'row' if count == 1 else 'rows'}, which cannot be used, "
        "unless a default says what was used"
        for name, count in emptied.items()
    ]
    known = {*inputs, rows.schema.roles.task, rows.schema.roles.output}
    keys: list[NDArray[Any]] = [codes, outputs]
    others = {name: column for name, column in source.columns.items() if name not in known}
    compared = (column for name, column in others.items() if not numbers_rows(name, column))
    for column in (*inputs.values(), *compared):
        some = column.missing.any()  # empty cells are equal, too
        keys += (
            [np.where(column.missing, 0, column.keys()), column.missing]
            if some
            else [column.keys()]
        )
    copies = _copies(keys, kept)
    kept[copies] = False
    tasks, left = (np.unique(codes[part]) for part in (measured, kept))
    if gone := [rows.labels.names[s] for s in np.setdiff1d(tasks, left)]:
        notes.append(
            f"{len(gone)} of {len(tasks)} tasks are left out, as all of their rows are: "
            f"{first_of(gone, SHOWN)}"
        )
    return kept, {**counts, "duplicates": len(copies)}


def _copies(columns: Sequence[NDArray[Any]], kept: Mask) -> NDArray[np.intp]:
    """Rows among those ``kept`` that are equal to an earlier one."""
    rows = np.flatnonzero(kept)
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in columns:
        # Adding zero makes -0.0 equal to 0.0 in its bits, too.
        bits = (column[rows].astype(np.float64) + 0.0).view(np.uint64)
        hashes = (hashes ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    ordered = np.sort(hashes)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    candidates = np.flatnonzero(np.isin(hashes, repeated))
    # Rows that differ hardly ever have equal hashes, so that few rows are compared themselves.
    seen, copies = set[tuple[Any, ...]](), []
    for i in rows[candidates].tolist():
        row = tuple(column[i] for column in columns)
        if row in seen:
            copies.append(i)
        seen.add(row)
    return np.array(copies, dtype=np.intp)
