"""What a program prints: its result, and values at steps while it runs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import IO, Any

from metakel._arrays import is_number
from metakel.curves import Curve, Decision, from_one
from metakel.errors import InputError

# A number that stands alone or after its name, as in "0.93", "auc: 0.93" or "epoch 3, loss 0.2".
# After another number, as in 14:05:33, "1 234.5" or "- 0.5", it may be a part of something else.
# Digits are those of ASCII; 1_000 is a thousand, and 3_3 is the name of something.
DIGITS = r"(?:[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+)"
NUMBER = rf"[-+]?(?:{DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
VALUE = re.compile(
    rf"(?:^|(?:^|[\s:=,])(?:[^\W\d]|[(\['\"])[^\s:=,]*(?:\s*[:=,]\s*|\s+))({NUMBER})\s*$"
)


@dataclass(frozen=True)
class RunResult:
    """A value and what else was measured, or the reason why there is no value.

    ``curve`` has values by step, and ``stopped`` says that it ended the program early.
    """

    value: float | None
    reason: str = ""
    outputs: Mapping[str, float] = field(default_factory=dict)
    curve: Mapping[int, float] = field(default_factory=dict)
    stopped: bool = False


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


# While the program runs


class Stopped(Exception):
    """A program was ended early, by its curve."""


class Steps:
    """Values at steps, read from the output of a program while it runs.

    By a `step_pattern`, with the groups step and value; ``decide`` says whether the program is to
    be ended, from its curve.
    """

    def __init__(self, pattern: re.Pattern[str], decide: Callable[[Curve], Decision]) -> None:
        self._pattern, self._decide = pattern, decide
        self._found: dict[int, float] = {}
        self._places: dict[int, int] = {}  # by file: up to where it was read

    @property
    def curve(self) -> dict[int, float]:
        """Values by step, from one."""
        return from_one(self._found)

    def look(self, *files: IO[bytes], last: bool = False) -> None:
        """Take in new lines, and raise `Stopped` where they say so; the ``last`` ones never do."""
        for file in files:
            number = file.fileno()
            place = self._places.get(number, 0)
            # The program writes where the position of the file is: it is left where it is.
            new = os.pread(number, os.fstat(number).st_size - place, place)
            end = len(new) if last else max(new.rfind(b"\n"), new.rfind(b"\r")) + 1
            self._places[number] = place + end
            for line in re.split(r"[\r\n]+", new[:end].decode(errors="replace")):
                if found := self._pattern.search(line):
                    self._found[int(found["step"])] = float(found["value"])
                    decision = None if last else self._decide(self.curve)
                    if decision:
                        raise Stopped(decision.reason)


def step_pattern(text: str) -> re.Pattern[str]:
    """The lines that ``epoch={step} val={value}`` means; blanks are as many as there are."""
    if text.count("{step}") != 1 or text.count("{value}") != 1:
        raise InputError(
            f"--step-pattern is {text!r}; expected a part of a line with {{step}} and {{value}}, "
            "as in 'epoch={step} val={value}'"
        )
    if not hasattr(os, "pread"):
        raise InputError("--step-pattern: this system cannot read a file that is being written")
    words = r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))
    value = rf"(?P<value>{NUMBER}|nan|[-+]?inf)(?!\w|\.[0-9])"
    known = words.replace(r"\{step\}", r"(?<![0-9.])(?P<step>[0-9]+)").replace(r"\{value\}", value)
    return re.compile(known, re.IGNORECASE)
