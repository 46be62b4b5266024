"""What an event of a journal holds, checked where it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from metakel._arrays import is_number
from metakel.errors import InputError

Expected = tuple[str, Callable[[Any], bool]]


def _is_finite(value: Any) -> bool:
    return is_number(value) and isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_process(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and _is_count(value.get("pid")))


def _is_space(value: Any) -> bool:
    entries = value.get("parameters") if isinstance(value, Mapping) else None
    return isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries)


MAPPING: Expected = "named values", lambda value: isinstance(value, Mapping)
NUMBER: Expected = "a finite number", _is_finite
COUNT: Expected = "a whole number >= 0", _is_count
MAYBE_COUNT: Expected = "a whole number >= 0, or null", lambda v: v is None or _is_count(v)
MAYBE_NUMBER: Expected = "a finite number, or null", lambda v: v is None or _is_finite(v)
PROCESS: Expected = "a process with its pid, or null", _is_process
TEXT: Expected = "text", lambda value: isinstance(value, str)
BOOL: Expected = "true or false", lambda value: isinstance(value, bool)

FIELDS: dict[str, dict[str, Expected]] = {
    "started": {
        "space": ("a space with its parameters", _is_space),
        "seed": COUNT,
        "delta": NUMBER,
        "fixed": MAPPING,
        "outside": BOOL,
    },
    "asked": {"configuration": MAPPING, "by": PROCESS},
    "queued": {"configuration": MAPPING},
    "adopted": {"number": COUNT, "by": PROCESS},
    "told": {"configuration": MAPPING, "number": MAYBE_COUNT, "value": NUMBER},
    "failed": {"configuration": MAPPING, "number": MAYBE_COUNT},
    "dropped": {"number": COUNT},
    "released": {"number": COUNT},
    "corrected": {"configuration": MAPPING, "number": COUNT, "value": MAYBE_NUMBER},
    "alarm": {"told": COUNT, "reason": TEXT},
}


def refuse_damaged(event: Mapping[str, Any]) -> None:
    """Whatever the fold over events relies on; kinds of a later version are not ours to judge."""
    for name, (expected, holds) in FIELDS.get(event["event"], {}).items():
        if not holds(event.get(name)):
            found = repr(event[name])[:60] if name in event else "nothing"
            raise InputError(f"{event['event']!r} has {found} as {name}; expected {expected}")
