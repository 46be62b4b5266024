"""Configurations in one form, so that equal ones are recognised, and lists to choose from."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from metakel._arrays import is_number
from metakel.errors import InputError
from metakel.priors.configurations import as_rows
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Parameter, Space
from metakel.space.parameters import own_value

LOG = logging.getLogger("metakel")
Configuration = dict[str, Any]


def plain(configuration: Mapping[str, Any]) -> Configuration:
    """Values as JSON keeps them: numbers of numpy become Python's."""
    if not isinstance(configuration, Mapping):
        raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
    return {str(k): _of_numpy(k, v) if hasattr(v, "item") else v for k, v in configuration.items()}


def _of_numpy(name: str, value: Any) -> Any:
    if np.ma.is_masked(value):  # its item is 0.0
        raise InputError(f"parameter {name!r} is masked: it is missing; expected a value")
    return value.item()


def key(configuration: Mapping[str, Any], space: Space | None = None) -> str:
    """The same for equal configurations, as a space sees them; 5 and 5.0 are always equal."""
    row = plain(configuration) if space is None else normalised(space, configuration)
    values = {name: _same(value) for name, value in row.items()}
    return json.dumps(values, sort_keys=True, default=repr)


def normalised(space: Space, configuration: Mapping[str, Any]) -> Configuration:
    """Values as the space gives them, parameters of only one value included.

    What the space does not know stays as it is: to refuse it is up to `Space.encode`.
    """
    row = plain(configuration)
    only = {p.name: p.value for p in space.parameters if isinstance(p, Fixed)}
    known = {p.name: p for p in space.parameters}
    given = {k: _normalised(known[k], v) if k in known else v for k, v in row.items()}
    lacking = {name: value for name, value in only.items() if name not in given}
    return {**given, **lacking}


def _normalised(parameter: Parameter, value: Any) -> Any:
    if isinstance(parameter, Categorical | Ordinal | Fixed):
        known = (parameter.value,) if isinstance(parameter, Fixed) else parameter.values
        return own_value(known, value)
    if not isinstance(value, int | float) or not is_number(value):
        return value
    if isinstance(parameter, Integer):
        return int(value) if value == value // 1 else value
    return float(value) if isinstance(parameter, Float) else value


def _same(value: Any) -> Any:
    """Equal for numbers that are equal, and for lists, which is what JSON makes of tuples."""
    if isinstance(value, list | tuple):
        return [_same(entry) for entry in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


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


def digest(data: Any) -> str:
    """Sixteen characters that differ for different data."""
    text = json.dumps(data, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
