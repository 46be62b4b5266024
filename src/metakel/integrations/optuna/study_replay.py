"""An optimizer given the record of a study, kept from trial to trial for speed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.integrations.optuna.record import Outcome
from metakel.optimize import Optimizer, Record, Trial
from metakel.priors import Prior
from metakel.space import Parameter, Space

Running = Sequence[tuple[int, Mapping[str, Any] | None]]


def varying(prior: Prior) -> Space:
    """The parameters that the prior knows something about."""
    return Space(tuple(prior.space[name] for name in prior.space.free))


def held_values(prior: Prior, space: Space, record: Sequence[Outcome]) -> dict[str, Any]:
    """Values for parameters that the prior knows and the search space lacks.

    Where the study has them after all, only not in all trials, they are those of its best trial;
    otherwise those of the configuration that the prior would try first.
    """
    missing = [p for p in varying(prior).parameters if p.name not in space.names]
    if not missing:
        return {}
    worse = 1.0 if prior.info.minimize else -1.0
    valued = [(worse * o.value, o.params) for o in record if o.value is not None and o.feasible]
    valued.sort(key=lambda pair: pair[0])
    held, first = {}, _first_choice(prior)
    for p in missing:
        choices = [params[p.name] for _, params in valued if p.name in params]
        held[p.name] = next((v for v in choices if _fits(p, v)), first[p.name])
    return held


@lru_cache(maxsize=4)
def _first_choice(prior: Prior) -> dict[str, Any]:
    return dict(prior.optimizer(extrapolate=True).suggest())


def _fits(parameter: Parameter, value: Any) -> bool:
    try:
        parameter.encode([value], extrapolate=True)
    except InputError:
        return False
    return True


class StudyReplay:
    """The optimizer of one study on one search space.

    Parameters
    ----------
    prior : Prior
    space : Space
        Parameters to choose, with their ranges in this study.
    held : dict
        Values of the parameters that the prior knows beside those.
    seed : int
    """

    def __init__(self, prior: Prior, space: Space, held: Mapping[str, Any], seed: int) -> None:
        self._optimizer = prior.optimizer(
            rng=np.random.default_rng(seed), space=space, fixed=held, extrapolate=True
        )
        self._names = set(space.names)
        self._known = {p.name: p for p in varying(prior).parameters}
        self._points: dict[int, tuple[dict[str, Any], Array]] = {}

    def given(self, record: Sequence[Outcome], running: Running = ()) -> Optimizer:
        """The optimizer, given finished trials in the order in which they finished.

        A running trial that has announced nothing yet is taken to try what the optimizer suggests
        given the trials before it: it will make the same choice.
        """
        done = {outcome.number: outcome for outcome in record}
        tried = {**{n: o.params for n, o in done.items()}, **dict(running)}
        trials: dict[int, Trial] = {}
        for number in sorted(n for n, params in tried.items() if params is not None):
            trial = self._trial(len(trials), number, tried[number])
            if trial is None:
                continue
            if number in done:
                trial = trial.with_result(done[number].value, None, done[number].constraints)
            trials[number] = trial
        steps = tuple((trials[o.number].number,) for o in record if o.number in trials)
        self._optimizer.record = Record(tuple(trials.values()), steps)
        for _ in (number for number, params in running if params is None):
            self._optimizer.record = self._with_suggestion()
        return self._optimizer

    def _with_suggestion(self) -> Record:
        point = self._optimizer.suggest()
        x = self._optimizer.domain.encode(point, "trial")[0]
        return self._optimizer.record.with_pending(point, x)

    def _trial(self, place: int, number: int, params: Mapping[str, Any] | None) -> Trial | None:
        """None where the trial lacks a parameter, or has a value of another kind by its name."""
        if params is None or not self._names <= params.keys():
            return None
        known = ((p, params[name]) for name, p in self._known.items() if name in params)
        point = {p.name: v for p, v in known if p.name in self._names or _fits(p, v)}
        kept = self._points.get(number)
        if kept is None or kept[0] != point:
            try:
                x = self._optimizer.domain.encode(point, "trial")[0]
            except InputError:
                return None
            kept = self._points[number] = point, x
        return Trial(place, point, kept[1])
