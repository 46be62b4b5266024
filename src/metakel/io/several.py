"""Several tables as one: rows below each other, columns by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from metakel.errors import InputError
from metakel.io.columns import Column
from metakel.io.schema import Source


def join_sources(sources: Sequence[Source]) -> Source:
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
    labelled, notes = _labelled(sources)
    names = dict.fromkeys(name for source in sources for name in source.columns)
    columns = {
        name: Column.joined(
            [s.columns.get(name, Column.empty(n)) for s, n in zip(labelled, sizes, strict=True)]
        )
        for name in names
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
    )


def _labelled(sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """The sources with labels that name one task each, and notes on those that did not."""
    labels = [_labels(source) for source in sources]
    times = Counter(label for found in labels for label in found)
    kinds = {frozenset(source.columns) for source in sources}
    twice = [label for label, count in times.items() if count > 1]
    if len(kinds) == 1 or not twice:
        return list(sources), []
    renamed = []
    for number, source in enumerate(sources, start=1):
        column = source.columns[source.task]
        shown = [f"{v} ({source.name}, {number})" if v in twice else v for v in column.tolist()]
        renamed.append(replace(source, columns={**source.columns, source.task: Column.of(shown)}))
    note = (
        f"{len(twice)} tasks are in several tables that record other columns (e.g. {twice[0]!r}): "
        "taken as one task in each"
    )
    return renamed, [note]


def _labels(source: Source) -> set[object]:
    column = source.columns[source.task]
    return {label for label in column.tolist() if label is not None}
