"""How a broken law is reported."""

from __future__ import annotations

from typing import Any

import numpy as np


def law(holds: bool | np.bool_, message: str) -> None:
    """Raise where a law does not hold; not an ``assert``, which may be switched off."""
    if not holds:
        raise AssertionError(message)


def close(
    found: Any, expected: Any, what: str, *, rtol: float = 1e-12, atol: float = 1e-13
) -> None:
    """Compare two arrays; the message says where they differ most."""
    one, other = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    law(one.shape == other.shape, f"{what}: shapes {one.shape} and {other.shape}")
    if np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True):
        return
    worst = np.unravel_index(int(np.argmax(np.abs(one - other))), one.shape)
    place = tuple(int(i) for i in worst)
    raise AssertionError(f"{what}: {one[worst]:.9g} instead of {other[worst]:.9g} at {place}")
