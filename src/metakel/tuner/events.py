"""Events of a journal: results on the scale of past tasks, and what each kind of event holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Any

import numpy as np

from metakel._arrays import LARGEST, is_integer, is_number, refuse_masked, shown
from metakel.curves import as_curve
from metakel.errors import Hint, InputError
from metakel.io.words import is_share
from metakel.optimize.record import feasible
from metakel.tuner.journal import FORMAT, VERSION

Configuration = dict[str, Any]
Event = dict[str, Any]
Expected = tuple[str, Callable[[Any], bool]]
LARGEST_PID = 2**32  # of any system
LONGEST_REASON = 2_000
SLACK = 0.1  # of the range of the output: so far beyond it a value may be noise
NEAR = 2.0  # times the usual values, a value may be one of them
CONFIRM = Hint("if it was measured, say so", "confirmed=True", "--confirm")


# The header


def check_header(first: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The first event, if it is the beginning of a journal."""
    if (first.get("event"), first.get("format")) != ("started", FORMAT):
        begins = f"begins with the event {first['event']!r}" if first else "holds no event"
        raise InputError(
            f"{where} is not a journal: it {begins}; expected 'started' of {FORMAT}, with which "
            "`metakel suggest --journal`, `metakel tune` and Tuner(prior, path) begin one"
        )
    if first.get("version") != VERSION:
        raise InputError(
            f"{where} is a journal of version {first.get('version')!r}; expected {VERSION}, which "
            "this release reads"
        )
    return first


# Configurations


def plain(configuration: Mapping[str, Any]) -> Configuration:
    """Values as the user gave them and as JSON keeps them: numbers of numpy become Python's."""
    if not isinstance(configuration, Mapping):
        raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
    return {str(k): _of_numpy(k, v) if hasattr(v, "item") else v for k, v in configuration.items()}


def _of_numpy(name: str, value: Any) -> Any:
    if np.ma.is_masked(value):  # its item is 0.0
        raise InputError(f"parameter {name!r} is masked: it is missing; expected a value")
    return value.item() if getattr(value, "size", 1) == 1 else value


def digest(data: Any) -> str:
    """Sixteen characters that differ for different data."""
    text = json.dumps(data, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Results


def result(
    number: int | None,
    configuration: Configuration,
    value: Any,
    reason: str,
    outputs: Mapping[str, Any] | None = None,
    constraints: Mapping[str, Any] | None = None,
) -> Event:
    """A result of a trial, or without a number of a new one."""
    found = judged(value, reason)
    kind = "failed" if found["value"] is None else "told"
    del found["reason" if kind == "told" else "value"]
    event = {"event": kind, "number": number, "configuration": configuration}
    bounds = {str(name): as_value(value) for name, value in (constraints or {}).items()}
    feasible(bounds)
    return {**event, **measured(outputs), **({"constraints": bounds} if bounds else {}), **found}


def drawn(curve: Mapping[int, Any] | None) -> Event:
    """Values by step as pairs, null where one is not finite; no entry where there are none."""
    pairs = [[step, judged(value)["value"]] for step, value in as_curve(curve).items()]
    return {"curve": pairs} if pairs else {}


def measured(outputs: Mapping[str, Any] | None) -> Event:
    """Other outputs, as far as they were measured; no entry where none was."""
    values = {str(name): judged(value)["value"] for name, value in (outputs or {}).items()}
    found = {name: value for name, value in values.items() if value is not None}
    return {"outputs": found} if found else {}


def judged(value: Any, reason: str = "") -> Event:
    """A value, or why there is none: not finite, or as good as infinite, is a failure."""
    if value is None:
        return {"value": None, "reason": reason}
    found = as_value(value)
    if not abs(found) <= LARGEST:
        return {"value": None, "reason": reason or f"the value is {found}"}
    return {"value": found, "reason": ""}


def as_value(value: Any) -> float:
    """A number of any type, an array of one number included; text is refused."""
    refuse_masked("the value", value)
    found = value
    try:
        # A float32 would be compared, and noted, as one; an array is no number by itself.
        found = value.item() if hasattr(value, "item") else value
        if not isinstance(found, str | bytes):
            return float(found)
    except OverflowError:
        return float("inf") if found > 0 else float("-inf")
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"the value is {shown(value)}; expected a number (failed=True if there is none)"
    ) from None


