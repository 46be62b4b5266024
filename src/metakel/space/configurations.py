"""Configurations in one form: from dicts, frames, arrays and cells of a table, with one identity.

`Space` offers these as methods. Everybody who reads, compares or prints a configuration goes
through them: ``--observed``, ``--candidates``, ``--fix``, the journal, the report and the Optuna
sampler. A history, which has no space yet, is read by columns in `metakel.io`. What the space does
not have is refused by `Space.encode`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metakel._arrays import is_number
from metakel._arrays import shown as named
from metakel.errors import InputError, ShapeError
from metakel.space.parameters import Fixed
from metakel.space.text import Values, listed, to_python

if TYPE_CHECKING:
    from metakel.space.space import Space

Row = Mapping[str, Any]
Configuration = dict[str, Any]


def is_empty(cell: Any) -> bool:
    """Whether a cell holds nothing: None, nan, pandas' NA or blanks."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    try:
        return bool(cell != cell)
    except TypeError:  # NA is neither equal to itself nor different
        return True
    except ValueError:  # an array
        return False


def inactive(space: Space, row: Row) -> set[str]:
    """Parameters that are not there in a configuration, by their conditions.

    Where the value of a parent is not known, nothing is said of its children.
    """
    found: set[str] = set()
    for c in space.parents_first:
        if c.parent in found or (
            c.parent in row and space[c.parent].normalize(row[c.parent]) not in c.values
        ):
            found.add(c.name)
    return found


def normalized(space: Space, configuration: Row) -> Configuration:
    """Python's own values as the space has them, without parameters that are not there.

    Parameters of only one value are included. What the space does not know stays as it is: to
    refuse it is up to `Space.encode`.
    """
    if not isinstance(configuration, Mapping):
        raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
    known = {p.name: p for p in space.parameters}
    row: Configuration = {}
    for name, value in configuration.items():
        if np.ma.is_masked(value):  # its item is 0.0
            raise InputError(f"parameter {name!r} is masked: it is missing; expected a value")
        own = to_python(value)
        row[str(name)] = known[name].normalize(own) if name in known else own
    for p in space.parameters:
        if isinstance(p, Fixed):
            row.setdefault(p.name, p.value)
    absent = inactive(space, row) if space.conditions else ()
    return {name: value for name, value in row.items() if name not in absent}


def key(space: Space, configuration: Row) -> str:
    """The same text for equal configurations, as the space sees them."""
    row = normalized(space, configuration)
    values = {name: _same(value) for name, value in row.items()}
    return json.dumps(values, sort_keys=True, default=repr)


def _same(value: Any) -> Any:
    """Equal for numbers that are equal, and for lists, which is what JSON makes of tuples."""
    if isinstance(value, list | tuple):
        return [_same(entry) for entry in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def parsed(space: Space, cells: Row) -> Configuration:
    """The configuration that the cells of a row hold, as text or as values.

    An empty cell is a value that is not known, or None where that is a choice. A parameter that is
    not there by its condition may have one. Other columns are ignored.
    """
    row: Configuration = {}
    for p in space.parameters:
        if p.name in cells and (not is_empty(cells[p.name]) or None in p.choices):
            row[p.name] = p.parse(None if is_empty(cells[p.name]) else cells[p.name])
    return normalized(space, row)


def missing(space: Space, row: Row) -> list[str]:
    """Parameters that have no value, though they vary and are there."""
    absent = inactive(space, row)
    return [name for name in space.free if name not in row and name not in absent]


def rows(space: Space, configurations: Any) -> list[Configuration]:
    """Configurations one by one, from a dict, a sequence of dicts, a frame or an array.

    Of a frame only the columns of parameters count, and an empty cell of a parameter that may not
    be there is left out.
    """
    if _is_one(space, configurations):
        return [dict(configurations)]
    if isinstance(configurations, Sequence) and not isinstance(configurations, str | bytes):
        return [_as_dict(i, row) for i, row in enumerate(configurations)]
    if not isinstance(configurations, np.ndarray) and not _is_table(configurations):
        if not isinstance(configurations, Iterable) or isinstance(configurations, str | bytes):
            raise InputError(
                f"{named(configurations)} is no configuration; expected a dict of "
                f"{', '.join(space.names)}, several of them, or a frame"
            )
        return [_as_dict(i, row) for i, row in enumerate(configurations)]
    table = as_columns(space, configurations)
    optional = {c.name for c in space.conditions}
    return [
        {n: v for n, v in zip(table, row, strict=True) if n not in optional or not is_empty(v)}
        for row in zip(*(listed(values) for values in table.values()), strict=True)
    ]


def as_columns(space: Space, configurations: Any) -> Mapping[str, Values]:
    """Columns by name of what `rows` takes."""
    if isinstance(configurations, np.ndarray):
        values = np.atleast_2d(configurations)
        if values.shape[1] != len(space.names):
            raise ShapeError(
                f"configurations have shape {configurations.shape}; expected (n, "
                f"{len(space.names)}) with columns {', '.join(space.names)}"
            )
        return {
            p.name: values[:, i].tolist()
            for i, p in enumerate(space.parameters)
            if not isinstance(p, Fixed)
        }
    if _is_one(space, configurations):
        configurations = [configurations]
    if isinstance(configurations, Mapping):
        return configurations
    if _is_table(configurations):
        names = getattr(configurations, "column_names", None) or list(configurations.columns)
        return {n: _column(configurations[n]) for n in names if n in space.names}
    found = rows(space, configurations)
    return _by_name(found, space.names, {c.name for c in space.conditions})


def _is_one(space: Space, given: Any) -> bool:
    """Whether a mapping is one configuration, not columns: values may be tuples."""
    if not isinstance(given, Mapping):
        return False
    for name, value in given.items():
        if not isinstance(value, list | tuple | np.ndarray) and not hasattr(value, "dtype"):
            return True
        if np.ndim(value) == 0 or (
            name in space.names and to_python(listed(value)) in space[name].choices
        ):
            return True
    return not given


def _is_table(given: Any) -> bool:
    return isinstance(given, Mapping) or hasattr(type(given), "columns")


def _column(values: Any) -> list[Any]:
    """Of pandas, Polars or Arrow, None for missing values."""
    for how in ("to_list", "to_pylist", "tolist"):
        if hasattr(values, how):
            return [
                None if is_empty(v) and not isinstance(v, str) else v
                for v in getattr(values, how)()
            ]
    return list(values)


def _as_dict(i: int, row: Any) -> Configuration:
    if not isinstance(row, Mapping):
        raise InputError(
            f"configuration {i} is a {type(row).__name__}; expected a dict of named values"
        )
    return dict(row)


def _by_name(
    found: Sequence[Row], names: Sequence[str], optional: Collection[str]
) -> Mapping[str, Values]:
    known = dict.fromkeys(name for row in found for name in row) if found else names
    for i, row in enumerate(found):
        for name in known:
            if name not in row and name not in optional:
                raise InputError(f"configuration {i} lacks the parameter {name!r}: {dict(row)}")
    return {name: [row.get(name) for row in found] for name in known}


def shown(value: Any) -> str:
    """A value as people read it."""
    return f"{value:.6g}" if isinstance(value, float) and is_number(value) else str(value)
