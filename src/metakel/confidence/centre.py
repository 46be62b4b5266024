"""The function around which a confidence sequence is built."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError

# (n, d0) points -> (n,) values
Centre = Callable[[Array], Array]


def centre_at(centre: Centre, Z: Array) -> Array:
    """(n,) values of a centre at ``Z`` (n, d0), checked."""
    values = np.asarray(centre(Z), dtype=np.float64)
    if values.shape != (len(Z),):
        raise ShapeError(
            f"centre returned shape {values.shape} for {len(Z)} points; expected ({len(Z)},)"
        )
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise InputError(f"centre is {values[bad]} at {Z[bad].tolist()}; expected finite numbers")
    return values