def stamped(event: Event) -> Event:
    """With the time of day, for people who read the journal; a long reason is shortened."""
    reason = event.get("reason")
    if isinstance(reason, str) and len(reason) > LONGEST_REASON:
        event = {**event, "reason": reason[: LONGEST_REASON - 3] + "..."}
    return {**event, "at": datetime.now(UTC).isoformat(timespec="seconds")}


# What each event holds


def _is_finite(value: Any) -> bool:
    if type(value) is float:  # as almost always, in files of a million lines
        return isfinite(value)
    try:
        return is_number(value) and isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and (is_integer(pair[0]) and pair[0] > 0)
        and (pair[1] is None or _is_finite(pair[1]))
        for pair in value
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_finite, value))


def _is_process(value: Any) -> bool:
    return value is None or (
        _is_mapping(value) and _is_count(value.get("pid")) and value["pid"] <= LARGEST_PID
    )


def _is_space(value: Any) -> bool:
    entries = value.get("parameters") if isinstance(value, Mapping) else None
    return isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries)


MAPPING: Expected = "named values", _is_mapping
NUMBER: Expected = "a finite number", _is_finite
COUNT: Expected = "a whole number >= 0", _is_count
MAYBE_COUNT: Expected = "a whole number >= 0, or null", lambda v: v is None or _is_count(v)
MAYBE_NUMBER: Expected = "a finite number, or null", lambda v: v is None or _is_finite(v)
MAYBE_PAIR: Expected = "two finite numbers, or null", lambda v: v is None or _is_pair(v)
PROCESS: Expected = "a process with its pid, or null", _is_process
TEXT: Expected = "text", lambda value: isinstance(value, str)
OUTPUTS: Expected = (
    "finite numbers by name, or nothing",
    lambda v: v is None or (isinstance(v, Mapping) and all(map(_is_finite, v.values()))),
)
CURVE: Expected = (
    "pairs of a step > 0 and a finite number or null, or nothing",
    lambda v: v is None or _is_curve(v),
)
BOOL: Expected = "true or false", lambda value: isinstance(value, bool)

FIELDS: dict[str, dict[str, Expected]] = {
    "started": {
        "space": ("a space with its parameters", _is_space),
        "output": TEXT,
        "minimize": BOOL,
        "seed": COUNT,
        "delta": NUMBER,
        "fixed": MAPPING,
        "outside": BOOL,
    },
    "asked": {"configuration": MAPPING, "by": PROCESS, "expected": MAYBE_PAIR},
    "queued": {"configuration": MAPPING},
    "adopted": {"number": COUNT, "by": PROCESS},
    "told": {
        "configuration": MAPPING,
        "number": MAYBE_COUNT,
        "value": NUMBER,
        "outputs": OUTPUTS,
        "constraints": OUTPUTS,
        "curve": CURVE,
    },
    "stopped": {"configuration": MAPPING, "number": COUNT, "curve": CURVE},
    "failed": {
        "configuration": MAPPING,
        "number": MAYBE_COUNT,
        "outputs": OUTPUTS,
        "constraints": OUTPUTS,
    },
    "dropped": {"number": COUNT},
    "released": {"number": COUNT},
    "corrected": {
        "configuration": MAPPING,
        "number": COUNT,
        "value": MAYBE_NUMBER,
        "outputs": OUTPUTS,
    },
    "alarm": {"told": COUNT, "reason": TEXT},
    "alarm accepted": {"told": COUNT},
}


def refuse_damaged(event: Mapping[str, Any]) -> None:
    """Check what the fold over events relies on; kinds of a later version are not judged."""
    find = event.get
    for name, (expected, holds) in FIELDS.get(event["event"], {}).items():
        if not holds(find(name)) or (name == "value" and name not in event):
            found = shown(event[name])[:60] if name in event else "nothing"
            raise InputError(f"{event['event']!r} has {found} as {name}; expected {expected}")


# Shares or per cent: past tasks decide the scale of an output, not how a value is written


