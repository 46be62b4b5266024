"""Columns of a table, whoever made it: pandas, Polars, Arrow or a dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metakel.errors import InputError

Columns = dict[str, list[Any]]


def frame_columns(frame: Any) -> Columns:
    """Plain lists by column name; nothing is imported, the frame brings its own library."""
    if isinstance(frame, Mapping):
        columns = {str(name): list(values) for name, values in frame.items()}
    elif hasattr(frame, "iloc"):  # pandas
        columns = {str(name): frame[name].tolist() for name in frame.columns}
    elif hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy Polars frame
        return frame_columns(frame.collect())
    elif hasattr(frame, "get_columns"):  # Polars
        columns = {series.name: series.to_list() for series in frame.get_columns()}
    elif hasattr(frame, "column_names"):  # Arrow
        columns = {name: frame.column(name).to_pylist() for name in frame.column_names}
    else:
        raise InputError(
            f"found a {type(frame).__name__}; expected a pandas or Polars frame, an Arrow table "
            "or a dict of columns"
        )
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"columns differ in length: {sizes}")
    return columns
