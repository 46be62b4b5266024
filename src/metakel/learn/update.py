"""More tasks beside those that were learned from, if they speak of the same things."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from metakel.data import History, Task
from metakel.data.merge import repeated
from metakel.errors import InputError
from metakel.learn.problems import OutOfCoreHistory
from metakel.space import Space


def new_tasks(new: Any, known: int) -> History | OutOfCoreHistory:
    """What `LearnedKernel.update` was given, as a history; plain pairs are numbered on from
    ``known``."""
    if isinstance(new, History) or hasattr(new, "as_problem"):
        return new  # type: ignore[no-any-return]
    if isinstance(new, Task):
        raise InputError(
            f"update: new is one Task, {new.name!r}; expected a History of tasks or pairs (X, y), "
            "e.g. History((task,))"
        )
    if not isinstance(new, Iterable):
        raise InputError(
            f"update: new is a {type(new).__name__}; expected a History, pairs (X, y) or a scan"
        )
    given = list(new)
    numbered = enumerate(zip(given, History.from_pairs(given), strict=True), start=known)
    return History(
        tuple(
            task if isinstance(one, Task) else replace(task, name=f"task {s}")
            for s, (one, task) in numbered
        )
    )


def check_more(old: History | OutOfCoreHistory, new: History | OutOfCoreHistory) -> None:
    """Refuse tasks whose numbers mean something else, and tasks that are known already.

    A scan takes numbers as they are, and knows its own files.
    """
    if not isinstance(new, History):
        return
    _check_space(old.space if isinstance(old, History) else None, new.space)
    if isinstance(old, History):
        _check_direction(old, new)
        _check_repeated(old, new)


def _check_space(old: Space | None, new: Space | None) -> None:
    if new is None or new == old:
        return
    if old is None:
        raise InputError(
            f"update: the new tasks are over the parameters {', '.join(new.names)}, which "
            "were turned into numbers, and the tasks before had numbers only; if they mean the "
            "same, give History(new.tasks)"
        )
    before, now = set(old.parameters), set(new.parameters)
    raise InputError(
        "update: the new tasks are over another space, so that their numbers mean something else: "
        f"{_listed(now - before)} in place of {_listed(before - now)}; read them with "
        "space=learned.history.space"
    )


def _listed(parameters: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, parameters))) or "another order"


def _check_direction(old: History, new: History) -> None:
    if old.report is None or new.report is None or old.report.minimize == new.report.minimize:
        return
    words = [
        f"{report.output!r} is {'minimised' if report.minimize else 'maximised'}"
        for report in (new.report, old.report)
    ]
    raise InputError(
        f"update: in the new tasks {words[0]} but in those before {words[1]}; "
        "read them with the same minimize="
    )


def _check_repeated(old: History, new: History) -> None:
    """A task that counts twice would weigh twice."""
    twice = repeated(old, new)
    if twice:
        raise InputError(
            f"update: {len(twice)} of {new.m} new tasks were learned from before, with the same "
            f"name and the same values, e.g. {twice[0]!r}; expected new ones only"
        )
