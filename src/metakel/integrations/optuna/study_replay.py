"""The optimizer of a study, given Optuna's record, and what a sampler keeps between trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from math import isfinite
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from metakel._arrays import Array, lock_of
from metakel.errors import InputError
from metakel.integrations.optuna.record import (
    FEW,
    Made,
    Running,
    abandoned,
    asked_for,
    conditional,
    joining,
    matching,
)
from metakel.integrations.optuna.sources import LOGGER, SourceStudies
from metakel.optimize import Optimizer, Record, Trial
from metakel.priors import Prior
from metakel.safe import SafePrior
from metakel.search import SearchSpace
from metakel.space import Float, Parameter, Space

# Trials that differ by less than this in every input, of a range from -1 to 1, try nearly the same.
NEAR = 0.1
MOST_KEPT = 64  # priors, in a cache
T = TypeVar("T")
ANY_DELTA = 0.5  # of a model that promises nothing
NOTHING_RUNNING = Running()
HELD = None, 0.0


def varying(prior: Prior) -> Space:
    """The parameters that the prior knows something about."""
    return prior.space.among([prior.space[name] for name in prior.space.free])


def held_values(prior: Prior, space: Space, record: Sequence[Trial]) -> dict[str, Any]:
    """Values for parameters that the prior knows and the search space lacks.

    Where the study has them after all, only not in all trials, they are those of its best trial;
    otherwise those of the configuration that the prior would try first.
    """
    missing = [p for p in varying(prior).parameters if p.name not in space.names]
    if not missing:
        return {}
    worse = 1.0 if prior.info.minimize else -1.0
    valued = [(worse * (t.value or 0.0), t.point) for t in record if t.state == "complete"]
    valued.sort(key=lambda pair: pair[0])
    held, first = {}, _first_choice(prior)
    for p in missing:
        choices = [params[p.name] for _, params in valued if p.name in params]
        held[p.name] = next((v for v in choices if _fits(p, v)), first.get(p.name, _middle(p)))
    return held


@lru_cache(maxsize=4)
def _first_choice(prior: Prior) -> dict[str, Any]:
    return dict(prior.optimizer(extrapolate=True).peek())


def _middle(parameter: Parameter) -> Any:
    return parameter.decode(np.zeros((1, parameter.width)))[0]


def _fits(parameter: Parameter, value: Any) -> bool:
    try:
        parameter.encode([value], extrapolate=True)
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class Strict:
    """What a strict sampler promises, and from where it begins."""

    delta: float  # probability that any of all configurations violates a constraint
    start: tuple[Mapping[str, Any], ...] = ()  # configurations that the user vouches for

    def optimizer(self, prior: Prior, space: Space, rng: np.random.Generator) -> Optimizer:
        """The search on the space of a study, which has to be that of the past."""
        free = varying(prior)
        other = sorted({*space.names} ^ {*free.names})
        if other:
            raise InputError(
                f"strict: the past studies and this one do not have the same parameters: "
                f"{', '.join(map(repr, other))}; nothing can be promised then"
            )
        for parameter in space.parameters:
            _check_range(parameter, prior.space)
        assert prior.past is not None
        limits = dict.fromkeys(prior.past.names[1:], HELD)
        source = SafePrior(prior, limits, self.start)
        return source.search(SearchSpace(space, prior.space), rng, self.delta)


def _check_range(parameter: Any, past: Space) -> None:
    known = past[parameter.name]
    ends = [parameter.low, parameter.high] if isinstance(parameter, Float) else parameter.values
    try:
        known.encode(list(ends))
    except InputError as error:
        raise InputError(
            f"strict: the range of {parameter.name!r} is not within that of the past studies "
            f"({error}); nothing can be promised there"
        ) from None


class StudyReplay:
    """The optimizer of one study on one search space.

    ``space`` has the parameters to choose, with their ranges in this study: those that the prior
    does not know join its model. ``held`` are values of what it knows beside these. ``delta`` is
    that of a certificate, where one is wanted; it needs the search space of the past. Where
    constraints are limits, ``strict`` decides, by a delta of its own.
    """

    def __init__(
        self,
        prior: Prior,
        space: Space,
        held: Mapping[str, Any],
        seed: int,
        delta: float | None = None,
        strict: Strict | None = None,
    ) -> None:
        free, rng = varying(prior), np.random.default_rng(seed)
        self._strict = strict is not None
        if strict is not None:
            self._optimizer = strict.optimizer(prior, space, rng)
        else:
            ranges = space.among([p for p in space.parameters if p.name in free.names])
            self._optimizer = prior.optimizer(
                rng=rng,
                # What was the same in all of the past is a part of its search space.
                space=prior.space if space == free else ranges,
                new=tuple(p for p in space.parameters if p.name not in free.names),
                fixed=held,
                extrapolate=delta is None,
                delta=ANY_DELTA if delta is None else delta,
            )
        self._held = held
        self._names = set(space.names)
        self._required = self._names - {c.name for c in space.conditions}
        self._known = {p.name: p for p in (*space.parameters, *free.parameters)}
        self._encoded: dict[int, tuple[dict[str, Any], Array]] = {}
        # What has not changed since the last trial is not made again.
        self._params: dict[int, Mapping[str, Any]] = {}
        self._made: dict[int, tuple[Trial, Trial]] = {}

    def given(self, record: Sequence[Trial], running: Running = NOTHING_RUNNING) -> Optimizer:
        """The optimizer, given finished trials in the order in which they finished.

        A trial that is still choosing is taken to try what the optimizer suggests for it, given the
        running trials before it: its worker makes the same choice, unless it knows of other
        results.
        """
        finished = {outcome.number: outcome for outcome in record}
        params = {**running.announced, **{n: t.point for n, t in finished.items()}}
        self._encode_new(params)
        encoded = {n: found for n in params if (found := self._encode(n, params[n]))}
        for number in running.choosing:
            before = {n: e for n, e in encoded.items() if n < number or n in finished}
            self._optimizer.record = self._record_of(before, record, finished)
            point = self._optimizer.peek()
            encoded[number] = point, self._place(point)
        self._optimizer.record = self._record_of(encoded, record, finished)
        return self._optimizer

    def suggest(self, optimizer: Optimizer, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """The next configuration, of the parameters to choose; ``fixed`` ones are given."""
        found = optimizer.peek(fixed or None)
        return {n: value for n, value in found.items() if n in self._names}

    def near(
        self, choice: Mapping[str, Any], announced: Mapping[int, Mapping[str, Any]]
    ) -> set[int]:
        """Numbers of the announced trials that try nearly the same as ``choice``."""
        x = self._place(choice)
        others = {number: self._encode(number, params) for number, params in announced.items()}
        return {n for n, other in others.items() if other and np.abs(other[1] - x).max() < NEAR}

    def _encode(
        self, number: int, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Array] | None:
        """The point that a trial tries, and how the model sees it.

        None where the trial lacks a parameter, or has a value of another kind under its name.
        """
        if self._params.get(number) is params:  # of a finished trial, whose parameters stay
            return self._encoded[number]
        if not self._required <= params.keys():
            return None
        point = self._point(params)
        if number not in self._encoded or self._encoded[number][0] != point:
            try:
                self._encoded[number] = point, self._place(point)
            except InputError:
                return None
        self._params[number] = params
        return self._encoded[number]

    def _encode_new(self, params: Mapping[int, Mapping[str, Any]]) -> None:
        """All trials at once that were never seen, as after a restart, if nothing is wrong."""
        new = {
            number: self._point(found)
            for number, found in params.items()
            if number not in self._encoded and self._required <= found.keys()
        }
        try:
            places = self._places(list(new.values())) if new else []
        except InputError:
            return  # `_encode` finds out which
        for (number, point), x in zip(new.items(), places, strict=True):
            self._encoded[number] = point, x

    def _point(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that the optimizer knows, with values that it can take."""
        known = ((p, params[name]) for name, p in self._known.items() if name in params)
        return {p.name: v for p, v in known if p.name in self._names or _fits(p, v)}

    def _record_of(
        self,
        encoded: Mapping[int, tuple[dict[str, Any], Array]],
        record: Sequence[Trial],
        finished: Mapping[int, Trial],
    ) -> Record:
        """Trials of a study by their numbers there, with the outcomes of those that finished."""
        trials = {}
        for place, number in enumerate(sorted(encoded)):
            outcome, (point, x) = finished.get(number), encoded[number]
            before, made = self._made.get(number, (None, None))
            if made is None or made.x is not x or made.number != place or _differ(before, outcome):
                made = self._placed(outcome, place, point, x)
                if outcome is not None:
                    self._made[number] = outcome, made
            trials[number] = made
        steps = tuple((trials[o.number].number,) for o in record if o.number in trials)
        return Record(tuple(trials.values()), steps)

    def _placed(self, outcome: Trial | None, number: int, point: Any, x: Array) -> Trial:
        """A trial as the model sees it; strict constraints are outputs with limits."""
        trial = replace(outcome or Trial(number, point, x), number=number, point=point, x=x)
        if not self._strict or outcome is None:
            return trial
        counts = trial.state == "infeasible" and trial.note.reason != "pruned"
        state = "complete" if counts else trial.state
        return replace(trial, state=state, constraints={}, outputs=trial.constraints)

    def _place(self, point: Mapping[str, Any]) -> Array:
        """(d0,) how the model sees a point; trials may be beyond all ranges."""
        return self._places([point])[0]

    def _places(self, points: Sequence[Mapping[str, Any]]) -> list[Array]:
        domain = cast("SearchSpace", self._optimizer.domain)
        # A study may have the choice and not what belongs to it.
        middle = {c.name: _middle(self._known[c.name]) for c in domain.model_space.conditions}
        full = [{**middle, **self._held, **point} for point in points]
        return list(domain.model_space.encode(full, extrapolate=True))


