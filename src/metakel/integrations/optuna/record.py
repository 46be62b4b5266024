"""What Optuna's storage says of a study: parameters, outcomes, and what is about to be tried.

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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from math import isclose, isfinite, isnan
from statistics import median
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from metakel.curves import Curve, CurveModel, from_one
from metakel.errors import InputError
from metakel.io.stopped import TaskCurves, ends_of
from metakel.optimize import Optimizer
from metakel.optimize.record import NO_NOTE, UNPLACED, Note, Trial
from metakel.space import Categorical, Fixed, Float, Parameter, Space

# Values of a study's parameter that the prior's parameter must be able to place.
PROBES = 33
PLAIN = (type(None), bool, int, float, str)
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


# Which parameters of a study the prior knows, and what becomes of the others


def matching(distributions: Mapping[str, BaseDistribution], space: Space) -> dict[str, Parameter]:
    """Parameters of a study, with their ranges there, that a prior on ``space`` can judge.

    In the order of ``space``: the order in which a host names them must not decide anything.
    """
    found = {}
    for name in (name for name in space.names if name in distributions):
        distribution = distributions[name]
        if _plain(distribution) and not distribution.single():
            parameter = _match(name, distribution, space[name])
            if parameter is not None:
                found[name] = parameter
    return found


def handed_out(trial: FrozenTrial, space: Space) -> dict[str, Any]:
    """What the parameters of a trial that a prior on ``space`` knows have been given so far.

    Not those that are something else in the study than in the past.
    """
    known = matching(trial.distributions, space)
    for name, distribution in trial.distributions.items():
        if distribution.single() and name in space.free:
            with suppress(InputError):
                space[name].encode([trial.params[name]])
                known[name] = space[name]
    return {name: value for name, value in trial.params.items() if name in known}


def joining(distributions: Mapping[str, BaseDistribution], space: Space) -> dict[str, Parameter]:
    """Parameters of a study that a prior on ``space`` does not know, and that can join its model.

    Not those that have the name of another parameter there. In the order of their names.
    """
    found = {}
    for name, distribution in sorted(distributions.items()):
        unknown = name not in space.names or isinstance(space[name], Fixed)
        if unknown and _plain(distribution) and not distribution.single():
            found[name] = Space.from_optuna({name: distribution})[name]
    return found


def chosen(distributions: Mapping[str, BaseDistribution], space: Space) -> Space | None:
    """What is chosen by a prior on ``space``; None where it knows none of the parameters."""
    known = matching(distributions, space)
    if not known:
        return None
    known |= conditional(known, space)
    ordered = [known[name] for name in space.names if name in known]
    found = Space((*ordered, *joining(distributions, space).values()))
    names = {*found.names}
    return found.conditioned([c for c in space.conditions if {c.name, c.parent} <= names])


def narrowed(past: Space, distributions: Mapping[str, BaseDistribution]) -> Space:
    """The parameters of the past, with the ranges that a study is known to have for some of them.

    Before the first completed trial nobody knows which parameters a study has.
    """
    known = matching(distributions, past)
    found = Space(tuple(known.get(p.name, p) for p in past.parameters))
    return found.conditioned(past.conditions)


def conditional(known: Mapping[str, Parameter], space: Space) -> dict[str, Parameter]:
    """Parameters that are there only with some choices of those that a study is known to have.

    Trials without them do not show them, so that their ranges are those of the past.
    """
    found: dict[str, Parameter] = {}
    for c in space.parents_first:
        parent = known.get(c.parent, found.get(c.parent))
        values = getattr(parent, "values", ())
        if c.name not in known and 0 < sum(v in c.values for v in values) < len(values):
            found[c.name] = space[c.name]
    return found


def nearest_value(name: str, value: Any, distribution: BaseDistribution, space: Space) -> Any:
    """The value of a distribution nearest to one that the prior proposes.

    InputError where there is none, for example because one is a number and the other a choice.
    """
    parameter = matching({name: distribution}, space).get(name)
    if parameter is None:
        raise InputError(f"parameter {name!r} is not what the prior knows by this name")
    known = space[name]
    if isinstance(parameter, Categorical) and isinstance(known, Float):
        places = known.encode([*parameter.values, value], extrapolate=True)
        apart = np.abs(places[:-1] - places[-1])
        return parameter.values[int(np.argmin(apart))]
    if isinstance(parameter, Float):  # a whole number may be near to one that is not whole
        scale = Float(name, parameter.low, parameter.high, parameter.log)
        return parameter.decode(np.clip(scale.encode([value], extrapolate=True), -1, 1))[0]
    if isinstance(known, Categorical) and value not in parameter.choices:
        return parameter.choices[0]  # the study leaves this one out, and no other is nearer
    return parameter.decode(parameter.encode([value]))[0]


def _plain(distribution: BaseDistribution) -> bool:
    """Whether the values can be compared and written down; choices may be any object."""
    if not isinstance(distribution, CategoricalDistribution):
        return True
    return all(isinstance(choice, PLAIN) for choice in distribution.choices)


@lru_cache(maxsize=512)
def _match(name: str, distribution: BaseDistribution, known: Parameter) -> Parameter | None:
    if isinstance(known, Fixed):  # never varied, so nothing was learned about it
        return None
    try:
        parameter = Space.from_optuna({name: distribution})[name]
        probes = parameter.decode(parameter.sample(np.linspace(0, 1, PROBES, endpoint=False)))
        if isinstance(known, Categorical) and set(parameter.choices) & set(known.values):
            known.place(parameter.choices)  # of which some may be new
        else:
            known.encode(probes, extrapolate=True)
    except InputError:
        return None
    return parameter


def check_unchanged(name: str, chosen: Any, tried: Any) -> None:
    """Before the first trial is completed, the study's own ranges and steps are not known."""
    numbers = isinstance(chosen, int | float) and isinstance(tried, int | float)
    if tried != chosen and not (numbers and isclose(tried, chosen, rel_tol=1e-12, abs_tol=1e-12)):
        raise InputError(
            f"strict: {chosen!r} was found safe for {name!r}, but the study does not allow it "
            f"({tried!r} is nearest). Enqueue a first trial that you know to be safe "
            "(study.enqueue_trial); the ranges of the study are known after it"
        )


