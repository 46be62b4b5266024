"""Columns of a table, whoever made it: pandas, Polars, Arrow or a dict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from metakel.errors import InputError

Columns = dict[str, list[Any]]


def frame_columns(frame: Any) -> Columns:
    """Plain lists by column name; nothing is imported, the frame brings its own library."""
    names: list[Any]
    if isinstance(frame, Mapping):
        names, lists = list(frame), [_listed(values) for values in frame.values()]
    elif hasattr(frame, "iloc"):  # pandas, by position, as names may be there twice
        names = list(frame.columns)
        lists = [frame.iloc[:, i].tolist() for i in range(len(names))]
    elif hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy Polars frame
        return frame_columns(frame.collect())
    elif hasattr(frame, "get_columns"):  # Polars
        names, lists = list(frame.columns), [series.to_list() for series in frame.get_columns()]
    elif hasattr(frame, "column_names"):  # Arrow
        names, lists = frame.column_names, [column.to_pylist() for column in frame.columns]
    else:
        raise InputError(
            f"found a {type(frame).__name__}; expected a pandas or Polars frame, an Arrow table "
            "or a dict of columns"
        )
    named_once([str(name) for name in names], "the table")
    columns = {str(name): values for name, values in zip(names, lists, strict=True)}
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"columns differ in length: {sizes}")
    return columns


def named_once(names: Iterable[str], where: str) -> None:
    """Refuse a table in which a name could mean two columns."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{where} has several columns {name!r}; expected every name once")
        seen.add(name)


def missing(value: Any) -> bool:
    """Whether it is None, nan, or what a frame has instead."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas, which is neither equal to itself nor different
        return True


def _listed(values: Any) -> list[Any]:
    """Numbers and texts of an array as Python's own; `tolist` would make times numbers."""
    own = isinstance(values, np.ndarray) and values.dtype.kind in "biufUS"
    return list(values.tolist() if own else values)
