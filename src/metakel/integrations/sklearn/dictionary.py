"""Base kernels for tables of any width, when the user names none."""

from __future__ import annotations

from math import comb

import numpy as np

from metakel.errors import InputError
from metakel.kernels import Dictionary, from_features, tensor
from metakel.tasks import Array

LARGEST_ORDER = 10
# A lasso over this many functions takes a fraction of a second on thousands of rows.
MOST_KERNELS = 100


def default_base(d0: int, order: int | None = None) -> Dictionary:
    """Legendre polynomials of single inputs and of pairs of inputs, each its own base kernel.

    Without an ``order``, the largest total order up to 10 for which there are at most 100; where
    even pairs of order 2 are more than that, polynomials of single inputs alone.
    """
    if order is not None:
        return tensor(d0, order, scaling="l2", max_interaction=2)
    for largest in range(LARGEST_ORDER, 1, -1):
        if largest * d0 + comb(largest, 2) * comb(d0, 2) <= MOST_KERNELS:
            return tensor(d0, largest, scaling="l2", max_interaction=2)
    largest = min(LARGEST_ORDER, max(1, MOST_KERNELS // d0))
    return tensor(d0, largest, scaling="l2", max_interaction=1)


def with_level(base: Dictionary, d0: int) -> Dictionary:
    """The base kernels behind one more, the constant: tasks differ in their level."""
    if base.d0 not in (None, d0):
        raise InputError(f"the base kernels take {base.d0} inputs; X has {d0} features")
    return from_features(_one, 1, name="level", d0=d0, sup=1.0) + base


def _one(X: Array) -> Array:
    return np.ones((len(X), 1))
