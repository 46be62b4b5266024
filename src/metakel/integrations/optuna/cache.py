"""What a sampler keeps from trial to trial for speed alone; all of it can be made again."""

from __future__ import annotations

from threading import RLock
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study

from metakel.integrations.optuna.record import Outcome
from metakel.integrations.optuna.source_studies import LOGGER, SourceStudies
from metakel.integrations.optuna.study_replay import StudyReplay, held_values
from metakel.priors import Prior
from metakel.space import Space

MOST_STUDIES = 16


class SamplerCache:
    """Of the study seen last. A copy made by pickle begins empty."""

    def __init__(self) -> None:
        self.lock = RLock()  # threads of one process share a sampler
        self._key: tuple[Any, ...] = ()
        self._replay: StudyReplay | None = None
        self._learned: dict[tuple[Any, int], Prior | None] = {}
        self._unknown: str | None = None
        self._spaces: tuple[Any, int, IntersectionSearchSpace] | None = None

    def __reduce__(self) -> tuple[type[SamplerCache], tuple[()]]:
        return SamplerCache, ()

    def replay(
        self, prior: Prior, study: Study, record: list[Outcome], space: Space, seed: int
    ) -> StudyReplay:
        """The replay of the last trial, if it will do, or a new one."""
        held = held_values(prior, space, record)
        key = (prior, study.study_name, space, held, seed)
        if self._key != key or self._replay is None:
            self._key, self._replay = key, StudyReplay(prior, space, held, seed)
        return self._replay

    def learned(self, study: Study, past: SourceStudies) -> Prior | None:
        """From the past without this study, where it is a part of it."""
        key = study._storage, study._study_id
        if key not in self._learned:
            if len(self._learned) == MOST_STUDIES:
                self._learned.clear()
            self._learned[key] = past.without(study) if past.holds(study) else past.prior
        return self._learned[key]

    def say_unknown(self, study: Study, prior: Prior) -> None:
        """Log, once for a study, that the past has nothing to say about it."""
        if self._unknown != study.study_name:
            self._unknown = study.study_name
            LOGGER.warning(
                "study %r has no parameter that the past knows (%s): a cold start",
                study.study_name,
                ", ".join(prior.space.free),
            )

    def common(self, study: Study) -> dict[str, BaseDistribution]:
        """Distributions that all completed trials of the study share."""
        with self.lock:
            # The host's cache serves one study; numbers of studies are unique in a storage.
            storage, number = study._storage, study._study_id
            if self._spaces is None or self._spaces[:2] != (storage, number):
                self._spaces = storage, number, IntersectionSearchSpace()
            return self._spaces[2].calculate(study)
