"""What a command prints as its result: one number, or several outputs by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from metakel._arrays import is_number

# A number that stands alone or after its name, as in "0.93", "auc: 0.93" or "epoch 3, loss 0.2".
# After another number, as in 14:05:33, "1 234.5" or "- 0.5", it may be a part of something else.
NUMBER = r"[-+]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
VALUE = re.compile(
    rf"(?:^|(?:^|[\s:=,])(?:[^\W\d]|[(\['\"])[^\s:=,]*(?:\s*[:=,]\s*|\s+))({NUMBER})\s*$"
)


@dataclass(frozen=True)
class RunResult:
    """A value and what else was measured, or the reason why there is no value."""

    value: float | None
    reason: str = ""
    outputs: Mapping[str, float] = field(default_factory=dict)


def read_result(text: str, objective: str = "", others: Sequence[str] = ()) -> RunResult:
    """The outputs that a program has printed.

    The last line is a JSON object of numbers by name; or there are lines such as
    ``temperature=71.3``, of which the last of each name counts; or the last line is the value of
    the only output, alone or after a name.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    found = _from_json(last)
    if found is None and others:
        found = {name: n for name in (objective, *others) if (n := _named(lines, name)) is not None}
        if objective not in found and re.fullmatch(NUMBER, last):
            found[objective] = float(last)
    if found is None:
        return read_value(last)
    return _chosen(found, objective, others, last)


def read_value(text: str) -> RunResult:
    """The number that a line is, or ends with after its name, as in ``0.93`` or ``auc: 0.93``."""
    found = VALUE.search(text)
    if found is None:
        what = f"found {text[:80]!r}" if text else "found nothing"
        return RunResult(
            None, f"{what}; expected a number, alone or after its name, as in loss: 0.25"
        )
    value = float(found[1])
    return RunResult(value) if isfinite(value) else RunResult(None, f"the value is {value}")


def _from_json(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _named(lines: Sequence[str], name: str) -> float | None:
    """The number of the last line that begins with a name."""
    line_of = re.compile(rf"{re.escape(name)}\s*[:=]\s*({NUMBER}|nan|[-+]?inf)", re.IGNORECASE)
    found = (match for line in reversed(lines) if (match := line_of.fullmatch(line)))
    match = next(found, None)
    return None if match is None else float(match[1])


def _chosen(
    found: Mapping[str, Any], objective: str, others: Sequence[str], last: str
) -> RunResult:
    numbers = {name: float(v) for name, v in found.items() if is_number(v)}
    lacking = [name for name in (objective, *others) if name not in numbers]
    if lacking:
        what = f"found {last[:80]!r}" if last else "found nothing"
        example = json.dumps(dict.fromkeys((objective, *others), 0.25))
        return RunResult(
            None,
            f"{what}; expected numbers for {', '.join(lacking)}: a JSON object as the last line, "
            f"as in {example}, or lines as in {lacking[0]}=0.25",
        )
    value = numbers.pop(objective)
    measured = {name: number for name, number in numbers.items() if isfinite(number)}
    if not isfinite(value):
        return RunResult(None, f"the value is {value}", measured)
    return RunResult(value, "", measured)
