"""Configurations in one form, so that equal ones can be recognised however they were typed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Parameter, Space
from metakel.space.parameters import own_value

Configuration = dict[str, Any]


def plain(configuration: Mapping[str, Any]) -> Configuration:
    """Values as JSON keeps them: numbers of numpy become Python's."""
    if not isinstance(configuration, Mapping):
        raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
    return {str(k): v.item() if hasattr(v, "item") else v for k, v in configuration.items()}


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
    if not isinstance(value, int | float) or isinstance(value, bool):
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
