"""What Optuna's storage says of a study: outcomes, and what running trials are about to try."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

KEY = "metakel:params:"
CHUNK = 2045  # what every SQL storage can hold in one attribute
# A worker announces its choice within a second or so. One that has not after this was killed.
UNANNOUNCED = timedelta(seconds=60)


@dataclass(frozen=True)
class StudyOutcome:
    """A finished trial; ``value`` is None where it failed, was pruned, or is not finite."""

    number: int
    params: dict[str, Any]
    value: float | None
    constraints: dict[str, float]

    @property
    def feasible(self) -> bool:
        """Whether it may be the best, by Optuna's rule."""
        return all(value <= 0 for value in self.constraints.values())


def outcomes(trials: Iterable[FrozenTrial]) -> list[StudyOutcome]:
    """Finished trials in the order in which they finished, so that new ones come last."""
    finished = [trial for trial in trials if trial.state.is_finished()]
    # An order that does not depend on who reads, also for trials that were added all at once.
    finished.sort(key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))
    return [_outcome(trial) for trial in finished]


def _outcome(trial: FrozenTrial) -> StudyOutcome:
    value = trial.value if trial.state == TrialState.COMPLETE else None
    finite = value is not None and isfinite(value)
    return StudyOutcome(
        trial.number, attempted(trial), value if finite else None, trial.constraints
    )


@dataclass(frozen=True)
class Running:
    """Running trials of other workers.

    Parameters
    ----------
    announced : dict
        What each tries or is about to try, by trial number.
    choosing : int
        How many earlier trials have announced nothing yet.
    """

    announced: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    choosing: int = 0

    def before(self, number: int) -> Running:
        """Without the trials after ``number``."""
        return replace(self, announced={n: p for n, p in self.announced.items() if n < number})


def running(trials: Iterable[FrozenTrial], own: int) -> Running:
    """What is known of the running trials other than ``own``."""
    others = [t for t in trials if t.state == TrialState.RUNNING and t.number != own]
    announced = {trial.number: params for trial in others if (params := attempted(trial))}
    silent = (trial for trial in others if trial.number not in announced)
    choosing = sum(trial.number < own and _just_started(trial) for trial in silent)
    return Running(announced, choosing)


def _just_started(trial: FrozenTrial) -> bool:
    # Clocks of workers differ, by hours where time zones do: then nothing is assumed.
    start = trial.datetime_start
    return start is not None and abs(datetime.now() - start) < UNANNOUNCED


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
