"""What Optuna's storage says of a study: outcomes, and what running trials are about to try."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

KEY = "metakel:params:"
CHUNK = 2045  # what every SQL storage can hold in one attribute


UNANNOUNCED = timedelta(seconds=60)  # a running trial announces its choice at once, or was killed


@dataclass(frozen=True)
class Outcome:
    """A finished trial; ``value`` is None where it failed, was pruned, or is not finite."""

    number: int
    params: dict[str, Any]
    value: float | None
    constraints: dict[str, float]

    @property
    def feasible(self) -> bool:
        """Whether it may be the best, by Optuna's rule."""
        return all(value <= 0 for value in self.constraints.values())


def outcomes(trials: Iterable[FrozenTrial]) -> list[Outcome]:
    """Finished trials in the order in which they finished, so that new ones come last."""
    finished = [trial for trial in trials if trial.state.is_finished()]
    # An order that does not depend on who reads, also for trials that were added all at once.
    finished.sort(key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))
    return [_outcome(trial) for trial in finished]


def _outcome(trial: FrozenTrial) -> Outcome:
    value = trial.value if trial.state == TrialState.COMPLETE else None
    finite = value is not None and isfinite(value)
    return Outcome(trial.number, attempted(trial), value if finite else None, trial.constraints)


def running(trials: Iterable[FrozenTrial], own: int) -> list[tuple[int, dict[str, Any] | None]]:
    """Numbers of the other running trials, with what each tries or is about to try.

    None for an earlier trial that has announced nothing yet, unless it was given up.
    """
    found: list[tuple[int, dict[str, Any] | None]] = []
    for trial in trials:
        if trial.state != TrialState.RUNNING or trial.number == own:
            continue
        params = attempted(trial)
        if params:
            found.append((trial.number, params))
        elif trial.number < own and _is_young(trial):
            found.append((trial.number, None))
    return found


def _is_young(trial: FrozenTrial) -> bool:
    start = trial.datetime_start
    return start is not None and datetime.now() - start < UNANNOUNCED


def attempted(trial: FrozenTrial) -> dict[str, Any]:
    """Parameters asked for so far, and those that were chosen but not asked for yet."""
    if trial.state == TrialState.COMPLETE:
        return trial.params
    enqueued = trial.system_attrs.get("fixed_params", {})
    return {**read_choice(trial.system_attrs), **enqueued, **trial.params}


def read_choice(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What `write_choice` wrote last; empty where nothing, or not all of it yet, is written."""
    parts: list[str] = []
    while (part := attributes.get(f"{KEY}{len(parts)}")) is not None:
        parts.append(part)
    try:  # behind the end may stand the rest of an earlier, longer choice
        return dict(json.JSONDecoder().raw_decode("".join(parts))[0]) if parts else {}
    except ValueError:
        return {}


def write_choice(study: Study, trial: FrozenTrial, params: Mapping[str, Any]) -> None:
    """Let other workers know what this trial will try, before its objective asks for it."""
    text = json.dumps(params)
    for number, start in enumerate(range(0, len(text), CHUNK)):
        study._storage.set_trial_system_attr(
            trial._trial_id, f"{KEY}{number}", text[start : start + CHUNK]
        )
