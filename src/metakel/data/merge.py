"""Two histories as one, if their numbers mean the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from metakel.data.history import History, Task, numbered
from metakel.errors import InputError
from metakel.io import Report
from metakel.space import Categorical, Condition, Parameter, Space
from metakel.space.configurations import Row
from metakel.space.infer import merge_spaces


def merged(a: History, b: History) -> tuple[tuple[Task, ...], Space | None, Report | None]:
    """Tasks of both, a space for both, and the report on both.

    Ranges are wide enough for both. Parameters that only one of them has are left out.
    """
    if a.report is not None and b.report is not None and a.report.minimize != b.report.minimize:
        directions = " and ".join(
            f"{report.output!r} is {'minimised' if report.minimize else 'maximised'}"
            for report in (a.report, b.report)
        )
        raise InputError(
            f"in the histories to join {directions}; read both with the same minimize="
        )
    report, space = _report(a.report, b.report), a.space
    if a.space == b.space:
        _refuse_repeated(a, b)
        return numbered((*a.tasks, *b.tasks)), space, report
    if a.space is None or b.space is None:
        raise InputError(
            f"the histories to join are over {_listed(a.space)} and over {_listed(b.space)}, so "
            "that their numbers mean something else; read both with named parameters"
        )
    a_space, b_space = a.space, b.space
    shared = _shared(a_space, b_space)
    space, notes, conflicts = merge_spaces(
        (name, p)
        for name, part in (("the first history", a.space), ("the second", b.space))
        for p in part.parameters
        if p.name in shared
    )
    for problem in conflicts.values():
        raise InputError(problem)
    conditions = _conditions(a.space, b.space)
    space = space.conditioned([c for c in conditions if {c.name, c.parent} <= set(space.names)])
    a, b = (
        replace(h, tasks=tuple(_placed(task, h.space, space) for task in h), space=space)
        for h in (a, b)
    )
    _refuse_repeated(a, b)
    tasks = (*a.tasks, *b.tasks)
    if report is not None:
        alone = [n for part in (a_space, b_space) for n in part.free if n not in shared]
        notes += [f"left out: {name} is in one of the joined histories only" for name in alone]
        notes = [*report.notes, *notes]
        report = replace(report, notes=tuple(dict.fromkeys(notes)))
    return numbered(tasks), space, report


def with_choices(history: History, used: Iterable[Row]) -> History:
    """The history over a space that has all choices of configurations that were used, too."""
    assert history.space is not None
    rows, found = list(used), list[Parameter]()
    for p in history.space.parameters:
        if isinstance(p, Categorical):
            new = [row[p.name] for row in rows if p.name in row]
            p = replace(p, values=tuple(dict.fromkeys((*p.values, *new))))
        found.append(p)
    space = replace(history.space, parameters=tuple(found))
    if space == history.space:
        return history
    tasks = tuple(_placed(task, history.space, space) for task in history)
    return replace(history, tasks=tasks, space=space)


def _conditions(*spaces: Space) -> list[Condition]:
    """Those of parameters that depend on one other in all spaces that have a condition for them.

    Where a space has none, the parameter is there with all values that the other has in it.
    """
    found: dict[str, Condition] = {}
    known = [c for space in spaces for c in space.conditions]
    for c in known:
        if {other.parent for other in known if other.name == c.name} != {c.parent}:
            continue
        values = {v: None for other in known if other.name == c.name for v in other.values}
        for space in spaces:
            free = c.name in space.free and c.name not in {own.name for own in space.conditions}
            if free and c.parent in space.names:
                values |= dict.fromkeys(space[c.parent].choices)
        found[c.name] = Condition(c.name, c.parent, tuple(values))
    return list(found.values())


def _placed(task: Task, own: Space | None, space: Space) -> Task:
    """The task over a larger space."""
    assert own is not None
    assert task.failed is not None
    runs = np.concatenate([task.X, task.failed])
    X = np.zeros((len(runs), space.d0))
    for p in space.parameters:
        if p.width:
            here = np.flatnonzero(own.active(runs).get(p.name, np.ones(len(runs), dtype=bool)))
            values = own[p.name].decode(runs[here, own.columns[p.name]])
            X[here, space.columns[p.name]] = p.encode(values, extrapolate=True)
    X = space.settled(X)
    return replace(task, X=X[: task.n], failed=X[task.n :])


def _shared(a: Space, b: Space) -> set[str]:
    """Parameters that both have, with the parents that they need."""
    shared = set(a.names) & set(b.names)
    while lost := {c.name for s in (a, b) for c in s.conditions if c.parent not in shared} & shared:
        shared -= lost
    if not shared & {*a.free, *b.free}:
        raise InputError(
            f"the histories to join share no parameter that varies: {_listed(a)} and {_listed(b)}; "
            "read them together with defaults={...}, or apart"
        )
    return shared


def repeated(a: History, b: History) -> list[str]:
    """Names of the tasks of ``b`` that ``a`` has too, name and values alike."""
    known = {_identity(task) for task in a.tasks}
    return [task.name for task in b.tasks if _identity(task) in known]


def _refuse_repeated(a: History, b: History) -> None:
    """A task that counts twice would weigh twice."""
    twice = repeated(a, b)
    if twice:
        raise InputError(
            f"{len(twice)} of {b.m} tasks are in both histories to join, with the same name and "
            f"the same values, e.g. {twice[0]!r}; expected every task once"
        )


def _identity(task: Task) -> tuple[str, bytes, bytes]:
    return task.name, task.X.tobytes(), task.y.tobytes()


def _report(a: Report | None, b: Report | None) -> Report | None:
    """What was read for both; parts of one history have one report."""
    if a is None or b is None or a == b:
        return b if a is None else a
    return replace(
        a,
        source=f"{a.source} and {b.source}",
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        rows=a.rows + b.rows,
        kept=a.kept + b.kept,
        left_out={name: a.left_out.get(name, 0) + n for name, n in b.left_out.items()},
    )


def _listed(space: Space | None) -> str:
    if space is None:
        return "plain numbers"
    return "; ".join(f"{p.name} ({p.describe()})" for p in space.parameters)
