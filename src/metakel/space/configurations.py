"""Values and configurations as people and files write them, each in one form.

Numbers have commas and units, and flags are words. Configurations come as dicts, frames, arrays and
cells of a table. `Space` offers what is done with them as methods. Everybody who reads, compares or
prints a configuration goes through them: ``--observed``, ``--candidates``, ``--fix``, the journal,
the report and the Optuna sampler. A history, which has no space yet, is read by columns in
`metakel.io`. What the space does not have is refused by `Space.encode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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


def rows_of(space: Space, given: Any) -> list[Configuration]:
    """Configurations one by one, from a dict, several, a frame or an array.

    Of a frame only the columns of parameters count, and an empty cell of a parameter that may not
    be there is left out.
    """
    found = _one_by_one(space, given)
    if found is not None:
        return found
    table, optional = columns_of(space, given), {c.name for c in space.conditions}
    return [
        {n: v for n, v in zip(table, row, strict=True) if n not in optional or not is_empty(v)}
        for row in zip(*map(listed, table.values()), strict=True)
    ]


def columns_of(space: Space, given: Any) -> Mapping[str, Values]:
    """Columns by name of what `rows_of` takes."""
    found = _one_by_one(space, given)
    if found is not None:
        names = dict.fromkeys(name for row in found for name in row) if found else space.names
        optional = {c.name for c in space.conditions}
        for i, row in enumerate(found):
            for name in names:
                if name not in row and name not in optional:
                    raise InputError(f"configuration {i} lacks the parameter {name!r}: {row}")
        return {name: [row.get(name) for row in found] for name in names}
    if isinstance(given, np.ndarray):
        values = np.atleast_2d(given)
        if values.shape[1] != len(space.names):
            raise ShapeError(
                f"configurations have shape {given.shape}; expected (n, {len(space.names)}) with "
                f"columns {', '.join(space.names)}"
            )
        pairs = zip(space.parameters, values.T, strict=True)
        return {p.name: column.tolist() for p, column in pairs if len(p.choices) != 1}
    if isinstance(given, Mapping):
        return given
    known = getattr(given, "column_names", None) or list(given.columns)
    return {name: _column(given[name]) for name in known if name in space.names}


def _one_by_one(space: Space, given: Any) -> list[Configuration] | None:
    """Configurations that are given as dicts; None where it is a table of columns."""
    if _is_one(space, given):
        return [dict(given)]
    if isinstance(given, np.ndarray | Mapping) or hasattr(type(given), "columns"):
        return None
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InputError(
            f"{named(given)} is no configuration; expected a dict of {', '.join(space.names)}, "
            "several of them, or a frame"
        )
    found = list(given)
    for i, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise InputError(
                f"configuration {i} is a {type(row).__name__}; expected a dict of named values"
            )
    return [dict(row) for row in found]


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


def _column(values: Any) -> list[Any]:
    """Of pandas, Polars or Arrow, None for missing values."""
    for how in ("to_list", "to_pylist", "tolist"):
        if hasattr(values, how):
            return [
                None if is_empty(v) and not isinstance(v, str) else v
                for v in getattr(values, how)()
            ]
    return list(values)


def shown(value: Any) -> str:
    """A value as people read it."""
    return f"{value:.6g}" if isinstance(value, float) and is_number(value) else str(value)
