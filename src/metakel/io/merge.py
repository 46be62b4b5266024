"""Several tables as one, and one search space with distinct names for several studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from metakel.errors import InputError, first_of
from metakel.io.columns import Column, Columns, numbered
from metakel.io.schema import Table
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Parameter, Space
from metakel.space.configurations import is_numeric

SHOWN = 3

# The value of a parameter that a run does not have; None may be one of its choices.
ABSENT = float("nan")
# A parameter as some studies have it, with the names of those.
Versions = Mapping[Parameter, Sequence[str]]
# Parameters and value of a run, and where it is known how far that may be off.
StudyRun = tuple[Mapping[str, Any], float | None] | tuple[Mapping[str, Any], float, float]
# The name of a study, its parameters, and its runs.
Study = tuple[str, Sequence[Parameter], Sequence[StudyRun]]
NOISE = "metakel.noise"


def join_studies(
    source: str,
    studies: Sequence[Study],
    *,
    task: str,
    output: str,
    minimize: bool,
    failed: int,
    notes: Iterable[str] = (),
) -> Table:
    """One source of studies that know their parameters, each a task.

    A parameter may have our name for the task or the output: these are renamed then.
    """
    labels = numbered([name for name, _, _ in studies])
    parameters = [
        (label, p) for label, (_, found, _) in zip(labels, studies, strict=True) for p in found
    ]
    runs = [
        (label, *(*run, ABSENT)[:3])
        for label, (_, _, rows) in zip(labels, studies, strict=True)
        for run in rows
    ]
    space, merge_notes, conflicts = merge_spaces(parameters)
    names = dict.fromkeys(p.name for _, p in parameters)
    task, output = (f"{source.lower()}.{n}" if n in names else n for n in (task, output))
    columns = {task: Column.of([label for label, *_ in runs])}
    for name in names:
        if name in space.names or name in conflicts:
            columns[name] = Column.of([params.get(name, ABSENT) for _, params, *_ in runs])
    columns[output] = Column.of([value for _, _, value, _ in runs])
    every, noise = (*merge_notes, *notes), None
    if any(noise_std == noise_std for *_, noise_std in runs):
        noise = NOISE
        columns[noise] = Column.of([noise_std for *_, noise_std in runs])
    found = Table(source, columns, task, output, space, minimize, failed, every)
    return replace(found, conflicts=conflicts, noise=noise)


def merge_spaces(found: Iterable[tuple[str, Parameter]]) -> tuple[Space, list[str], dict[str, str]]:
    """One space for all, from pairs of a study's name and a parameter that it has.

    Its ranges are wide enough for each. Also notes on where studies differ, and for parameters that
    cannot be merged why.
    """
    versions: dict[str, dict[Parameter, dict[str, None]]] = {}
    for study, parameter in found:
        versions.setdefault(parameter.name, {}).setdefault(parameter, {})[study] = None
    if not versions:
        raise InputError("the studies have no trials with parameters")
    merged, notes, conflicts = list[Parameter](), list[str](), dict[str, str]()
    for name, several in versions.items():
        one, note = merge_parameter({p: tuple(studies) for p, studies in several.items()})
        if one is not None:
            merged.append(one)
            notes += [note] if note else []
        elif note:
            conflicts[name] = note
        else:
            notes.append(f"left out: {name} has one value in every task")
    if conflicts and all(isinstance(p, Fixed) for p in merged):
        raise InputError(next(iter(conflicts.values())))
    return Space(tuple(merged)), notes, conflicts


def merge_parameter(versions: Versions) -> tuple[Parameter | None, str]:
    """A parameter that takes the values of all, and a note on what it had to give up.

    None with a note where there is none, and without one where it only describes the studies.
    """
    first, *others = versions
    if not others:
        return first, ""
    ranges = [p for p in versions if not isinstance(p, Fixed)]
    values = [p.value for p in versions if isinstance(p, Fixed)]
    if not ranges:
        times = Counter(study for studies in versions.values() for study in studies)
        if max(times.values()) == 1:
            return None, ""
        kind: type[Parameter] = Float if all(map(is_numeric, values)) else Categorical
    else:
        kinds = {Float if isinstance(p, Float) else type(p) for p in ranges}
        kind = kinds.pop() if len(kinds) == 1 else Parameter
    if kind is Categorical:
        choices = [v for p in ranges if isinstance(p, Categorical) for v in p.values]
        return Categorical(first.name, tuple(dict.fromkeys((*choices, *values)))), ""
    if kind is Ordinal:
        ranks = {*values, *(v for p in ranges if isinstance(p, Ordinal) for v in p.values)}
        if all(map(is_numeric, ranks)):
            return Ordinal(first.name, tuple(sorted(ranks))), ""
    if kind is Float and all(map(is_numeric, values)):
        return _numbers(versions)
    return None, _conflict(versions)


def _numbers(versions: Versions) -> tuple[Parameter, str]:
    """A range over all ranges and values; a log scale and fractions count before their absence."""
    ranges = [p for p in versions if isinstance(p, Float)]
    values = [p.value for p in versions if isinstance(p, Fixed)]
    name = next(iter(versions)).name
    low = min([*(p.low for p in ranges), *values])
    high = max([*(p.high for p in ranges), *values])
    whole = {p: _whole(p) for p in versions}
    integer = all(whole.values())
    wants_log = any(p.log for p in ranges)
    log = wants_log and low > 0
    steps, lows = {p.step for p in ranges}, {p.low for p in ranges}
    step: float | None = 1 if integer else None
    if len(steps) == len(lows) == 1 and all(_placed(ranges[0], v) for v in values):
        step = steps.pop()
    notes = []
    if len({p.log for p in ranges}) > 1 or wants_log != log:
        split = _split(versions, {p: isinstance(p, Float) and p.log for p in versions})
        taken = "on a log scale" if log else f"on a plain one, as it starts at {low:g}"
        notes.append(f"{name} is on a log scale in {split}: taken {taken}")
    if not integer and any(isinstance(p, Integer) for p in ranges):
        notes.append(f"{name} is a whole number in {_split(versions, whole)}: taken as any number")
    kind = Integer if integer else Float
    return kind(name, low, high, log, step), "; ".join(notes)


def _whole(parameter: Parameter) -> bool:
    if isinstance(parameter, Fixed):
        return float(parameter.value).is_integer()
    return isinstance(parameter, Integer)


def _placed(parameter: Float, value: float) -> bool:
    try:
        parameter.encode([value])
    except InputError:
        return False
    return True


def _family(parameter: Parameter) -> type[Parameter]:
    number = isinstance(parameter, Fixed) and is_numeric(parameter.value)
    return Float if number or isinstance(parameter, Float) else type(parameter)


def _split(versions: Versions, has: Mapping[Parameter, bool]) -> str:
    """Studies that have it, and those that have not."""
    yes, no = (
        [s for p, studies in versions.items() if has[p] is side for s in studies]
        for side in (True, False)
    )
    return f"{first_of(yes, SHOWN)} and not in {first_of(no, SHOWN)}"


def _conflict(versions: Versions) -> str:
    first, *others = sorted(versions, key=lambda p: isinstance(p, Fixed))
    other = next((p for p in others if _family(p) is not _family(first)), others[-1])
    return (
        f"parameter {first.name!r} is {first.describe()} in {first_of(versions[first], SHOWN)} and "
        f"{other.describe()} in {first_of(versions[other], SHOWN)}; expected one kind in all: "
        "leave it out by naming the other inputs, or declare what it is in a space"
    )


def join_tables(sources: Sequence[Table]) -> Table:
    """One source of all rows; a column that a table has not is empty in its rows.

    Rows with the same task label belong to one task, unless the tables differ in their columns:
    then what is recorded of it differs, too, and each table has a task of its own.
    """
    if not sources:
        raise InputError("found no table; expected at least one")
    first, *others = sources
    if not others:
        return first
    for source in sources:
        for name in (first.task, first.output):
            if name not in source.columns:
                raise InputError(
                    f"{source.name} has no column {name!r}; found {', '.join(source.columns)}"
                )
        if source.space is not None:
            raise InputError(f"{source.name} is not a table; expected tables to read together")
    sizes = [len(source.columns[source.task]) for source in sources]
    tables, notes = _labeled(sources)
    columns = {
        name: Column.joined(
            [
                table[name] if name in table else Column(np.zeros(n), np.ones(n, dtype=bool))
                for table, n in zip(tables, sizes, strict=True)
            ]
        )
        for name in dict.fromkeys(name for table in tables for name in table)
    }
    starts = np.cumsum([0, *sizes])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        found = sources[which].place(row - int(starts[which]))
        return found if sources[which].name in found else f"{found} of {sources[which].name}"

    return replace(
        first,
        name=" and ".join(source.name for source in sources),
        columns=columns,
        failed=sum(source.failed for source in sources),
        notes=(*(f"{s.name}: {note}" for s in sources for note in s.notes), *notes),
        place=place,
        noise=next((source.noise for source in sources if source.noise), None),
        curves={name: curves for source in sources for name, curves in source.curves.items()},
    )


def _labeled(sources: Sequence[Table]) -> tuple[list[Columns], list[str]]:
    """The tables with labels that name one task each, and notes on those that did not."""
    tables = [source.columns for source in sources]
    labels = [source.columns[source.task].tolist() for source in sources]
    times = Counter(label for found in labels for label in dict.fromkeys(found))
    twice = [label for label, n in times.items() if n > 1 and label is not None]
    if not twice or len({frozenset(table) for table in tables}) == 1:
        return tables, []
    renamed = []
    for number, (source, found) in enumerate(zip(sources, labels, strict=True), start=1):
        shown = [f"{v} ({source.name}, {number})" if v in twice else v for v in found]
        renamed.append({**source.columns, source.task: Column.of(shown)})
    note = (
        f"{len(twice)} tasks are in several tables that record other columns (e.g. {twice[0]!r}): "
        "taken as one task in each"
    )
    return renamed, [note]
