"""What Optuna's storage says of a study: outcomes, and what running trials are about to try."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

KEY = "metakel:params:"
CHUNK = 2045  # what every SQL storage can hold in one attribute


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
    finished.sort(key=lambda t: (t.datetime_complete is None, t.datetime_complete, t.number))
    return [_outcome(trial) for trial in finished]


def _outcome(trial: FrozenTrial) -> Outcome:
    value = trial.value if trial.state == TrialState.COMPLETE else None
    finite = value is not None and isfinite(value)
    return Outcome(trial.number, attempted(trial), value if finite else None, trial.constraints)


def running(trials: Iterable[FrozenTrial], own: int) -> list[dict[str, Any]]:
    """What the other running trials are trying or about to try."""
    others = (t for t in trials if t.state == TrialState.RUNNING and t.number != own)
    return [attempted(trial) for trial in others]


def attempted(trial: FrozenTrial) -> dict[str, Any]:
    """Parameters asked for so far, and those that were chosen but not asked for yet."""
    if trial.state == TrialState.COMPLETE:
        return trial.params
    enqueued = trial.system_attrs.get("fixed_params", {})
    return {**read_choice(trial.system_attrs), **enqueued, **trial.params}


def alike(choice: Mapping[str, Any], trials: Iterable[FrozenTrial], own: int) -> set[int]:
    """The numbers of other trials that try or tried the same."""
    (name, value), *_ = choice.items()  # most differ in the first parameter already
    others = ((trial.number, attempted(trial)) for trial in trials if trial.number != own)
    near = ((number, params) for number, params in others if params.get(name, ...) == value)
    return {number for number, params in near if choice.items() <= params.items()}


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
