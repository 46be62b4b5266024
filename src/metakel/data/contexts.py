"""Which columns can be contexts: those that vary within a task (Statement 8)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np

from metakel.errors import InputError

if TYPE_CHECKING:
    from metakel.data.history import History


def check_contexts(history: History, names: Sequence[str], columns: Container[str]) -> None:
    """Refuse contexts that are no parameters, and descriptors: columns constant in every task.

    A descriptor multiplies every kernel of a task by one number, which the coefficients of the task
    absorb, so no history tells how it matters (Statement 8).
    """
    if isinstance(names, str):
        raise InputError(f"context is {names!r}; expected a list of columns, [{names!r}]")
    space = history.space
    if not names or space is None:
        return
    for name in names:
        if name not in space.names and name not in columns:
            known = ", ".join(map(repr, space.names))
            raise InputError(f"there is no column {name!r} for a context; parameters are {known}")
        if name not in space.names or not _varies(history, name):
            raise InputError(
                f"{name!r} is constant in every task, so it is a descriptor of tasks and no "
                "context: how it matters cannot be learned within tasks. Use it for the centre "
                "that tasks share (metakel.priors.descriptor_centre)"
            )
    if set(space.names) <= set(names):
        raise InputError("every parameter is a context; nothing is left to choose")


def _varies(history: History, name: str) -> bool:
    assert history.space is not None
    columns = history.space.columns.get(name)
    if columns is None:
        return False
    return any(bool(np.ptp(task.X[:, columns], axis=0).any()) for task in history)
