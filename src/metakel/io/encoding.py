"""From the columns of a source to numeric rows, with a report on what was left out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.errors import Hint, InputError, Problems, typed_list
from metakel.io.cleaning import (
    Place,
    clean_input,
    meaning,
    missing_words_note,
    without_unit,
)
from metakel.io.columns import Column, Columns, Mask, mix
from metakel.io.inputs import (
    Gaps,
    choose_inputs,
    condition_note,
    find_condition,
    find_gaps,
    fitting,
    lacking_tasks,
    numbers_rows,
    with_default,
)
from metakel.io.outputs import read_outputs, with_waiting
from metakel.io.schema import (
    Report,
    Schema,
    Source,
    TaskLabels,
    absent,
    filled_down,
    lacking_note,
)
from metakel.space import Categorical, Condition, Fixed, Parameter, Space, infer_space
from metakel.space.parameters import RANGE_SLACK

# Whole numbers below this are exact as floats.
EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """Numeric rows of all tasks.

    Parameters
    ----------
    X : (n, d0) array
    y : (n,) array
        Larger is better.
    tasks : (n,) array of int
        The task of each row, as an index into ``names``.
    names : tuple of str
    space : Space
    report : Report
    lacks : dict
        Columns of ``X`` that tasks lack, by the index of the task; they are 0 there.
    failures : dict
        Points (k, d0) of the runs of a task that gave no value, by its name.
    noise_std : (n,) array, optional
        Noise of each output, nan where it is not known.
    """

    X: Array
    y: Array
    tasks: NDArray[np.intp]
    names: tuple[str, ...]
    space: Space
    report: Report
    lacks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    failures: Mapping[str, Array] = field(default_factory=dict)
    noise_std: Array | None = None


def encode(source: Source, **options: Any) -> EncodedTable:
    """The rows that can be used, as numbers, with a report on the others.

    ``options`` are those of `Schema`; they take precedence over what the source says.
    """
    schema = Schema.of(source, **options)
    schema.check(source.columns)
    source = _readable(source, schema)
    problems = Problems(source.name)
    outputs, notes = read_outputs(source, schema, problems), list(source.notes)
    if source.space is not None and schema.space is None:
        space, left_out = _recorded_space(source, source.space, schema, outputs.values)
        schema, notes = replace(schema, space=space), [*notes, *left_out]
    labels = TaskLabels.of(source.columns[schema.task])
    values = outputs.settled(labels.codes)
    chosen = choose_inputs(source.columns, schema, labels, values)
    names = chosen.names
    inputs, cleaning_notes = _cleaned(source, schema, names, problems)
    notes += [*chosen.notes, *outputs.notes, *cleaning_notes]
    for name, column in ((schema.task, source.columns[schema.task]), *inputs.items()):
        notes += missing_words_note(name, column)
    problems.refuse(names)
    holed = {name for name, column in inputs.items() if column.missing.any()}
    inputs = {name: with_default(c, name, schema) for name, c in inputs.items()}
    gaps = find_gaps(inputs, schema, labels, values)
    roles = (schema.task, schema.output, *inputs)
    others = [c for n, c in source.columns.items() if n not in roles and not numbers_rows(n, c)]
    kept, counts, emptied = _usable_rows(labels, values, inputs, gaps.missing, others)
    counts["failed"] += source.failed
    if not kept.any():
        raise _no_rows(source.name, len(kept), counts, emptied)
    notes += [_empty_note(name, count) for name, count in emptied.items()]
    used = np.unique(labels.codes[kept])
    for name, lack in gaps.lacking.items():
        if lack[used].any():
            notes.append(lacking_note(name, int(lack[used].sum()), len(used)))
    space, cells, guesses = _space(inputs, gaps, kept, schema, holed)
    notes += guesses

    def where(i: int) -> str:
        row = int(np.flatnonzero(kept)[i])
        return f"{source.place(row)}, task {labels.names[labels.codes[row]]}"

    X = _points(space, cells, gaps, kept, where, extrapolate=schema.extrapolate)
    if schema.extrapolate:
        beyond = int((np.abs(X) > 1 + RANGE_SLACK).any(axis=1).sum())
        if beyond:
            notes.append(f"{beyond} rows lie outside of the ranges of the space")
    return EncodedTable(
        X=X,
        y=(-1.0 if schema.minimize else 1.0) * values[kept],
        tasks=labels.codes[kept],
        names=labels.names,
        space=space,
        report=Report(
            source.name,
            schema.task,
            schema.output,
            schema.minimize,
            rows=len(kept) + source.failed,
            kept=int(kept.sum()),
            notes=tuple(notes),
            inputs=names,
            doubtful={name: chosen.left_out[name] for name in chosen.doubtful},
            **counts,
        ),
        lacks=_lacks(space, gaps),
        failures=_failures(space, inputs, labels, with_waiting(source, values), gaps.unfilled),
        noise_std=None if outputs.noise_std is None else outputs.noise_std[kept],
    )


def _space(
    inputs: Columns, gaps: Gaps, kept: Mask, schema: Schema, holed: set[str]
) -> tuple[Space, dict[str, NDArray[Any]], list[str]]:
    """The given or inferred space, the values of the inputs that are there, and notes.

    Columns with holes are floats in most files; those of whole numbers are taken as such.
    """
    cells = {name: column.take(kept & ~gaps.unfilled[name]) for name, column in inputs.items()}
    if schema.space is not None:
        return schema.space, cells, []
    whole = [name for name in inputs if name in holed and _whole_floats(cells[name])]
    cells |= {name: cells[name].astype(np.int64) for name in whole}
    space, guesses = infer_space(cells, log=schema.log, categories=schema.categories)
    space = Space(space.parameters, fitting(gaps.conditions, space))
    notes = [*map(condition_note, gaps.conditions), *guesses, *map(_whole_note, whole)]
    return space, cells, notes


def _points(
    space: Space,
    cells: Mapping[str, NDArray[Any]],
    gaps: Gaps,
    kept: Mask,
    where: Place,
    *,
    extrapolate: bool,
) -> Array:
    """(n, d0) the kept rows; 0 in the columns of parameters that their tasks lack."""
    values = {
        name: _spread_out(v, gaps.unfilled[name][kept], space[name]) for name, v in cells.items()
    }
    X = _encoded(space, values, where, extrapolate=extrapolate)
    for c in space.conditions:  # it may be recorded where the choice that it belongs to is not
        alone = (gaps.lacked[c.parent] & ~gaps.unfilled[c.name])[kept]
        X[alone, space.columns[c.name]] = space[c.name].encode(
            values[c.name][alone], extrapolate=extrapolate
        )
    for name in space.free:
        X[gaps.lacked[name][kept], space.columns[name]] = 0.0
    return X


def _lacks(space: Space, gaps: Gaps) -> dict[int, tuple[int, ...]]:
    """Columns that tasks lack, by the index of the task."""
    lacks: dict[int, tuple[int, ...]] = {}
    for name in space.free:
        columns = tuple(range(space.d0)[space.columns[name]])
        for task in np.flatnonzero(gaps.lacking[name]).tolist():
            lacks[task] = (*lacks.get(task, ()), *columns)
    return lacks


def _failures(
    space: Space, inputs: Columns, labels: TaskLabels, outputs: Array, unfilled: Mapping[str, Mask]
) -> dict[str, Array]:
    """Points of runs that gave no value, by task; beyond all ranges if need be.

    Those that lack a parameter, or have a choice that no other run has, are no points.
    """
    rows = ~np.isfinite(outputs) & (labels.codes >= 0)
    for name, column in inputs.items():
        rows &= unfilled[name] | ~absent(column, name, space)
    points: dict[int, Array] = {}
    for i in np.flatnonzero(rows).tolist():
        row = {
            name: space[name].decode(np.zeros((1, space[name].width)))[0]
            if unfilled[name][i]
            else column[i]
            for name, column in inputs.items()
        }
        with suppress(InputError):
            points[i] = space.encode([row], extrapolate=True)[0]
    tasks = labels.codes[list(points)] if points else np.empty(0, dtype=np.intp)
    X = np.array(list(points.values())).reshape(-1, space.d0)
    return {labels.names[s]: X[tasks == s] for s in np.unique(tasks).tolist()}


def _readable(source: Source, schema: Schema) -> Source:
    """Without units, and with the task in every row of a block, where people wrote it once."""
    if source.space is not None:  # a program has written it
        return source
    columns, notes = dict(source.columns), list(source.notes)
    for name, column in source.columns.items():
        named = schema.space if schema.space is not None and name in schema.space.names else None
        if name == schema.task or meaning(name, named, schema.categories) == "choices":
            continue
        columns[name], unit = without_unit(name, column)
        if unit:
            row = int(np.flatnonzero([unit in str(cell) for cell in column.tolist()])[0])
            notes.append(f"{name} has a unit: {column[row]!r} is read as {columns[name][row]:g}")
    columns[schema.task], count = filled_down(columns[schema.task])
    if count:
        notes.append(f"{schema.task} is empty in {count} rows, which are taken as of the one above")
    return replace(source, columns=columns, notes=tuple(notes))


def _recorded_space(
    source: Source, space: Space, schema: Schema, outputs: Array
) -> tuple[Space, list[str]]:
    """The parameters to learn from, of those that the source knows, and notes on others.

    By default those that all runs with an output have, or all of some tasks. The rows that happen
    to have a conditional parameter are no fair sample of all: to keep them alone would favour the
    choice that it belongs to.
    """
    rows = np.isfinite(outputs)
    named = [*source.conflicts, *space.names] if schema.inputs is None else schema.inputs
    for name in named:
        if name in source.conflicts:
            raise InputError(source.conflicts[name])
    if schema.inputs is not None:
        known = [space[name] for name in schema.inputs if name in space.names]
        return space.among(known) if known else space, []
    kept, notes, count = [], list[str](), int(rows.sum())
    conditions = list[Condition]()
    labels = TaskLabels.of(source.columns[schema.task])

    def gone(name: str) -> Mask:
        gap = absent(source.columns[name], name, space)
        return lacking_tasks(gap, labels, outputs)[labels.codes]

    for parameter in space.parameters:
        name = parameter.name
        gap = absent(source.columns[name], name, space)
        lacked = gone(name)
        lacking = int((gap & rows & ~lacked).sum())
        if not lacking or name in schema.defaults:
            kept.append(parameter)
            continue
        decided = find_condition(name, gap, source.columns, space.names, rows & ~lacked, gone)
        if decided is not None and isinstance(space[decided.parent], Categorical):
            kept.append(parameter)
            conditions.append(decided)
            notes.append(condition_note(decided))
            continue
        notes.append(
            f"{name} is missing in {lacking} of {count} rows and is not taken as an input, "
            "unless a default says what they used"
        )
    if all(isinstance(parameter, Fixed) for parameter in kept):
        raise InputError(
            f"no parameter that varies is in every one of the {count} completed trials; found "
            f"{', '.join(space.names)}, each in some of them only",
            Hint("say what the others used", "defaults={name: value}", "--default NAME=VALUE"),
        )
    while lost := [c for c in conditions if c.parent not in {p.name for p in kept}]:
        kept = [p for p in kept if p.name not in {c.name for c in lost}]
        conditions = [c for c in conditions if c not in lost]
    found = Space(tuple(kept))
    return Space(tuple(kept), fitting(conditions, found)), notes


def _cleaned(
    source: Source, schema: Schema, names: Sequence[str], problems: Problems
) -> tuple[Columns, list[str]]:
    """The inputs with their numbers as numbers, and notes on that."""
    inputs, notes = Columns(), list[str]()
    for name in names:
        said = meaning(name, schema.space, schema.categories)
        with problems.collected(name):
            inputs[name], found = clean_input(name, source.columns[name], said, source.place)
            notes += found
    return inputs, notes


def _spread_out(values: NDArray[Any], absent: Mask, parameter: Parameter) -> NDArray[Any]:
    """One value for every row: any possible one where it is absent, to be taken out again."""
    if not absent.any():
        return values
    filler = parameter.decode(np.zeros((1, parameter.width)))
    dtype = object if values.dtype.kind == "O" else np.result_type(values, np.array(filler))
    found = np.full(len(absent), filler[0], dtype=dtype)
    found[~absent] = values
    return found


def _usable_rows(
    labels: TaskLabels,
    outputs: Array,
    inputs: Columns,
    gaps: Mapping[str, Mask],
    others: Sequence[Column],
) -> tuple[Mask, dict[str, int], dict[str, int]]:
    """(n,) rows to learn from, how many others there are by reason, and by empty column.

    Runs with one result are copies if their ``others`` agree, too: a replicate has another date.
    """
    kept = np.ones(len(outputs), dtype=bool)
    counts = dict.fromkeys(("missing_tasks", "failed", "missing_inputs"), 0)
    for reason, rows in (("missing_tasks", labels.codes < 0), ("failed", ~np.isfinite(outputs))):
        counts[reason] = int((kept & rows).sum())
        kept &= ~rows
    emptied = {name: int((kept & gap).sum()) for name, gap in gaps.items()}
    for gap in gaps.values():
        counts["missing_inputs"] += int((kept & gap).sum())
        kept &= ~gap
    compared = (*inputs.values(), *others)
    copies = _copies([labels.codes, outputs, *(column.keys() for column in compared)], kept)
    kept[copies] = False
    emptied = {name: count for name, count in emptied.items() if count}
    return kept, {**counts, "duplicates": len(copies)}, emptied


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


def _empty_note(name: str, count: int) -> str:
    return (
        f"{name} is empty in {count} {'row' if count == 1 else 'rows'}, which cannot be used, "
        "unless a default says what was used"
    )


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


def _encoded(
    space: Space, values: Mapping[str, NDArray[Any]], where: Place, *, extrapolate: bool
) -> Array:
    """The rows as points; if one of them cannot be encoded, the error says which."""

    def refusal(rows: slice) -> InputError | None:
        part = {name: column[rows] for name, column in values.items()}
        try:
            space.encode(part, extrapolate=extrapolate)
        except InputError as error:
            return error
        return None

    try:
        return space.encode(values, extrapolate=extrapolate)
    except InputError:
        rows = range(max(map(len, values.values())))
        first = bisect_left(rows, True, key=lambda i: refusal(slice(i + 1)) is not None)
        error = refusal(slice(first, first + 1))
        if error is None:  # not one row, but the columns are wrong
            raise
        raise error.at(where(first)) from None


def _whole_floats(values: NDArray[Any]) -> bool:
    """Whether whole numbers became floats only because others are missing."""
    if values.dtype.kind == "O":
        kinds = set(map(type, values))
        return kinds == {int, float} and _whole_floats(values.astype(np.float64))
    if values.dtype.kind != "f":
        return False
    return bool((np.abs(values) < EXACT).all() and (values == np.rint(values)).all())


def _whole_note(name: str) -> str:
    return (
        f"{name} is taken as whole numbers, as all its values are but the missing ones "
        "(a space can say otherwise)"
    )
