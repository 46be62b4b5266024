"""A space of named parameters, and how configurations map to numeric points and back."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array, check_generator
from metakel._files import read_text
from metakel.errors import Hint, InputError, ShapeError
from metakel.space.configurations import (
    Configuration,
    Row,
    Values,
    columns_of,
    is_empty,
    rows_of,
    shown,
    to_python,
)
from metakel.space.parameters import (
    Categorical,
    Fixed,
    Float,
    Ordinal,
    Parameter,
    from_distribution,
    parameter_of,
)
from metakel.space.sums import Polytope, Sum, check_sums


@dataclass(frozen=True)
class Condition:
    """A parameter that is there only where another one has one of some values.

    Parameters
    ----------
    name : str
        Of the parameter.
    parent : str
        Of the other one, which may have a condition itself.
    values : tuple
        Values of the parent.
    """

    name: str
    parent: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(to_python(value) for value in self.values))

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {"name": self.name, "parent": self.parent, "values": list(self.values)}

    def describe(self) -> str:
        """When it is there, in words."""
        return f"where {self.parent} is {' or '.join(map(str, self.values))}"


@dataclass(frozen=True)
class Space:
    """Named parameters in a fixed order.

    A parameter with a condition is left out of configurations in which it is not there. In numbers
    it has the middle of its range then, so that all such configurations agree in it.

    Parameters
    ----------
    parameters : tuple of Float, Integer, Ordinal, Categorical or Fixed
    conditions : tuple of Condition
    sums : tuple of Sum or str
        Sums of parameters that every suggestion keeps, as in ``"A + B + C = 100"`` and
        ``"2 A + B <= 50"``. What was done may break them.
    """

    parameters: tuple[Parameter, ...]
    conditions: tuple[Condition, ...] = ()
    sums: tuple[Sum, ...] = ()  # as text they become sums

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(self.parameters))
        object.__setattr__(self, "conditions", tuple(self.conditions))
        object.__setattr__(self, "sums", tuple(Sum.of(said, self.names) for said in self.sums))
        self._check_conditions()
        if self.sums:
            check_sums(self)
        twice = [name for name, times in Counter(self.names).items() if times > 1]
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

    def _check_conditions(self) -> None:
        names = [c.name for c in self.conditions]
        for c in self.conditions:
            if c.name not in self.names or c.parent not in self.names:
                known = ", ".join(self.names)
                raise InputError(f"{c.name!r} is there only {c.describe()}; the space has {known}")
            if names.count(c.name) > 1:
                raise InputError(f"parameter {c.name!r} has two conditions; expected one")
            if not c.values:
                raise InputError(f"parameter {c.name!r} is there for no value of {c.parent!r}")
            self[c.parent].encode(c.values)  # which refuses values that it cannot have
        by_name = {c.name: c.parent for c in self.conditions}
        for name in by_name:
            seen = [name]
            while seen[-1] in by_name:
                seen.append(by_name[seen[-1]])
                if seen[-1] == name:
                    raise InputError(f"conditions in a circle: {' of '.join(seen)}")

    @cached_property
    def parents_first(self) -> tuple[Condition, ...]:
        """Those of parents before those of their children."""
        by_name = {c.name: c for c in self.conditions}

        def depth(c: Condition) -> int:
            return 1 + depth(by_name[c.parent]) if c.parent in by_name else 0

        return tuple(sorted(self.conditions, key=depth))

    def among(self, parameters: Sequence[Parameter]) -> Space:
        """These parameters, with the conditions that are about them alone.

        Where a parent has fewer values than here, conditions are about those that it has.
        """
        names = {p.name for p in parameters}
        sums = tuple(total for total in self.sums if names.issuperset(total.names))
        kept = [c for c in self.conditions if {c.name, c.parent} <= names]
        return Space(tuple(parameters), sums=sums).conditioned(kept)

    def renamed(self, names: Mapping[str, str]) -> Space:
        """The same space with other names of parameters, by their names here."""
        for name in names:
            self[name]  # which refuses one that is not there
        new = {name: names.get(name, name) for name in self.names}
        parameters = (parameter_of({**p.to_dict(), "name": new[p.name]}) for p in self.parameters)
        conditions = (Condition(new[c.name], new[c.parent], c.values) for c in self.conditions)
        sums = (replace(s, terms=tuple((new[n], w) for n, w in s.terms)) for s in self.sums)
        return Space(tuple(parameters), tuple(conditions), tuple(sums))

    def conditioned(self, conditions: Sequence[Condition]) -> Space:
        """With these conditions, for values that parents have here; not those that always hold."""
        found = []
        for c in conditions:
            known = self[c.parent].choices
            values = tuple(v for v in known if v in c.values) if known else c.values
            if c.name in self.free and values and values != known:
                found.append(Condition(c.name, c.parent, values))
        return Space(self.parameters, tuple(found), self.sums)

    def summing(self, sums: Sequence[Sum | str]) -> Space:
        """With these sums as well."""
        known = dict.fromkeys([*self.sums, *(Sum.of(said, self.names) for said in sums)])
        return replace(self, sums=tuple(known))

    def active(self, X: Array) -> dict[str, NDArray[np.bool_]]:
        """(n,) at which points (n, d0) each parameter with a condition is there."""
        found: dict[str, NDArray[np.bool_]] = {}
        for c in self.parents_first:
            values = self[c.parent].decode(X[:, self.columns[c.parent]])
            here = np.fromiter((v in c.values for v in values), dtype=bool, count=len(X))
            found[c.name] = here & found.get(c.parent, True)
        return found

    def settled(self, X: Array) -> Array:
        """(n, d0) points in which parameters that are not there are at the middle."""
        if not self.conditions:
            return X
        points = np.array(X, dtype=np.float64)
        for name, here in self.active(points).items():
            points[~here, self.columns[name]] = 0.0
        return points

    def __getitem__(self, name: str) -> Parameter:
        if name in self._by_name:
            return self._by_name[name]
        raise InputError(f"no parameter {name!r}; the space has {', '.join(self.names)}")

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    # Configurations

    def parse(self, name: str, cell: Any) -> Any:
        """The value of a parameter that some text or number stands for, as in ``0,93`` or ``5``."""
        return self[name].parse(cell)

    def parse_row(self, cells: Row) -> Configuration:
        """The configuration that a row of a table holds, as text or as values.

        Other columns are ignored, and empty cells where None is no choice; `missing` says which
        values it lacks. A parameter that is not there by its condition may have one.
        """
        row: Configuration = {}
        for p in self.parameters:
            if p.name in cells and (not is_empty(cells[p.name]) or None in p.choices):
                row[p.name] = p.parse(None if is_empty(cells[p.name]) else cells[p.name])
        return self.normalize(row)

    def missing(self, row: Row) -> list[str]:
        """Parameters without a value in a configuration, though they vary and are there."""
        absent = self._inactive(row)
        return [name for name in self.free if name not in row and name not in absent]

    def _inactive(self, row: Row) -> set[str]:
        """Parameters that are not there, by their conditions.

        Where the value of a parent is not known, nothing is said of its children.
        """
        found: set[str] = set()
        for c in self.parents_first:
            other = c.parent in row and self[c.parent].normalize(row[c.parent]) not in c.values
            found |= {c.name} if other or c.parent in found else set()
        return found

    def normalize(self, configuration: Row) -> Configuration:
        """The configuration in the one form that it is stored and shown in.

        Python's own values of the right type, parameters of only one value included, those that
        are not there by their condition left out. What the space does not know stays as it is: to
        refuse it is up to `encode`.
        """
        if not isinstance(configuration, Mapping):
            raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
        row: Configuration = {}
        for name, value in configuration.items():
            if np.ma.is_masked(value):  # its item is 0.0
                raise InputError(f"parameter {name!r} is masked: it is missing; expected a value")
            own = to_python(value)
            row[str(name)] = self[name].normalize(own) if name in self._by_name else own
        for p in self.parameters:
            if len(p.choices) == 1:
                row.setdefault(p.name, p.choices[0])
        absent = self._inactive(row) if self.conditions else ()
        return {name: value for name, value in row.items() if name not in absent}

    def key(self, configuration: Row) -> str:
        """A text that is the same for equal configurations: 5 and 5.0, ``true`` and True."""
        row = {name: _same(value) for name, value in self.normalize(configuration).items()}
        return json.dumps(row, sort_keys=True, default=repr)

    def rows(self, configurations: Any) -> list[Configuration]:
        """Configurations as dicts, from one dict, several, a frame or an array of numbers."""
        return rows_of(self, configurations)

    def check(self, configuration: Row, *, extrapolate: bool = False) -> None:
        """Refuse a configuration that the space does not have."""
        self.encode([configuration], extrapolate=extrapolate)

    def round(self, configuration: Row) -> Configuration:
        """The possible configuration next to one within the ranges."""
        return self.decode(self.nearest(self.encode([configuration], extrapolate=True)))[0]

    def cells(self, configuration: Row) -> list[str]:
        """One text for every parameter, as people read it; empty where it is not there."""
        row = self.normalize(configuration)
        return [shown(row[name]) if name in row else "" for name in self.names]

    def show(self, configuration: Row) -> str:
        """A configuration in a line: ``kind=a  rate=0.01``."""
        named = zip(self.names, self.cells(configuration), strict=True)
        return "  ".join(f"{name}={cell}" for name, cell in named if cell)

    def restricted(
        self,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        exclude: Mapping[str, Sequence[Any]] | None = None,
        sums: Sequence[Sum | str] = (),
    ) -> Space:
        """The space as it is today: narrower ranges of numbers, without some choices, with sums."""
        chosen = {p.name: p for p in self.parameters}
        for name, (low, high) in (ranges or {}).items():
            chosen[name] = self[name].between(low, high)
        for name, values in (exclude or {}).items():
            known = self[name].choices
            if not known:
                raise InputError(
                    f"{name!r} without {values[0]}; {name} is {self[name].describe()}, and "
                    "only choices can be left out",
                    Hint(
                        "narrow it",
                        f"ranges={{{name!r}: (low, high)}}",
                        f"--range {name}=LOW..HIGH, once below and once above what is left out",
                    ),
                )
            gone = [self[name].parse(value) for value in values]
            for value in gone:
                if value not in known:
                    raise InputError(
                        f"{name!r} without {value!r}; expected one of its choices, "
                        f"{', '.join(map(repr, known))}. No other is suggested"
                    )
            left = tuple(value for value in known if value not in gone)
            if not left:
                raise InputError(f"{name!r} has no choice left; expected to leave one at least")
            chosen[name] = self._only(self[name], left)
        return self.among([*chosen.values()]).summing(sums)

    def holding(self, fixed: Row) -> Space:
        """The space in which parents of held parameters have only values with which these exist."""
        held = {name: self[name].normalize(value) for name, value in fixed.items()}
        chosen = {p.name: p for p in self.parameters}
        for c in reversed(self.parents_first):
            parent = chosen[c.parent]
            if c.name not in held and chosen[c.name] is self[c.name]:
                continue
            values = tuple(v for v in (parent.choices or sorted(c.values)) if v in c.values)
            if not values or (c.parent in held and held[c.parent] not in values):
                raise InputError(
                    f"{c.name!r} is held, and is there only {c.describe()}; found {c.parent!r} "
                    f"held at {held.get(c.parent, parent.choices)!r}"
                )
            if c.parent not in held and values != parent.choices:
                chosen[c.parent] = self._only(parent, values)
        same = all(chosen[p.name] is p for p in self.parameters)
        return self if same else self.among([*chosen.values()])

    @staticmethod
    def _only(parameter: Parameter, values: tuple[Any, ...]) -> Parameter:
        if len(values) == 1:
            return Fixed(parameter.name, values[0])
        kind = Ordinal if isinstance(parameter, Float | Ordinal) else Categorical
        return kind(parameter.name, values)

    def place(self, configurations: Any) -> Array:
        """(n, d0) numeric points of configurations that were really used.

        As `encode`, and nothing is refused that can be placed: numbers beyond their range or off
        their grid, and choices that are new, which are at the same distance from all others.
        """
        return self._points(configurations, lambda p, values: p.place(values), lenient=True)

    def unlike(self, configuration: Row) -> list[str]:
        """How a configuration that was used differs from those of the space, in words."""
        found = [self[n].unlike(v) for n, v in configuration.items() if n in self._by_name]
        found += [total.unlike(configuration) for total in self.sums]
        return [text for text in found if text]

    def encode(self, configurations: Any, *, extrapolate: bool = False) -> Array:
        """(n, d0) numeric points of a configuration, several, a frame, or columns by name.

        Fixed parameters may be left out, and those that are not there by their condition. An array
        has one column per parameter. Values outside of a range are refused unless ``extrapolate``.
        """
        return self._points(configurations, lambda p, v: p.encode(v, extrapolate=extrapolate))

    def _points(
        self,
        configurations: Any,
        encoded: Callable[[Parameter, Values], Array],
        *,
        lenient: bool = False,
    ) -> Array:
        optional = {c.name for c in self.conditions}
        table = columns_of(self, configurations)
        for name in (name for name in table if name not in self.names):
            # Accents can be written in several ways.
            same = [n for n in self.names if normalize("NFKC", n) == normalize("NFKC", str(name))]
            remark = "looks like {!a}, and is written with other characters".format(*same or [""])
            raise InputError(
                f"unknown parameter {name!r}; expected {', '.join(self.names)}"
                + (f" ({name!a} {remark})" if same else "")
            )
        n = max((len(values) for values in table.values()), default=0)
        X = np.empty((n, self.d0))
        for parameter in self.parameters:
            if parameter.name in optional:
                continue
            if parameter.name in table:
                found = encoded(parameter, table[parameter.name])
                if len(found) != n:
                    raise ShapeError(
                        f"parameter {parameter.name!r} has {len(found)} values; others have {n}"
                    )
                X[:, self.columns[parameter.name]] = found
            elif not isinstance(parameter, Fixed):
                raise InputError(f"parameter {parameter.name!r} is missing")
        for c in self.parents_first:
            X[:, self.columns[c.name]] = 0.0
            here = np.flatnonzero(self.active(X)[c.name]).tolist()
            given = table[c.name] if c.name in table else [None] * n
            gaps = [i for i in here if given[i] is None or given[i] != given[i]]
            if lenient:  # with a new choice of its parent nobody knows if it is there
                parent = self[c.parent]
                known = parent.choices or c.values
                new = {i for i in gaps if parent.normalize(table[c.parent][i]) not in known}
                here, gaps = ([i for i in part if i not in new] for part in (here, gaps))
            if gaps:
                raise InputError(f"parameter {c.name!r} is missing; it is there {c.describe()}")
            X[here, self.columns[c.name]] = encoded(self[c.name], [given[i] for i in here])
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
        rows = [dict(zip(self.names, values, strict=True)) for values in zip(*lists, strict=True)]
        for name, here in self.active(points).items():
            for i in np.flatnonzero(~here):
                del rows[i][name]
        return rows

    def nearest(self, X: Array) -> Array:
        """(n, d0) numeric points of the possible configurations next to these."""
        points = np.clip(X, -1, 1)
        parts = [p.nearest(points[:, self.columns[p.name]]) for p in self.parameters]
        near = np.concatenate(parts, axis=1)
        possible = self.polytope()
        if possible is not None:
            kept = possible.rounded(possible.moved(possible.scaled(points)))
            near[:, possible.columns] = possible.unscaled(kept)
        return self.settled(near)

    def polytope(self, fixed: Row | None = None, known: Space | None = None) -> Polytope | None:
        """What the sums leave of the parameters in them; None where there is no sum.

        In the columns of the space ``known``, by default of this one.
        """
        return Polytope.of(self, fixed or {}, known or self) if self.sums else None

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d0) numeric points of random configurations."""
        check_generator(rng)
        uniform = rng.random((n, len(self.parameters)))
        X = np.concatenate(
            [p.sample(u) for p, u in zip(self.parameters, uniform.T, strict=True)], axis=1
        )
        possible = self.polytope()
        if possible is not None:
            drawn = possible.rounded(possible.sample(rng, n))
            X[:, possible.columns] = possible.unscaled(drawn)
        return self.settled(X)

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the parameters that have more than one value."""
        return tuple(p.name for p in self.parameters if not isinstance(p, Fixed))

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        found = {"parameters": [parameter.to_dict() for parameter in self.parameters]}
        found |= {"conditions": [c.to_dict() for c in self.conditions]} if self.conditions else {}
        return found | ({"sums": [s.to_dict() for s in self.sums]} if self.sums else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Space:
        """Inverse of `to_dict`."""
        conditions = (
            Condition(str(c["name"]), str(c["parent"]), tuple(c["values"]))
            for c in data.get("conditions", ())
        )
        sums = (Sum(tuple(s["terms"]), s["relation"], s["total"]) for s in data.get("sums", ()))
        parameters = tuple(parameter_of(dict(entry)) for entry in data["parameters"])
        return cls(parameters, tuple(conditions), tuple(sums))

    @classmethod
    def from_toml(cls, source: str | Path) -> Space:
        """From a file, or from text: one table per parameter.

        ``[lambda]`` / ``type = "float"`` / ``low = 1e-3`` / ``high = 1e3`` / ``log = true``. A
        parameter that is there only with some choices of another one has a line such as
        ``when = {model = ["forest", "boosting"]}``. Before the first parameter there may be a line
        such as ``sums = ["A + B + C = 100"]``.
        """
        if isinstance(source, Path) or ("\n" not in source and source.endswith(".toml")):
            text = read_text(source, "a space")
            try:
                return cls.from_toml(f"{text}\n")
            except InputError as error:
                raise error.at(str(source)) from None
        try:
            tables = tomllib.loads(source)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"the space is not TOML: {error}") from None
        sums = tables.pop("sums") if isinstance(tables.get("sums"), list) else []
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise InputError(
                    f"parameter {name!r} is {table!r}; expected a table: [{name}], type = ..."
                )
        conditions = tuple(
            _condition(name, table.pop("when")) for name, table in tables.items() if "when" in table
        )
        parameters = (parameter_of({"name": name, **table}) for name, table in tables.items())
        return cls(tuple(parameters), conditions, tuple(sums))

    @classmethod
    def from_optuna(cls, distributions: Mapping[str, Any]) -> Space:
        """From Optuna distributions by name, as in ``trial.distributions``."""
        return cls(tuple(from_distribution(name, d) for name, d in distributions.items()))

    def __str__(self) -> str:
        width, when = max(map(len, self.names)), {c.name: c.describe() for c in self.conditions}
        lines = [
            f"  {p.name:{width}}  {p.describe()}"
            + (f", only {when[p.name]}" if p.name in when else "")
            for p in self.parameters
        ]
        return "\n".join([*lines, *(f"  always {total}" for total in self.sums)])


def _condition(name: str, when: Any) -> Condition:
    """From ``when = {model = "forest"}`` or a list of values."""
    if not isinstance(when, Mapping) or len(when) != 1:
        raise InputError(
            f"parameter {name!r} has when = {when!r}; expected another parameter and values, as "
            'in when = {model = ["forest"]}'
        )
    ((parent, values),) = when.items()
    return Condition(name, parent, tuple(values) if isinstance(values, list) else (values,))


def _same(value: Any) -> Any:
    """Equal for numbers that are equal, and for lists, which is what JSON makes of tuples."""
    if isinstance(value, list | tuple):
        return [_same(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
