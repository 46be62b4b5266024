"""Configurations as users hold them: dicts, frames, arrays."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.io import frame_columns
from metakel.space import Fixed, Space

# A table reaches a little beyond what was recorded of others like it: 5 % of the range on [-1, 1].
SLIGHTLY = 0.1


def encode_candidates(candidates: Any, space: Space, *, extrapolate: bool | None) -> Array:
    """(n, d0) points of a table to choose from.

    To list a candidate is to allow it. Where ``extrapolate`` is None, a warning names those
    that lie more than slightly beyond the recorded ranges.
    """
    Z = encode_configurations(candidates, space, extrapolate=extrapolate is not False)
    if extrapolate is None:
        far = np.abs(Z) > 1 + SLIGHTLY
        counts = {name: int(far[:, space.columns[name]].any(axis=1).sum()) for name in space.free}
        if any(counts.values()):
            named = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
            warnings.warn(
                f"{int(far.any(axis=1).sum())} of {len(Z)} candidates lie beyond the recorded "
                f"ranges of {named}; what the prior says there is a guess. extrapolate=True "
                "accepts them, extrapolate=False refuses them",
                stacklevel=3,
            )
    return Z


def as_rows(configurations: Any, space: Space) -> list[Any]:
    """Configurations one by one; of a frame, dicts of the parameters that it has columns for."""
    if isinstance(configurations, np.ndarray):
        values = np.atleast_2d(configurations).tolist()
        return [dict(zip(space.names, row, strict=False)) for row in values]
    if isinstance(configurations, Mapping) or hasattr(type(configurations), "columns"):
        known = {n: v for n, v in frame_columns(configurations).items() if n in space.names}
        rows = zip(*known.values(), strict=True)
        return [dict(zip(known, values, strict=True)) for values in rows]
    if not isinstance(configurations, Iterable):
        found = type(configurations).__name__
        raise InputError(f"candidates is a {found}; expected a frame or a sequence of dicts")
    return [dict(row) if isinstance(row, Mapping) else row for row in configurations]


def encode_configurations(configurations: Any, space: Space, *, extrapolate: bool = False) -> Array:
    """(n, d0) numeric points of a dict, a sequence of dicts, a frame, or an array of numbers.

    An array has one column per parameter, in the order of the space. Other columns of a frame
    are ignored.
    """
    if isinstance(configurations, np.ndarray):
        values = np.atleast_2d(configurations)
        if values.shape[1] != len(space.names):
            raise ShapeError(
                f"configurations have shape {configurations.shape}; expected (n, "
                f"{len(space.names)}) with columns {', '.join(space.names)}"
            )
        columns = {
            name: values[:, i].tolist()
            for i, name in enumerate(space.names)
            if not isinstance(space[name], Fixed)
        }
        return space.encode(columns, extrapolate=extrapolate)
    if isinstance(configurations, Mapping) and not any(
        isinstance(value, (list, tuple, np.ndarray)) for value in configurations.values()
    ):
        return space.encode([configurations], extrapolate=extrapolate)
    if isinstance(configurations, Sequence):
        return space.encode(list(configurations), extrapolate=extrapolate)
    table = frame_columns(configurations)
    known = {name: values for name, values in table.items() if name in space.names}
    return space.encode(known, extrapolate=extrapolate)
