"""What Optuna's storage says of a study: outcomes, and what running trials are about to try.

A pruned trial says that a configuration is bad, and not how bad: its last intermediate value was
measured earlier than the others' values. So it counts as a value that is never the best. With a
`MetaKelPruner` that is the end which its model expects, as of past studies (`metakel.io.stopped`).
Without a model of curves it is the last intermediate value, but no better than the median of the
trials that had been completed before it was pruned, and no worse than the worst of them. It is
settled once, so that every worker sees the same.
"""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import accumulate
from math import isfinite, isnan
from statistics import median
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from metakel.curves import Curve, CurveModel, from_one
from metakel.io.stopped import TaskCurves, ends_of
from metakel.optimize import Optimizer
from metakel.optimize.record import NO_NOTE, UNPLACED, Note, Trial

KEY = "metakel:params:"
EXPECTED = "metakel:expected"  # a user attribute: what was expected of a trial when it was chosen
LONGEST_WHY = 1500
CHUNK = 2045  # what every SQL storage can hold in one attribute
# A worker announces its choice within a second or so. One that has not after this was killed.
UNANNOUNCED = timedelta(seconds=60)
# A trial that runs so many times as long as the slowest of at least so many was abandoned.
FEW, ENOUGH = 5, 5
ADDED = timedelta(milliseconds=1)  # no trial that was run takes less than this
PRUNED = Note(reason="pruned")


# Trials by number, each with what was made of it.
Made = dict[int, tuple[FrozenTrial, Trial]]


def finished_trials(
    trials: Iterable[FrozenTrial],
    *,
    minimize: bool,
    made: Made | None = None,
    curves: CurveModel | None = None,
) -> list[Trial]:
    """Finished trials in the order in which they finished, so that new ones come last.

    Their points are parameters as Optuna has them, which `StudyReplay` places. What was ``made``
    before of the same trials is not made again, and what is new is added to it.
    """
    made = {} if made is None else made
    finished = [trial for trial in trials if trial.state.is_finished()]
    # An order that does not depend on who reads, also for trials that were added all at once.
    finished.sort(key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))
    found, completed, whole = [], list[float](), list[Curve]()
    for trial in finished:
        pruned, value, noise_std = trial.state == TrialState.PRUNED, None, None
        if curves is not None and trial.state == TrialState.COMPLETE and trial.intermediate_values:
            whole.append(from_one(trial.intermediate_values))
        kept, before = made.get(trial.number, (None, None))
        if kept is trial and before is not None and not pruned:
            found.append(before)
            if before.value is not None:
                insort(completed, before.value)
            continue
        if pruned:
            end = None if curves is None else _expected_end(trial, completed, whole, curves)
            value, noise_std = end or (_pruned_value(trial, completed, minimize), None)
        elif trial.state == TrialState.COMPLETE and isfinite(trial.value or 0.0):
            value = trial.value
        if value is not None and not pruned:
            insort(completed, value)
        asked = Trial(trial.number, attempted(trial), UNPLACED, note=PRUNED if pruned else NO_NOTE)
        done = asked.with_result(value, noise_std, constraints=trial.constraints)
        # A pruned one is like an infeasible one: its value is evidence, but it cannot be the best.
        worse = pruned and done.value is not None
        found.append(replace(done, state="infeasible") if worse else done)
        made[trial.number] = trial, found[-1]
    return found


def _expected_end(
    trial: FrozenTrial, completed: list[float], whole: list[Curve], curves: CurveModel
) -> tuple[float, float] | None:
    """End and noise of a pruned trial, given those completed before it; None if unknown."""
    if not (trial.intermediate_values and whole and completed):
        return None
    best = completed[0] if curves.minimize else completed[-1]
    task = TaskCurves(tuple(whole), (from_one(trial.intermediate_values),), best)
    return ends_of(curves, task).stopped[0]


def _pruned_value(trial: FrozenTrial, completed: list[float], minimize: bool) -> float | None:
    """What a pruned trial counts as, given the sorted values of those completed before it."""
    if not trial.intermediate_values or not completed:
        return None
    last = trial.intermediate_values[max(trial.intermediate_values)]
    if isnan(last):
        return None
    middle = median(completed)
    low, high = (middle, completed[-1]) if minimize else (completed[0], middle)
    return min(max(last, low), high)


@dataclass(frozen=True)
class Running:
    """Running trials of other workers.

    Parameters
    ----------
    announced : dict
        What each tries or is about to try, by trial number.
    choosing : tuple of int
        Numbers of the earlier trials that have announced nothing yet.
    """

    announced: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    choosing: tuple[int, ...] = ()

    def before(self, number: int) -> Running:
        """Without the trials after ``number``."""
        return replace(self, announced={n: p for n, p in self.announced.items() if n < number})


def running(trials: Iterable[FrozenTrial], own: int) -> Running:
    """What is known of the running trials other than ``own``."""
    others = [t for t in trials if t.state == TrialState.RUNNING and t.number != own]
    announced = {trial.number: params for trial in others if (params := attempted(trial))}
    silent = (trial for trial in others if trial.number not in announced and trial.number < own)
    choosing = sorted(trial.number for trial in silent if _just_started(trial))
    return Running(announced, tuple(choosing))


def abandoned(trials: Sequence[FrozenTrial], now: datetime) -> set[int]:
    """Numbers of the trials that run far longer than any other did, as those of dead workers.

    None before some have finished. Clocks of workers differ, so a trial counts as begun when the
    latest of those before it did.
    """
    ends = ((t.datetime_start, t.datetime_complete) for t in trials if t.state.is_finished())
    took = [end - start for start, end in ends if start and end and end - start > ADDED]
    if len(took) < ENOUGH:
        return set()
    limit = max(FEW * max(took), UNANNOUNCED)
    starts = accumulate((t.datetime_start or datetime.min for t in trials), max)
    return {
        trial.number
        for trial, start in zip(trials, starts, strict=True)
        if trial.state == TrialState.RUNNING and now - start > limit
    }


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


def asked_for(study: Study) -> list[str]:
    """Names of all parameters that trials of the study have, except those with one value only."""
    found = (trial.distributions.items() for trial in study.get_trials(deepcopy=False))
    return sorted({name for items in found for name, d in items if not d.single()})


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


def write_expectation(study: Study, trial: FrozenTrial, optimizer: Optimizer, params: Any) -> None:
    """Note what the model that decided expects of the trial, for the dashboard and for frames."""
    why = optimizer.explain(params)
    noted: dict[str, Any] = {
        "value": why.expected.value,  # the mean, within the limits of the output
        "sd": why.expected.sd,
        "trust": optimizer.trust,
        "why": why.sentence[:LONGEST_WHY],
    }
    if optimizer.alarm is not None:
        noted["alarm"] = f"after {optimizer.alarm.time} values: {optimizer.alarm.reason}"
    study._storage.set_trial_user_attr(trial._trial_id, EXPECTED, noted)
