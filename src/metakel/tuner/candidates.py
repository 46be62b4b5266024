"""A list of configurations to choose from; one that is listed twice is one candidate."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from metakel.errors import InputError
from metakel.priors.configurations import as_rows
from metakel.space import Space
from metakel.tuner.normalise import Configuration, key, normalised, plain
from metakel.tuner.source import digest

LOG = logging.getLogger("metakel")


@dataclass(frozen=True)
class Candidates:
    """The only configurations that can be evaluated.

    Parameters
    ----------
    space : Space
    given : tuple of dict
        As the user listed them.
    """

    space: Space
    given: tuple[Configuration, ...]

    def __post_init__(self) -> None:
        if not self.given:
            raise InputError("candidates is empty; expected at least one configuration")
        twice = len(self.given) - len(self.rows)
        if twice:
            LOG.info(
                "%d of %d candidates are listed more than once; each is asked once",
                twice,
                len(self.given),
            )

    @classmethod
    def of(cls, candidates: Any, space: Space) -> Candidates:
        """From a frame or a sequence of dicts."""
        return cls(space, tuple(plain(row) for row in as_rows(candidates, space)))

    @cached_property
    def rows(self) -> tuple[Configuration, ...]:
        """Distinct ones, as they were first listed."""
        distinct: dict[str, Configuration] = {}
        for row in self.given:
            distinct.setdefault(self._key(row), row)
        return tuple(distinct.values())

    @cached_property
    def points(self) -> list[Configuration]:
        """The same, as the space gives them."""
        return [normalised(self.space, row) for row in self.rows]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {self._key(row): i for i, row in enumerate(self.rows)}

    def find(self, configuration: Mapping[str, Any]) -> int | None:
        """Where a configuration stands among `rows`; None for one that is not listed."""
        return self._places.get(self._key(configuration))

    def number(self, configuration: Mapping[str, Any]) -> int:
        """The same, for one that has to be listed."""
        found = self.find(configuration)
        if found is None:
            raise InputError(f"{dict(configuration)} is not among the {len(self.rows)} candidates")
        return found

    def _key(self, configuration: Mapping[str, Any]) -> str:
        return key(configuration, self.space)

    @cached_property
    def digest(self) -> str:
        """What a journal notes of them: equal for lists of equal configurations."""
        return digest([self._key(row) for row in self.rows])

    def begun_with(self, noted: Any) -> bool:
        """Whether a journal was begun with these; at first, journals noted them as typed."""
        return noted in (self.digest, digest([dict(row) for row in self.given]))