def _differ(one: Trial | None, other: Trial | None) -> bool:
    if one is None or other is None or one is other:
        return one is not other
    was, now = ((t.state, t.value, t.constraints, t.note.reason) for t in (one, other))
    return was != now


def id_of(study: Study) -> tuple[Any, int]:
    """The same for every object that stands for a study."""
    return study._storage, study._study_id


class SamplerCache:
    """What can be computed again, and what was said. A copy made by pickle begins empty."""

    def __init__(self) -> None:
        self.lock = lock_of(self, "lock")  # threads of one process share a sampler
        self._last: dict[Any, tuple[Any, Any]] = {}  # of the study seen last
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._read: tuple[Any, list[FrozenTrial]] | None = None
        self.made: Made = {}  # of finished trials

    def __reduce__(self) -> tuple[type[SamplerCache], tuple[()]]:
        return SamplerCache, ()

    def kept(self, *key: Any, make: Callable[[], T]) -> T:
        """What is known by a key, or is made now; of a few keys only."""
        if key not in self._kept:
            if len(self._kept) == MOST_KEPT:
                self._kept.clear()
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def first(self, *key: Any) -> bool:
        """Whether something is seen for the first time."""
        new = key not in self._seen
        self._seen.add(key)
        return new

    def last(self, slot: Any, key: Any, make: Callable[[], T]) -> T:
        """What was made last in a slot, if it is for this key; otherwise it is made now."""
        if slot not in self._last or self._last[slot][0] != key:
            self._last[slot] = key, make()
        found: T = self._last[slot][1]
        return found

    def knows(self, study: Study) -> bool:
        """Whether `learned` need not learn."""
        return ("learned", id_of(study), self.below_zero(study)) in self._kept

    def learned(self, study: Study, past: SourceStudies) -> Prior | None:
        """From the past without this study, where it is a part of it."""
        below = self.below_zero(study)
        return self.kept("learned", id_of(study), below, make=lambda: past.prior_for(study))

    def below_zero(self, study: Study) -> bool:
        """Whether values of the study showed that a log scale was a wrong guess."""
        return ("below zero", id_of(study)) in self._seen

    def look_below_zero(self, study: Study) -> None:
        """Look for such values, and say so once."""
        values = (t.values for t in study.get_trials(deepcopy=False) if t.values is not None)
        found = not self.below_zero(study) and any(value < 0 for (value, *_) in values)
        if found and self.first("below zero", id_of(study)):
            LOGGER.warning(
                "study %r has values below 0, and the past was learned on a log scale: past "
                "studies are learned again as they are, a prior that was given is a cold start",
                study.study_name,
            )

    def log_parameters(
        self, study: Study, prior: Prior, common: Mapping[str, BaseDistribution], host: str
    ) -> None:
        """Say which parameters come from the past, once for a study unless that changes."""
        known = matching(common, prior.space)
        known |= conditional(known, prior.space)
        joined = joining(common, prior.space)
        if not self.first("parameters", id_of(study), frozenset(known), frozenset(joined)):
            return
        if not known:
            LOGGER.warning(
                "study %r has no parameter that the past knows (%s): a cold start",
                study.study_name,
                ", ".join(prior.space.free),
            )
            return
        LOGGER.info(
            "study %r: from the past %s; new in the model %s; sampled by %s %s",
            study.study_name,
            ", ".join(name for name in prior.space.names if name in known) or "none",
            ", ".join(joined) or "none",
            host,
            ", ".join(n for n in asked_for(study) if n not in {*known, *joined}) or "none",
        )

    def log_alarm(self, study: Study, optimizer: Optimizer) -> None:
        """Say once that the values contradict the past."""
        alarm = optimizer.alarm
        if alarm is None or not self.first("alarm", id_of(study)):
            return
        low, high = optimizer.output_range
        known = f", between {low:g} and {high:g}" if isfinite(high) else ""
        LOGGER.warning(
            "study %r: alarm after %d values: %s. Nothing is promised any more. Is the value "
            "measured as in the past%s?", study.study_name, alarm.time, alarm.reason, known,
        )  # fmt: skip

    def read(self, study: Study, own: int) -> list[FrozenTrial]:
        """All trials but those of dead workers, which are named once."""
        trials = study.get_trials(deepcopy=False)
        if not any(t.state == TrialState.RUNNING and t.number != own for t in trials):
            return trials
        storage = study._storage
        beats = isinstance(storage, BaseHeartbeat) and storage.get_heartbeat_interval()
        if isinstance(storage, BaseHeartbeat) and beats:
            stale = set(storage._get_stale_trial_ids(study._study_id))
            dead = {trial.number for trial in trials if trial._trial_id in stale}
        else:
            dead = abandoned(trials, datetime.now())
        dead -= {own}
        if new := sorted(n for n in dead if self.first("dead", id_of(study), n)):
            LOGGER.warning(
                "study %r: trials %s are ignored, as their workers seem to be dead: %s. If they "
                "are, study.tell(number, state=optuna.trial.TrialState.FAIL) ends them",
                study.study_name,
                ", ".join(map(str, new)),
                "without a heartbeat"
                if beats
                else f"they run {FEW} times as long as the slowest that finished, or longer",
            )
        return [trial for trial in trials if trial.number not in dead] if dead else trials

    def begin(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Read the trials, for `take` as well; distributions that the completed ones share."""
        with self.lock:
            trials = self.read(study, trial.number)
            self._read = (study._storage, trial._trial_id), trials
            return self.common(study, trials)

    def take(self, study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """The trials as `begin` has read them for this trial a moment ago, or as they are now."""
        kept, self._read = self._read, None
        if kept is not None and kept[0] == (study._storage, trial._trial_id):
            return kept[1]
        return self.read(study, trial.number)

    def common(
        self, study: Study, trials: list[FrozenTrial] | None = None
    ) -> dict[str, BaseDistribution]:
        """Distributions that all completed trials of the study share, by trials just read."""
        with self.lock:
            # The host's cache serves one study; numbers of studies are unique in a storage.
            spaces = self.last("spaces", id_of(study), IntersectionSearchSpace)
            if trials is None:
                return spaces.calculate(study)
            # The host's cache would read them again.
            read = SimpleNamespace(_study_id=study._study_id, _get_trials=lambda **_: trials)
            return spaces.calculate(cast("Study", read))
