"""Checks for `LearnedKernel.update`: new tasks must fit the old ones."""

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
    """The argument of `LearnedKernel.update` as a history; pairs are numbered from ``known`` on."""
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
    """Raise for tasks in other units or another direction, and for tasks that are not new.

    A scan of files contains plain numbers, and checks for repeated files itself.
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
            f"update: the parameters {', '.join(new.names)} of the new tasks were encoded as "
            "numbers, but the old tasks have plain numbers; if they are in the same units, pass "
            "History(new.tasks)"
        )
    before, now = set(old.parameters), set(new.parameters)
    raise InputError(
        "update: the new tasks have another search space, so their numbers are not comparable: "
        f"found {_listed(now - before)}, expected {_listed(before - now)}; read them with "
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
        f"update: in the new tasks {words[0]}, but in the old ones {words[1]}; "
        "read them with the same minimize="
    )


def _check_repeated(old: History, new: History) -> None:
    """A repeated task would get twice the weight."""
    twice = repeated(old, new)
    if twice:
        raise InputError(
            f"update: {len(twice)} of {new.m} new tasks were already used, with the same name and "
            f"the same values, e.g. {twice[0]!r}; expected new tasks only"
        )