# Outcomes, and what running trials are about to try


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
        pruned = trial.state == TrialState.PRUNED
        if curves is not None and trial.state == TrialState.COMPLETE and trial.intermediate_values:
            whole.append(from_one(trial.intermediate_values))
        kept, done = made.get(trial.number, (None, None))
        if kept is not trial or done is None or pruned:
            value, noise_std = trial.value if trial.state == TrialState.COMPLETE else None, None
            if pruned:
                end = None if curves is None else _expected_end(trial, completed, whole, curves)
                value, noise_std = end or (_pruned_value(trial, completed, minimize), None)
            elif value is not None and not isfinite(value):
                value = None
            note = PRUNED if pruned else NO_NOTE
            done = Trial(trial.number, attempted(trial), UNPLACED, note=note)
            done = done.with_result(value, noise_std, constraints=trial.constraints)
            if pruned and done.value is not None:
                # Like an infeasible one: its value is evidence, but it cannot be the best.
                done = replace(done, state="infeasible")
            made[trial.number] = trial, done
        if done.value is not None and not pruned:
            insort(completed, done.value)
        found.append(done)
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
    """Running trials of other workers."""

    # What each tries or is about to try, by trial number.
    announced: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    choosing: tuple[int, ...] = ()  # numbers of the earlier ones that have announced nothing yet

    def before(self, number: int) -> Running:
        """Without the trials after ``number``."""
        return replace(self, announced={n: p for n, p in self.announced.items() if n < number})


def running(trials: Iterable[FrozenTrial], own: int) -> Running:
    """What is known of the running trials other than ``own``."""
    others = [t for t in trials if t.state == TrialState.RUNNING and t.number != own]
    announced = {trial.number: params for trial in others if (params := attempted(trial))}
    silent = (trial for trial in others if trial.number not in announced and trial.number < own)
    # Clocks of workers differ, by hours where time zones do: then nothing is assumed.
    begun = ((t.number, t.datetime_start) for t in silent)
    now = datetime.now()
    choosing = sorted(n for n, start in begun if start and abs(now - start) < UNANNOUNCED)
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