@dataclass(frozen=True)
class Scale:
    """On which scale an output is."""

    output: str
    ends: tuple[float, float] = (-inf, inf)  # between which all values lie, where that is known
    usual: tuple[float, float] | None = None  # from a middling value to the best of past tasks

    @classmethod
    def of_journal(cls, header: Mapping[str, Any]) -> Scale:
        """That of the prior that a journal was begun with."""
        low, high = header.get("output_range") or (None, None)
        ends = -inf if low is None else low, inf if high is None else high
        usual = header.get("usual")
        return cls(header["output"], ends, usual and (usual[0], usual[1]))

    @property
    def shares(self) -> bool:
        """Whether past tasks have 0.67 for 67 %."""
        return self.usual is not None and "%" not in self.output and 0 < self.usual[1] <= 1

    def read(self, number: float, cell: Any, *, confirmed: bool = False) -> float:
        """The value that a cell means, in which this number stands.

        With a per cent sign, it is taken to the scale of past tasks. Without one, it is refused
        where it is on the other scale, unless it is ``confirmed``.
        """
        signed = isinstance(cell, str) and "%" in cell
        value = self._share(number, cell) if signed and self.shares else number
        self.refuse_impossible(value)
        if not confirmed:
            if not signed:
                self._refuse_per_cent_for_shares(value)
                self._refuse_share_for_per_cent(value)
            self.refuse_slip(value)
        return value

    def as_read(self, cell: Any, value: float) -> str:
        """What to say of a cell that means another number than stands in it."""
        return f"{self.output} {cell!r} is read as {value:g}, as past tasks have it"

    def _share(self, number: float, cell: Any) -> float:
        """A number before a per cent sign, where past tasks have values up to 1.

        They are shares, unless it is some impurity, of which 0.4 % may have been read as 0.4.
        """
        share = float(f"{number / 100:.15g}")
        if is_share(self.output) or (self.usual is not None and number > NEAR * self.usual[1]):
            return share
        if self._is_usual(number):
            return number
        raise InputError(
            f"{self.output} is {cell!r}, which may be {number:g} or {share:g}, and {self._past}; "
            "expected one of the two, without a per cent sign"
        )

    def _refuse_per_cent_for_shares(self, value: float) -> None:
        if self.shares and is_share(self.output) and 1 + SLACK < value <= 100 * (1 + SLACK):
            raise InputError(
                f"{self.output} is {value:g}, and {self._past}, so shares are expected: write "
                f"{value / 100:g} or '{value:g} %'",
                CONFIRM,
            )

    def _refuse_share_for_per_cent(self, value: float) -> None:
        if self.usual is None or self.shares or not is_share(self.output):
            return
        if 0 < value < 1 and self._is_usual(100 * value) and not self._is_usual(value):
            raise InputError(
                f"{self.output} is {value:g}, and {self._past}, so per cent are expected: write "
                f"{100 * value:g}, or '{value:g} %' if it is as little as that",
                CONFIRM,
            )

    def _is_usual(self, value: float) -> bool:
        low, high = self.usual or (inf, -inf)
        return low / NEAR <= value <= NEAR * high

    @property
    def _past(self) -> str:
        low, high = self.usual or (-inf, inf)
        return f"past tasks have {low:.3g} to {high:.3g}" if low < high else f"past {low:.3g}"

    def refuse_impossible(self, value: Any) -> None:
        """An output that is learned on a log scale is never below 0."""
        low, high = self.ends
        if is_number(value) and value < low and not isfinite(high):
            raise InputError(
                f"{self.output} is {value:g}; expected a number from {low:g}, as past tasks were "
                "learned on a log scale. Of an error, tell the error and not its negative; where "
                "values below 0 are right, learn with log_output=False (--no-log-output)"
            )

    def refuse_slip(self, value: Any) -> None:
        """A yield of 101 % is noise; one of 690 % is a slip. What is not finite has failed."""
        low, high = self.ends
        if not isfinite(high - low) and self.shares and is_share(self.output):
            low, high = 0.0, 1.0
        slack = SLACK * (high - low)
        if not (is_number(value) and isfinite(value) and isfinite(slack)):
            return
        if not low - slack < value < high + slack:
            raise InputError(
                f"{self.output} is {value:g}, far beyond its range of {low:g} to {high:g}; "
                "expected a value within it",
                CONFIRM,
                Hint(
                    "if it has another range, learn so",
                    "output_range=(low, high)",
                    "--output-range",
                ),
            )
