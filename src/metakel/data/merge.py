"""Two histories as one, if their numbers mean the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from metakel.data.task import Task
from metakel.errors import InputError
from metakel.io import Report
from metakel.space import Space

if TYPE_CHECKING:
    from metakel.data.history import History


def merged(a: History, b: History) -> tuple[tuple[Task, ...], Report | None]:
    """Tasks of both, and the report on both."""
    if a.space != b.space:
        raise InputError(
            f"the histories to join are over {_listed(a.space)} and over {_listed(b.space)}, so "
            "that their numbers mean something else; read both with the same space="
        )
    if a.report is not None and b.report is not None and a.report.minimize != b.report.minimize:
        directions = " and ".join(
            f"{report.output!r} is {'minimised' if report.minimize else 'maximised'}"
            for report in (a.report, b.report)
        )
        raise InputError(
            f"in the histories to join {directions}; read both with the same minimize="
        )
    _refuse_repeated(a, b)
    return numbered((*a.tasks, *b.tasks)), _report(a.report, b.report)


def numbered(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks, with a number where another before it has the same name.

    The first keeps its name, unlike in `metakel.io.merge.numbered`: a history that grows must not
    rename the tasks that were learned from before.
    """
    found: dict[str, Task] = {}
    for task in tasks:
        name = task.name
        if name in found:
            name = next(new for i in count(2) if (new := f"{task.name} ({i})") not in found)
        found[name] = task if name == task.name else replace(task, name=name)
    return tuple(found.values())


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
    counts = ("rows", "kept", "failed", "missing_inputs", "missing_tasks", "duplicates")
    return replace(
        a,
        source=f"{a.source} and {b.source}",
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        **{name: getattr(a, name) + getattr(b, name) for name in counts},
    )


def _listed(space: Space | None) -> str:
    if space is None:
        return "plain numbers"
    return "; ".join(f"{p.name} ({p.describe()})" for p in space.parameters)
