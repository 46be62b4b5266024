"""Which parameters of a study the prior knows, and the prior that finished studies teach."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from math import isfinite
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from metakel.data import History
from metakel.errors import InputError
from metakel.integrations.optuna.shared import shared_prior, wait_for_prior
from metakel.integrations.optuna.strict import with_constraints
from metakel.io.optuna import RecordedStudy, recorded_studies
from metakel.optimize.replays import RegretCalibration
from metakel.priors import Prior, learn_prior
from metakel.space import Categorical, Condition, Fixed, Float, Parameter, Space

LOGGER = logging.getLogger("metakel")


class SourceStudies:
    """Finished studies by their values, and what they teach.

    Storages are read once, here: what is kept can be sent to another process.

    Parameters
    ----------
    source : sequence of studies, or a storage
    strict : bool
        Whether their constraints are learned, too, so that limits can be set on them.
    output_range, log_output, library
        Of `learn_prior`.
    """

    def __init__(
        self,
        source: Any,
        *,
        strict: bool = False,
        output_range: tuple[float, float] | None = None,
        log_output: bool | None = None,
        library: str | None = None,
    ) -> None:
        studies, self.skipped = recorded_studies(source)
        for text in self.skipped:
            LOGGER.warning("%s", text)
        self._studies = tuple(study for study in studies if _teaches(study))
        self._strict = strict
        self._output: dict[str, Any] = {
            "output_range": output_range,
            "log_output": log_output,
            "library": library,
        }
        self._history = _as_history(self._studies)  # what is wrong with it is said at once
        if self._history is None:
            alone = "a cold start" if library is None else "the library alone"
            LOGGER.warning(
                "the past has no completed trial with parameters and a finite value: %s", alone
            )

    @cached_property
    def prior(self) -> Prior | None:
        """What all of them teach."""
        return self._learned(self._history, self._studies)

    def prior_for(self, study: Study) -> Prior | None:
        """What the other studies teach: a study that is resumed is not its own past.

        Learned by one of its workers, and shared through its storage.
        """
        others = self.others(study)
        if len(others) == len(self._studies):
            return shared_prior(study, self._mark(others), lambda: self.prior)
        LOGGER.info(
            "study %r is in the source of its own past: learned from the other %d studies",
            study.study_name,
            len(others),
        )
        return shared_prior(
            study, self._mark(others), lambda: self._learned(_as_history(others), others)
        )

    def wait(self, study: Study, trial: FrozenTrial) -> None:
        """Return once `prior_for` need not be learned, or nobody else is about to."""
        wait_for_prior(study, trial, self._mark(self.others(study)))

    def _mark(self, studies: Sequence[RecordedStudy]) -> str:
        """The same for the same past, however it was read."""
        found = [
            (
                (s.study_name, s.minimize, s.metric, sorted(map(repr, s.parameters))),
                [(sorted(params.items()), value) for params, value in s.rows],
                [sorted(limits.items()) for limits in s.constraints],
                *([s.curves] if s.pruned else ()),
            )
            for s in studies
        ]
        return sha256(repr((found, self._strict, self._output)).encode()).hexdigest()[:16]

    def calibration(self, study: Study) -> RegretCalibration | None:
        """What replays on the studies say of the regret; this takes some seconds."""
        others = self.others(study)
        if not others:
            return None
        LOGGER.info("replaying the sampler on %d past studies, for a certificate", len(others))
        past = History.from_optuna(others)
        return learn_prior(past, **self._output, certify="folds").certificate

    def others(self, study: Study) -> tuple[RecordedStudy, ...]:
        """All that teach but the study itself."""
        return tuple(record for record in self._studies if not record.is_of(study))

    def _learned(self, past: History | None, studies: Sequence[RecordedStudy]) -> Prior | None:
        if past is None:
            return None
        prior = learn_prior(past, **self._output, certify="none")
        for note in prior.info.notes:
            LOGGER.info("past studies: %s", note)
        if not prior.helps:
            LOGGER.info("held-out studies are not predicted better with the others: a cold start")
        return with_constraints(prior, studies) if self._strict else prior


def _as_history(studies: Sequence[RecordedStudy]) -> History | None:
    """None where there is nothing to learn from."""
    return History.from_optuna(studies) if studies else None


def _teaches(study: RecordedStudy) -> bool:
    return bool(study.parameters) and any(isfinite(value) for _, value in study.rows)


# Values of a study's parameter that the prior's parameter must be able to place.
PROBES = 33
PLAIN = (type(None), bool, int, float, str)


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
    return found.conditioned(_about(space, found.names))


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


def _about(space: Space, names: Sequence[str]) -> list[Condition]:
    return [c for c in space.conditions if c.name in names and c.parent in names]


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
