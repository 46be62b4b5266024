"""Values and configurations as people and files write them, each in one form.

Numbers have commas and units, and flags are words. Configurations come as dicts, frames, arrays and
cells of a table, and have one identity. `Space` offers what is done with them as methods. Everybody
who reads, compares or prints a configuration goes through them: ``--observed``, ``--candidates``,
``--fix``, the journal, the report and the Optuna sampler. A history, which has no space yet, is
read by columns in `metakel.io`. What the space does not have is refused by `Space.encode`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf, isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import is_number
from metakel._arrays import shown as named
from metakel.errors import InputError, ShapeError

if TYPE_CHECKING:
    from metakel.space.space import Space


# Values of a parameter or column.
Values = Sequence[Any] | NDArray[Any]

# Python also reads 1_000 and digits of other scripts as numbers; here they stay text.
is_integer_text = re.compile(r"[+-]?[0-9]+").fullmatch
is_number_text = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)"
).fullmatch
has_decimal_comma = re.compile(r"[+-]?([0-9]+,[0-9]*|,[0-9]+)(e[+-]?[0-9]+)?").fullmatch
# 1'234 as in Switzerland, or with a space that does not break; "64 128" may be two numbers.
_grouped = re.compile("[+-]?[1-9][0-9]{0,2}(['’\u00a0\u202f][0-9]{3})+([.,][0-9]+)?").fullmatch
# 1,234 is a decimal number in one country and a thousand in another.
is_ambiguous = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(?![0-9])(\s*[^0-9\s].*)?").fullmatch
# A unit has no digits, as in "87,5 %" or "49.4 °C", so that a time of day is none.
_WITH_UNIT = re.compile(
    r"([+−-]?[0-9.,]*[0-9][.,]?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9.,:+-][^0-9:]*)"
).fullmatch
# What says how exact a number is: "ca. 60 %", "66 ± 2".
_ABOUT = re.compile(
    r"^\s*(~|≈|(ca|circa|approx|about)\b\.?)\s*(?=[0-9.,+-])|(±|\+/-)\s*[0-9]+([.,][0-9]+)?", re.I
)


def is_numeric(value: Any) -> bool:
    """Whether it is a number already: text, true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_number(value: Any) -> float | None:
    """The number that a cell holds, with a decimal point or comma; None if it holds none."""
    if not isinstance(value, str):
        return as_float(value) if is_numeric(value) else None
    word = ungrouped(value.strip().lower())
    if has_decimal_comma(word):
        return float(word.replace(",", "."))
    return float(word) if is_number_text(word) else None


def ungrouped(word: str) -> str:
    """A number without the marks between its thousands, where they can be nothing else.

    Word and Excel may write a minus that is longer than that of a keyboard.
    """
    if word.startswith("−") and word[1:2].isdigit():
        word = f"-{word[1:]}"
    return re.sub("['’\u00a0\u202f]", "", word) if _grouped(word) else word


def as_float(value: Any) -> float | None:
    """A number as a float, infinite where it is beyond all floats; None if it is none."""
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return inf if value > 0 else -inf
    except (TypeError, ValueError):
        return None


def split_unit(text: str) -> tuple[str, str] | None:
    """The number and the unit of a text such as "87,5 %"; None where it is something else."""
    found = _WITH_UNIT(text.strip())
    return (found[1], found[2].strip()) if found else None


def quantity(value: Any) -> float | None:
    """The number that people write: ``0.93``, ``0,93``, ``49,4 °C``; None for anything else."""
    if not isinstance(value, str):
        return None if value is None or isinstance(value, bool) else as_float(value)
    text = _ABOUT.sub("", value).strip()
    if is_ambiguous(text):
        raise InputError(
            f"found {text!r}, which may be {text.replace(',', '.')} or {text.replace(',', '')}; "
            "expected a decimal point, or no comma"
        )
    number = as_number(text)
    if number is None and (found := split_unit(text)):
        return quantity(found[0])
    return number


def to_python(value: Any) -> Any:
    """NumPy's scalars as Python's own, and lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(to_python(entry) for entry in value)
    if isinstance(value, np.timedelta64):  # numpy takes it for a whole number
        return value.astype("timedelta64[us]").item()
    own = isinstance(value, np.generic) and value.dtype.kind in "biufUS"
    return value.item() if own else value


def storable(value: Any) -> bool:
    """Whether JSON can store it without loss."""
    if isinstance(value, tuple):
        return all(storable(entry) for entry in value)
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, (str, int))


def listed(values: Values) -> list[Any]:
    """A list of values; of an array, Python's own."""
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def distinct(values: Values) -> tuple[list[Any], NDArray[np.intp]]:
    """Distinct values by type and value, as they first appear, and the index (n,) of each value.

    Values that cannot be hashed count as distinct.
    """
    cells = listed(values)
    one_type = len(set(map(type, cells))) <= 1
    keys = cells if one_type else list(zip(map(type, cells), cells, strict=True))
    try:
        index = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    except TypeError:
        return cells, np.arange(len(cells))
    codes = np.fromiter(map(index.__getitem__, keys), dtype=np.intp, count=len(keys))
    return (list(index) if one_type else [value for _, value in index]), codes


def own_value(values: Sequence[Any], value: Any) -> Any:
    """The value as the choices have it, so that equal ones are written alike."""
    i = index_of(values, value)
    return value if i is None else values[i]


def index_of(values: Sequence[Any], value: Any) -> int | None:
    """Which of the values is meant; None if it is none of them.

    True also stands for the text ``True``, ``true`` or ``TRUE`` of a file, and vice versa. Lists
    equal tuples, as JSON turns one into the other.
    """
    try:
        return values.index(to_python(value))
    except Exception:  # it is none; pandas' NA equals nothing, and objects raise what they like
        truth = _truth(value)
    alike = [i for i, known in enumerate(values) if truth is not None and _truth(known) is truth]
    return alike[0] if len({values[i] for i in alike}) == 1 else None


def _truth(value: Any) -> bool | None:
    """The flag that a value or text stands for; None for anything else."""
    word = to_python(value)
    if isinstance(word, str):
        return {"true": True, "false": False}.get(word.strip().lower())
    return word if isinstance(word, bool) else None


Row = Mapping[str, Any]
Configuration = dict[str, Any]


def is_missing(value: Any) -> bool:
    """Whether it is None, nan, or pandas' NA."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ArithmeticError):  # NA, and a signaling nan of decimal
        return True
    except ValueError:  # an array
        return False
    except Exception as error:  # whatever an object of others raises
        raise InputError(
            f"a cell of type {type(value).__name__} cannot be compared ({type(error).__name__}); "
            "expected numbers or text"
        ) from None


def is_empty(cell: Any) -> bool:
    """Whether a cell holds nothing: None, nan, pandas' NA or blanks."""
    return (isinstance(cell, str) and not cell.strip()) or is_missing(cell)


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
        if len(p.choices) == 1:
            row.setdefault(p.name, p.choices[0])
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
            if len(p.choices) != 1
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
