"""A space of named parameters, and how configurations map to numeric points and back."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, check_generator
from metakel.errors import InputError, ShapeError
from metakel.space.parameters import (
    Categorical,
    Fixed,
    Float,
    Integer,
    Ordinal,
    Parameter,
    Values,
)

Row = Mapping[str, Any]
KINDS: dict[str, type[Parameter]] = {
    cls.kind: cls for cls in (Float, Integer, Ordinal, Categorical, Fixed)
}


@dataclass(frozen=True)
class Space:
    """Named parameters in a fixed order.

    Parameters
    ----------
    parameters : tuple of Float, Integer, Ordinal, Categorical or Fixed
    """

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(self.parameters))
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            raise InputError(f"parameters named twice: {', '.join(sorted(twice))}")
        if self.d0 == 0:
            raise InputError("a space needs at least one parameter that varies")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, fixed ones included."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def d0(self) -> int:
        """How many numeric columns there are."""
        return sum(parameter.width for parameter in self.parameters)

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Numeric columns of each parameter."""
        ends = np.cumsum([parameter.width for parameter in self.parameters]).tolist()
        return {
            p.name: slice(end - p.width, end) for p, end in zip(self.parameters, ends, strict=True)
        }

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise InputError(f"no parameter {name!r}; the space has {', '.join(self.names)}")

    def encode(
        self, rows: Sequence[Row] | Mapping[str, Values], *, extrapolate: bool = False
    ) -> Array:
        """(n, d0) numeric points of configurations, given as dicts or as columns by name.

        Fixed parameters may be left out. Values outside of a range are refused unless
        ``extrapolate``.
        """
        table = _columns(rows) if isinstance(rows, Mapping) else _as_columns(rows, self.names)
        for name in table:
            if name not in self.names:
                raise InputError(f"unknown parameter {name!r}; expected {', '.join(self.names)}")
        n = max((len(values) for values in table.values()), default=0)
        X = np.empty((n, self.d0))
        for parameter in self.parameters:
            if parameter.name in table:
                found = parameter.encode(table[parameter.name], extrapolate=extrapolate)
                if len(found) != n:
                    raise ShapeError(
                        f"parameter {parameter.name!r} has {len(found)} values; others have {n}"
                    )
                X[:, self.columns[parameter.name]] = found
            elif not isinstance(parameter, Fixed):
                raise InputError(f"parameter {parameter.name!r} is missing")
        return X

    def decode(self, X: Array) -> list[dict[str, Any]]:
        """Configurations as dicts of plain Python values, one for every row of ``X`` (n, d0)."""
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.d0:
            raise ShapeError(
                f"decode: X has shape {points.shape}; expected (n, {self.d0}), for one point x "
                "that is decode([x])[0]"
            )
        lists = [p.decode(points[:, self.columns[p.name]]) for p in self.parameters]
        return [dict(zip(self.names, values, strict=True)) for values in zip(*lists, strict=True)]

    def nearest(self, X: Array) -> Array:
        """(n, d0) numeric points of the possible configurations next to these."""
        points = np.clip(X, -1, 1)
        parts = [p.nearest(points[:, self.columns[p.name]]) for p in self.parameters]
        return np.concatenate(parts, axis=1)

    def sample(
        self,
        rng: np.random.Generator,
        n: int,
        *,
        fixed: Row | None = None,
        extrapolate: bool = False,
    ) -> Array:
        """(n, d0) numeric points of random configurations; ``fixed`` sets some parameters."""
        check_generator(rng)
        uniform = rng.random((n, len(self.parameters)))
        X = np.concatenate(
            [p.sample(u) for p, u in zip(self.parameters, uniform.T, strict=True)], axis=1
        )
        for name, value in (fixed or {}).items():
            X[:, self.columns[self[name].name]] = self[name].encode(
                [value], extrapolate=extrapolate
            )
        return X

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the parameters that have more than one value."""
        return tuple(p.name for p in self.parameters if not isinstance(p, Fixed))

    def varying(self, fixed: Row | None = None) -> NDArray[np.intp]:
        """Numeric columns that are not held fixed."""
        held = [self.columns[self[name].name] for name in fixed or {}]
        mask = np.ones(self.d0, dtype=bool)
        for columns in held:
            mask[columns] = False
        return np.flatnonzero(mask)

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {"parameters": [parameter.to_dict() for parameter in self.parameters]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Space:
        """Inverse of `to_dict`."""
        return cls(tuple(_parameter(dict(entry)) for entry in data["parameters"]))

    @classmethod
    def from_toml(cls, source: str | Path) -> Space:
        """From a file, or from text: one table per parameter.

        ``[lambda]`` / ``type = "float"`` / ``low = 1e-3`` / ``high = 1e3`` / ``log = true``.
        """
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
        if "\n" not in text and text.endswith(".toml"):
            text = Path(text).read_text(encoding="utf-8")
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"the space is not TOML: {error}") from None
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise InputError(
                    f"parameter {name!r} is {table!r}; expected a table: [{name}], type = ..."
                )
        return cls(tuple(_parameter({"name": name, **table}) for name, table in tables.items()))

    @classmethod
    def from_optuna(cls, distributions: Mapping[str, Any]) -> Space:
        """From Optuna distributions by name, as in ``trial.distributions``."""
        return cls(tuple(_from_distribution(name, d) for name, d in distributions.items()))

    def __str__(self) -> str:
        width = max(map(len, self.names))
        return "\n".join(f"  {p.name:{width}}  {p.describe()}" for p in self.parameters)


def _columns(table: Mapping[str, Values]) -> Mapping[str, Values]:
    for name, values in table.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(
                f"the column {name!r} is {values!r}; expected a sequence of values, and for one "
                "configuration a list: encode([configuration])"
            )
    return table


def _as_columns(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(
                f"configuration {i} is a {type(row).__name__}; expected a dict of named values"
            )
    known = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, list[Any]] = {name: [] for name in (known if rows else names)}
    for i, row in enumerate(rows):
        for name, values in columns.items():
            if name not in row:
                raise InputError(f"configuration {i} lacks the parameter {name!r}: {dict(row)}")
            values.append(row[name])
    return columns


def _parameter(entry: dict[str, Any]) -> Parameter:
    kind, name = entry.pop("type", None), entry.get("name")
    if not isinstance(name, str):
        raise InputError(f"a parameter has the name {name!r}; expected text")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        raise InputError(f"parameter {name!r} has type {kind!r}; known are {known}")
    if not isinstance(entry.get("values", []), (list, tuple)):
        raise InputError(f"parameter {name!r} has values {entry['values']!r}; expected a list")
    try:
        return KINDS[kind](**entry)
    except TypeError as error:
        raise InputError(f"parameter {name!r} of type {kind}: {error}") from None


def _from_distribution(name: str, distribution: Any) -> Parameter:
    kind = type(distribution).__name__
    if distribution.single():
        only = distribution.choices[0] if kind == "CategoricalDistribution" else distribution.low
        return Fixed(name, only)
    if kind == "FloatDistribution":
        d = distribution
        return Float(name, d.low, d.high, d.log, d.step)
    if kind == "IntDistribution":
        d = distribution
        return Integer(name, d.low, d.high, d.log, d.step)
    if kind == "CategoricalDistribution":
        return Categorical(name, tuple(distribution.choices))
    raise InputError(f"parameter {name!r} has the unknown distribution {kind}")
