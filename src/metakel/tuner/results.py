"""Events that a result makes: a value, a failure, a correction, a suggestion given up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from metakel.errors import InputError
from metakel.tuner.journal import Event
from metakel.tuner.normalise import Configuration
from metakel.tuner.trials import Trial, Trials

LARGEST = 1e50  # beyond this no interval can be computed, and the value says no more than "failed"


def as_value(value: Any) -> float:
    """A number of any make, an array of one number included; text is none, even of a number."""
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
        f"the value is {value!r}; expected a number (failed=True if there is none)"
    ) from None


def result(waiting: Trial | None, configuration: Configuration, value: Any, reason: str) -> Event:
    """The event of a result; a value that is not finite, or as good as infinite, has failed."""
    number = None if waiting is None else waiting.number
    event: Event = {"number": number, "configuration": configuration}
    found, why = _judged(value, reason)
    if found is None:
        return {"event": "failed", **event, "reason": why}
    return {"event": "told", **event, "value": found}


def correction(trial: Trial, configuration: Configuration | None, value: Any, reason: str) -> Event:
    """The event of another result in place of a wrong one."""
    found, why = _judged(value, reason)
    return {
        "event": "corrected",
        "number": trial.number,
        "configuration": trial.configuration if configuration is None else configuration,
        "value": found,
        "reason": why,
    }


def dropping(trials: Trials, number: int) -> Event:
    """The event of a suggestion that will not be done, or of a failure that says nothing."""
    status = trials.all[number].status if 0 <= number < len(trials.all) else ""
    if status not in ("pending", "failed"):
        raise InputError(
            f"trial {number} is not pending: {trials.describe(number)}; expected a pending or a "
            "failed one"
        )
    return {"event": "dropped", "number": number, "again": status == "failed"}


def _judged(value: Any, reason: str) -> tuple[float | None, str]:
    if value is None:
        return None, reason
    found = as_value(value)
    if not abs(found) <= LARGEST:
        return None, reason or f"the value is {found}"
    return found, ""


def stamped(event: Event) -> Event:
    """With the time of day, for people who read the journal."""
    return {**event, "at": datetime.now(UTC).isoformat(timespec="seconds")}
