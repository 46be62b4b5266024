"""From the columns of a source to numeric rows, with a report on what was left out.

The true value of a run with a bound (``<0.01``, ``>3600``) is somewhere beyond it. It is taken as
the mean of what the values of the task beyond the bound say, which is Efron's redistribution to the
right (the mean of the Kaplan-Meier estimate beyond the bound), and as the bound itself where
nothing is beyond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, Problems, typed_list
from metakel.io.cleaning import (
    FAILED,
    Place,
    clean_input,
    clean_output,
    missing_words_note,
    normalised,
    without_bounds,
    without_unit,
)
from metakel.io.columns import Column, Columns, Mask, grouped, mix
from metakel.io.inputs import (
    InputTable,
    choose_inputs,
    condition_note,
    find_gaps,
    numbers_rows,
    recorded_space,
    with_default,
)
from metakel.io.schema import Report, Schema, Source, TaskLabels
from metakel.space import Condition, Parameter, Space, infer_space
from metakel.space.parameters import RANGE_SLACK

# Whole numbers below this are exact as floats.
EXACT = 2.0**53
SHOWN = 5
# Names of tasks that stand above blocks of rows are hardly ever repeated.
BLOCKS_PER_TASK = 3
# Words in a status that say that a run gave its value.
DONE = frozenset(
    {"ok", "okay", "success", "successful", "succeeded", "done", "complete", "completed"}
    | {"finished", "passed", "valid", "true", "1", "0k"}
)
NOT_DONE = FAILED | frozenset(
    {"diverged", "oom", "out of memory", "cancelled", "canceled", "invalid", "false"}
)
# Words of runs that were stopped or are not done: they say nothing of where runs fail.
UNFINISHED = frozenset({"pruned", "running", "waiting", "pending", "scheduled", "stopped"})
STATUS_NAMES = frozenset({"status", "state", "outcome", "result", "run_status", "run status"})


def encode(source: Source, **options: Any) -> tuple[list[dict[str, Any]], Space, Report]:
    """The rows that can be used, as numbers, with a report on the others.

    Parameters
    ----------
    source : Source
    **options
        Those of `Schema`; they take precedence over what the source says.

    Returns
    -------
    tasks : list of dict
        Arguments of `metakel.data.Task`. Of outputs, larger is better.
    space : Space
    report : Report
    """
    source = _known_export(source)
    schema, notes = Schema.of(source, **options), list(source.notes)
    if source.space is None:  # else a program has written it
        source = replace(source, columns=_readable(source.columns, schema, notes))
    problems, on_outputs = Problems(source.name), list[str]()
    labels = TaskLabels.of(source.columns[schema.task], notes)
    outputs, noise_std, unfinished = _outputs(source, schema, labels, problems, on_outputs)
    table = InputTable(source.columns, schema, labels, outputs)
    if source.space is not None and schema.space is source.space:
        space = recorded_space(table, source.space, source.conflicts, notes)
        schema = replace(schema, space=space)
        table = replace(table, schema=schema)
    names, doubtful = choose_inputs(table, notes)
    notes += on_outputs
    inputs = _cleaned(source, schema, names, problems, notes)
    holed = {name for name, column in inputs.items() if column.missing.any()}
    inputs = {name: with_default(column, name, schema) for name, column in inputs.items()}
    table = replace(table, columns=inputs)
    conditions, unfilled = find_gaps(table)
    gaps = {name: table.gap(name) & ~unfilled[name] for name in inputs}
    kept, counts = _usable_rows(source, table, gaps, notes)
    notes += _gone(table, kept)
    cells = {name: column.take(kept & ~unfilled[name]) for name, column in inputs.items()}
    space = schema.space or _inferred(cells, schema, holed, conditions, notes)

    def where(i: int) -> str:
        row = int(np.flatnonzero(kept)[i])
        return f"{source.place(row)}, task {labels.names[labels.codes[row]]}"

    filled = {name: ~unfilled[name][kept] for name in inputs}
    X = _points(space, cells, filled, where, extrapolate=schema.extrapolate)
    if schema.extrapolate:
        beyond = int((np.abs(X) > 1 + RANGE_SLACK).any(axis=1).sum())
        notes += [f"{beyond} rows lie outside of the ranges of the space"] if beyond else []
    y = (-1.0 if schema.minimize else 1.0) * outputs[kept]
    failures = _failures(table, space, unfinished, gaps, unfilled)
    tasks = [
        {
            "X": X[rows],
            "y": y[rows],
            "name": labels.names[s],
            "failed": failures.get(s),
            "noise_std": None if noise_std is None else noise_std[kept][rows],
        }
        for s, rows in grouped(labels.codes[kept])
    ]
    report = Report(
        source.name,
        schema.task,
        schema.output,
        schema.minimize,
        rows=len(kept) + source.failed,
        kept=int(kept.sum()),
        notes=tuple(notes),
        inputs=names,
        doubtful=doubtful,
        **counts,
    )
    return tasks, space, report


def _cleaned(
    source: Source, schema: Schema, names: Sequence[str], problems: Problems, notes: list[str]
) -> Columns:
    """The inputs with their numbers as numbers; all problems so far are raised together."""
    inputs = Columns()
    for name in names:
        column, said = source.columns[name], schema.meaning(name)
        with problems.collected(name):
            inputs[name] = clean_input(name, column, said, source.place, notes)
    for name, column in ((schema.task, source.columns[schema.task]), *inputs.items()):
        notes += missing_words_note(name, column)
    problems.refuse(names)
    return inputs


def _inferred(
    cells: dict[str, NDArray[Any]],
    schema: Schema,
    holed: Collection[str],
    conditions: Sequence[Condition],
    notes: list[str],
) -> Space:
    """The space that the values of the inputs suggest.

    Columns with holes are floats in most files; those of whole numbers become such in ``cells``.
    """
    whole = [name for name in cells if name in holed and _whole_floats(cells[name])]
    cells |= {name: cells[name].astype(np.int64) for name in whole}
    space, guesses = infer_space(cells, log=schema.log, categories=schema.categories)
    notes += [*map(condition_note, conditions), *guesses]
    notes += [
        f"{name} is taken as whole numbers, as all its values are but the missing ones "
        "(a space can say otherwise)"
        for name in whole
    ]
    return space.conditioned(conditions)


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


def _known_export(source: Source) -> Source:
    """What ``study.trials_dataframe()`` of Optuna writes, under the names of its parameters."""
    columns = source.columns
    params = [n for n in columns if n.startswith("params_")]
    if source.space is not None or not params or not {"number", "state"} <= columns.keys():
        return source
    own = ("number", "datetime_", "duration", "user_attrs_", "system_attrs_", "intermediate_")
    said = {source.task, source.output}
    done = {normalised(str(v)) for v in columns["state"].tolist()} <= DONE
    gone = [n for n in columns if n not in said and (n.startswith(own) or (done and n == "state"))]
    found = {
        n.removeprefix("params_") if n in params else n: column
        for n, column in columns.items()
        if n not in gone
    }
    if len(found) < len(columns) - len(gone):  # a parameter has the name of another column
        return source
    note = f"an export of Optuna: params_ is taken off the names; left out: {', '.join(gone)}"
    return replace(source, columns=found, notes=(*source.notes, note))


def _readable(columns: Columns, schema: Schema, notes: list[str]) -> Columns:
    """Without units, and with the task in every row of a block, where people wrote it once."""
    found = dict(columns)
    for name, column in columns.items():
        if name == schema.task or schema.meaning(name) == "choices":
            continue
        found[name], unit = without_unit(name, column)
        if unit:
            row = next(i for i, cell in enumerate(column.tolist()) if unit in str(cell))
            notes.append(f"{name} has a unit: {column[row]!r} is read as {found[name][row]:g}")
    column = columns[schema.task]
    n, named = len(column), np.flatnonzero(~column.missing)
    if 0 < 2 * len(named) <= n and named[0] == 0:
        values = column.tolist()
        # Where names are repeated, empty cells are just unknown.
        if len(named) <= BLOCKS_PER_TASK * len({str(values[i]) for i in named}):
            above = np.searchsorted(named, np.arange(n), side="right") - 1
            found[schema.task] = Column.of([values[named[k]] for k in above])
            rows = f"{n - len(named)} rows, which are taken as of the one above"
            notes.append(f"{schema.task} is empty in {rows}")
    return found


def _outputs(
    source: Source, schema: Schema, labels: TaskLabels, problems: Problems, notes: list[str]
) -> tuple[Array, Array | None, Mask]:
    """(n,) outputs, nan for runs that failed, their noise if there is a column of it, and (n,)
    which runs were not finished.

    What is wrong with them joins the problems.
    """
    column = source.columns[schema.output]
    values = np.zeros(len(column))  # inputs are looked at as if every run had an output
    unfinished = np.zeros(len(column), dtype=bool)
    measured, signs = without_bounds(column)
    with problems.collected():
        values = clean_output(schema.output, measured, source.place, notes)
    if signs.any():
        rows = np.flatnonzero(signs)
        notes.append(
            f"{schema.output} is a bound in {len(rows)} rows (e.g. {column[int(rows[0])]!r}): "
            "taken as the mean of the values of its task beyond it, or as the bound where there "
            "are none"
        )
    others = [n for n in source.columns if n not in (schema.task, schema.output)]
    found = [n for n in others if _is_status(n, source.columns[n])]
    for name in found if schema.status is None else [schema.status]:
        with problems.collected():
            failed, stopped = _failed_by_status(source, name)
            unfinished |= stopped
            count = int((failed & np.isfinite(values)).sum())
            values = np.where(failed, np.nan, values)
            if count:
                notes.append(
                    f"{name} says that {count} runs with an output failed: it does not count"
                )
    noise_std = None
    with problems.collected():
        noise_std = _noise_levels(source, schema)
    return settled(values, signs, labels.codes), noise_std, unfinished


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


def _is_status(name: str, column: Column) -> bool:
    """Whether a column says by its name and its words which runs failed."""
    if normalised(name) not in STATUS_NAMES:
        return False
    words = {normalised(text) for text in column.texts}
    return bool(words & (NOT_DONE | UNFINISHED)) and words <= DONE | NOT_DONE | UNFINISHED


def _failed_by_status(source: Source, name: str) -> tuple[Mask, Mask]:
    """(n,) which runs a column of statuses calls failed or not finished, and which of them the
    latter; every word has to be a known one.
    """
    words = ["ok" if v is None else normalised(str(v)) for v in source.columns[name].tolist()]
    for i, word in enumerate(words):
        if word not in DONE | NOT_DONE | UNFINISHED:
            raise InputError(
                f"the status {source.columns[name][i]!r} in {source.place(i)} is not known; "
                "expected words such as 'ok', 'done' and 'failed', 'crashed'"
            )
    stopped = np.array([word in UNFINISHED for word in words], dtype=bool)
    return stopped | np.array([word in NOT_DONE for word in words], dtype=bool), stopped


def _noise_levels(source: Source, schema: Schema) -> Array | None:
    """(n,) standard deviations of the outputs, nan where there is none."""
    if schema.noise is None:
        return None
    found = clean_output(schema.noise, source.columns[schema.noise], source.place, [])
    wrong = (found < 0) | np.isinf(found)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"the noise in {source.place(row)} is {found[row]:g}; expected a number >= 0"
        )
    return found


def _usable_rows(
    source: Source, table: InputTable, gaps: Mapping[str, Mask], notes: list[str]
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
    inputs = table.columns
    others = (
        n for n in source.columns if n not in (table.schema.task, table.schema.output, *inputs)
    )
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


def _whole_floats(values: NDArray[Any]) -> bool:
    """Whether whole numbers became floats only because others are missing."""
    if values.dtype.kind == "O":
        kinds = set(map(type, values))
        return kinds == {int, float} and _whole_floats(values.astype(np.float64))
    if values.dtype.kind != "f":
        return False
    return bool((np.abs(values) < EXACT).all() and (values == np.rint(values)).all())
