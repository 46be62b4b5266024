"""Locks that threads share, and that are free in a fork, which has no thread that holds one."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from functools import cached_property
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

_OWNERS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def lock_of(owner: object, name: str) -> AbstractContextManager[Any]:
    """A lock that an object keeps under this name; in a fork it gets another one."""
    _OWNERS[owner] = name
    return RLock()


def _renew() -> None:
    for owner, name in list(_OWNERS.items()):
        setattr(owner, name, RLock())
    if sys.version_info < (3, 12):  # there, a property is computed by one thread at a time
        modules = [m for n, m in sys.modules.items() if n.partition(".")[0] == "metakel"]
        classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
        for entry in (entry for c in classes for entry in vars(c).values()):
            if isinstance(entry, cached_property):
                vars(entry)["lock"] = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
