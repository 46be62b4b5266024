"""Read the rows of a source as a schema says: numbers, or a refusal with its line and a remedy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, Problems, typed_list
from metakel.io.cleaning import Place, clean_input, missing_words_note, without_unit
from metakel.io.columns import Column, Columns, Mask, grouped, mix, numbers_rows
from metakel.io.outputs import read_outputs
from metakel.io.relations import InputTable, find_gaps, with_default
from metakel.io.schema import Report, Schema, Table, TaskLabels, known_export
from metakel.space import Condition, Parameter, Space
from metakel.space.configurations import is_numeric
from metakel.space.parameters import RANGE_SLACK

SHOWN = 5
# Names of tasks that stand above blocks of rows are hardly ever repeated.
BLOCKS_PER_TASK = 3


@dataclass(frozen=True, eq=False)
class Prepared:
    """A source without units, with the task and the output of every row."""

    source: Table
    table: InputTable
    noise_std: Array | None
    unfinished: Mask
    problems: Problems


@dataclass(frozen=True, eq=False)
class Rows:
    """Cleaned rows: which can be used, and where values are not there by a condition."""

    source: Table
    table: InputTable
    noise_std: Array | None
    unfinished: Mask
    conditions: Sequence[Condition]
    unfilled: Mapping[str, Mask]
    gaps: Mapping[str, Mask]
    holed: frozenset[str]
    kept: Mask
    counts: Mapping[str, int]

    @property
    def cells(self) -> dict[str, NDArray[Any]]:
        """The values of every input in the rows that are used."""
        columns = self.table.columns.items()
        return {name: column.take(self.kept & ~self.unfilled[name]) for name, column in columns}

    def where(self, i: int) -> str:
        """The place and the task of a row that is used."""
        row, labels = int(np.flatnonzero(self.kept)[i]), self.table.labels
        return f"{self.source.place(row)}, task {labels.names[labels.codes[row]]}"


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
    return assemble(clean_rows(prepare(source, schema, [], []), []))


def prepare(source: Table, schema: Schema, notes: list[str], on_outputs: list[str]) -> Prepared:
    """Tasks and outputs of all rows; what is wrong with outputs joins the problems."""
    if source.space is None:  # else a program has written it
        source = replace(source, columns=_readable(source.columns, schema, notes))
    problems = Problems(source.name)
    labels = TaskLabels.of(source.columns[schema.roles.task], notes)
    outputs, noise_std, unfinished = read_outputs(source, schema, labels, problems, on_outputs)
    table = InputTable(source.columns, schema, labels, outputs)
    return Prepared(source, table, noise_std, unfinished, problems)


def clean_rows(prepared: Prepared, notes: list[str]) -> Rows:
    """Inputs as numbers and choices, and which rows can be used."""
    source, schema = prepared.source, prepared.table.schema
    inputs = _cleaned(source, schema, schema.inputs or (), prepared.problems, notes)
    holed = frozenset(name for name, column in inputs.items() if column.missing.any())
    inputs = {name: with_default(column, name, schema) for name, column in inputs.items()}
    table = replace(prepared.table, columns=inputs)
    conditions, unfilled = find_gaps(table)
    gaps = {name: table.gap(name) & ~unfilled[name] for name in inputs}
    kept, counts = _usable_rows(source, table, gaps, notes)
    notes += _gone(table, kept)
    return Rows(
        source, table, prepared.noise_std, prepared.unfinished,
        conditions, unfilled, gaps, holed, kept, counts,
    )  # fmt: skip


def assemble(rows: Rows) -> tuple[list[dict[str, Any]], Space, Report]:
    """Tasks, space and report of cleaned rows."""
    schema, labels, kept = rows.table.schema, rows.table.labels, rows.kept
    space = schema.space
    assert space is not None
    filled = {name: ~unfilled[kept] for name, unfilled in rows.unfilled.items()}
    X = _points(space, rows.cells, filled, rows.where, extrapolate=schema.extrapolate)
    notes = list(schema.notes)
    if schema.extrapolate:
        beyond = int((np.abs(X) > 1 + RANGE_SLACK).any(axis=1).sum())
        notes += [f"{beyond} rows lie outside of the ranges of the space"] if beyond else []
    y = (-1.0 if schema.minimize else 1.0) * rows.table.outputs[kept]
    failures = _failures(rows.table, space, rows.unfinished, rows.gaps, rows.unfilled)
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
        left_out=rows.counts,
    )
    return tasks, space, report


def _cleaned(
    source: Table, schema: Schema, names: Sequence[str], problems: Problems, notes: list[str]
) -> Columns:
    """The inputs with their numbers as numbers; all problems so far are raised together."""
    inputs = Columns()
    for name in names:
        column, said = source.columns[name], schema.meaning(name)
        with problems.collected(name):
            inputs[name] = clean_input(name, column, said, source.place, notes)
    for name, column in ((schema.roles.task, source.columns[schema.roles.task]), *inputs.items()):
        notes += missing_words_note(name, column)
    problems.refuse(names)
    return inputs


def _points(
    space: Space,
    cells: Mapping[str, NDArray[Any]],
    filled: Mapping[str, Mask],
    where: Place,
    *,
    extrapolate: bool,
) -> Array:
    """(n, d0) points from the values of the rows that are ``filled``; 0 in the columns of others.

    If a value cannot be encoded, the error says in which row it is.
    """
    X = np.zeros((len(next(iter(filled.values()))), space.d0))
    for name, values in cells.items():
        rows = np.flatnonzero(filled[name])
        try:
            found = space[name].encode(values, extrapolate=extrapolate)
        except InputError:
            first, error = _first_refused(space[name], values, extrapolate=extrapolate)
            raise error.at(where(int(rows[first]))) from None
        X[rows if len(rows) < len(X) else slice(None), space.columns[name]] = found
    active = space.active(X)
    for name in space.free:
        if name not in cells and np.any(active.get(name, True)):
            raise InputError(f"parameter {name!r} is missing")
    return X


def _first_refused(
    parameter: Parameter, values: NDArray[Any], *, extrapolate: bool
) -> tuple[int, InputError]:
    """The index of the first value that cannot be encoded, and why."""
    errors: dict[int, InputError] = {}

    def refused(i: int) -> bool:
        try:
            parameter.encode(values[: i + 1], extrapolate=extrapolate)
        except InputError as error:
            errors[i] = error
        return i in errors

    first = bisect_left(range(len(values)), True, key=refused)
    return first, errors[first]


def _failures(
    table: InputTable,
    space: Space,
    unfinished: Mask,
    gaps: Mapping[str, Mask],
    unfilled: Mapping[str, Mask],
) -> dict[int, Array]:
    """Points of runs that gave no value, by task; beyond all ranges if need be.

    Those that are not finished, lack a parameter, or have a choice that no other run has are none.
    """
    codes = table.labels.codes
    rows = ~np.isfinite(table.outputs) & (codes >= 0) & ~unfinished
    for gap in gaps.values():
        rows &= ~gap
    points: dict[int, list[Array]] = {}
    for i in np.flatnonzero(rows).tolist():
        x = np.zeros(space.d0)
        with suppress(InputError):
            for name, column in table.columns.items():
                if not unfilled[name][i]:
                    x[space.columns[name]] = space[name].encode([column[i]], extrapolate=True)[0]
            points.setdefault(int(codes[i]), []).append(x)
    return {s: np.array(found) for s, found in points.items()}


def _readable(columns: Columns, schema: Schema, notes: list[str]) -> Columns:
    """Without units, and with the task in every row of a block, where people wrote it once."""
    found = dict(columns)
    for name, column in columns.items():
        if name == schema.roles.task or schema.meaning(name) == "choices":
            continue
        found[name], unit = without_unit(name, column)
        if unit:
            cells = zip(column.tolist(), found[name].tolist(), strict=True)
            pairs = [
                (was, f"{v:g}" if is_numeric(v) else v) for was, v in cells if unit in str(was)
            ]
            was, now = next((p for p in pairs if p[1] not in str(p[0])), pairs[0])
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


def _usable_rows(
    source: Table, table: InputTable, gaps: Mapping[str, Mask], notes: list[str]
) -> tuple[Mask, dict[str, int]]:
    """(n,) rows to learn from, and how many others there are by reason.

    Runs with one result are copies if the other columns agree, too: a replicate has another date.
    """
    codes, outputs = table.labels.codes, table.outputs
    kept = codes >= 0
    counts = {"missing_tasks": int((~kept).sum())}
    counts["failed"] = int((kept & ~np.isfinite(outputs)).sum()) + source.failed
    kept &= np.isfinite(outputs)
    emptied = {name: count for name, gap in gaps.items() if (count := int((kept & gap).sum()))}
    runs = int(kept.sum())
    for gap in gaps.values():
        kept &= ~gap
    counts["missing_inputs"] = runs - int(kept.sum())
    if not kept.any():
        raise _no_rows(source.name, len(kept), counts, emptied)
    notes += [
        f"{name} is empty in {count} {'row' if count == 1 else 'rows'}, which cannot be used, "
        "unless a default says what was used"
        for name, count in emptied.items()
    ]
    inputs, roles = table.columns, table.schema.roles
    others = (n for n in source.columns if n not in inputs and n not in (roles.task, roles.output))
    compared = [source.columns[n] for n in others if not numbers_rows(n, source.columns[n])]
    keys = [key for c in (*inputs.values(), *compared) for key in _comparable(c)]
    copies = _copies([codes, outputs, *keys], kept)
    kept[copies] = False
    return kept, {**counts, "duplicates": len(copies)}


def _gone(table: InputTable, kept: Mask) -> list[str]:
    """A note on tasks of which no row is left."""
    tasks, left = (np.unique(table.labels.codes[rows]) for rows in (table.measured, kept))
    names = [table.labels.names[s] for s in np.setdiff1d(tasks, left)]
    shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
    note = f"{len(names)} of {len(tasks)} tasks are left out, as all of their rows are: {shown}"
    return [note] if names else []


def _no_rows(
    source: str, rows: int, counts: Mapping[str, int], emptied: Mapping[str, int]
) -> InputError:
    why = {
        "without a task": counts["missing_tasks"],
        "without a finite output": counts["failed"],
        **{f"with an empty {name!r}": count for name, count in emptied.items()},
    }
    shown = ", ".join(f"{count} {what}" for what, count in why.items() if count)
    hints: tuple[Hint, ...] = ()
    if emptied:
        worst = max(emptied, key=lambda name: emptied[name])
        hints = (
            Hint("leave it out", f"exclude=[{worst!r}]", f"--exclude {typed_list((worst,))}"),
            Hint(
                "say what was used", f"defaults={{{worst!r}: value}}", f"--default '{worst}=value'"
            ),
        )
    return InputError(f"{source}: none of the {rows} rows can be used: {shown}", *hints)


def _comparable(column: Column) -> tuple[NDArray[Any], ...]:
    """Numbers that are equal where the values are; empty cells are equal, too."""
    keys = column.keys()
    return (np.where(column.missing, 0, keys), column.missing) if column.missing.any() else (keys,)


def _copies(columns: Sequence[NDArray[Any]], kept: Mask) -> NDArray[np.intp]:
    """Rows among those ``kept`` that are equal to an earlier one."""
    rows = np.flatnonzero(kept)
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in columns:
        # Adding zero makes -0.0 equal to 0.0 in its bits, too.
        bits = (column[rows].astype(np.float64) + 0.0).view(np.uint64)
        hashes = mix(hashes, bits)
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
