"""Base kernels of the regressor: the user's or default ones, a level, and names of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.kernels import KernelDictionary, KernelSum, from_features, tensor_product
from metakel.kernels.custom import Custom
from metakel.kernels.family import Family

LARGEST_ORDER = 10
# A lasso over this many functions takes a fraction of a second on thousands of rows.
MOST_KERNELS = 100


def base_kernels(
    given: Any, *, d0: int, order: int | None, names: Sequence[str] | None
) -> KernelDictionary:
    """Base kernels for tables of ``d0`` columns; number 0 is a constant, the level of a task.

    Parameters
    ----------
    given : KernelDictionary, callable or None
        From the user: a dictionary, a function from d0 to one, or None for `default_base`.
    d0 : int
    order : int or None
        Largest total order of the default base kernels.
    names : (d0,) sequence of str or None
        Column names, which replace x0, x1, ... in the names of the kernels.
    """
    base = default_base(d0, order) if given is None else _given_base(given, d0)
    if base.d0 not in (None, d0):
        raise InputError(f"the base kernels take {base.d0} inputs; X has {d0} features")
    base = from_features(_one, 1, name="level", d0=d0, sup=1.0) + base
    return base if names is None else NamedInputs(base.families, base.d0, tuple(names))


def default_base(d0: int, order: int | None = None) -> KernelDictionary:
    """Legendre polynomials of single inputs and of pairs of inputs, each its own base kernel.

    Without an ``order``, the largest total order up to 10 that gives at most 100 kernels. If even
    pairs of order 2 are more, only polynomials of single inputs are used.
    """
    if order is not None:
        return tensor_product(d0, order, scaling="l2", max_interaction=2)
    for largest in range(LARGEST_ORDER, 1, -1):
        if largest * d0 + comb(largest, 2) * comb(d0, 2) <= MOST_KERNELS:
            return tensor_product(d0, largest, scaling="l2", max_interaction=2)
    largest = min(LARGEST_ORDER, max(1, MOST_KERNELS // d0))
    return tensor_product(d0, largest, scaling="l2", max_interaction=1)


def _given_base(given: Any, d0: int) -> KernelDictionary:
    if isinstance(given, KernelDictionary):
        return deepcopy(given)  # it caches results, and scikit-learn's parameters may not change
    made = given(d0) if callable(given) and not isinstance(given, KernelSum) else given
    if isinstance(made, KernelDictionary):
        return made
    remedy = ""
    if isinstance(made, KernelSum):
        remedy = ": give kernel.base"
    elif hasattr(made, "kernel"):  # a LearnedKernel, say
        remedy = ": give learned.kernel.base"
    raise InputError(
        f"base is a {type(made).__name__}; expected a KernelDictionary, or a function from the "
        f"number of features to one{remedy}"
    )


@dataclass(frozen=True, eq=False, repr=False)
class NamedInputs(KernelDictionary):
    """Base kernels of named columns: ``P2(heat)`` instead of ``P2(x1)``."""

    inputs: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the p kernels in reports."""
        return tuple(name for family in self.families for name in self._names(family))

    def _names(self, family: Family) -> tuple[str, ...]:
        if isinstance(family, Custom):  # named by the user
            return family.names
        return tuple(re.sub(r"\bx(\d+)\b", self._column, name) for name in family.names)

    def _column(self, found: re.Match[str]) -> str:
        return self.inputs[int(found[1])]


def _one(X: Array) -> Array:
    return np.ones((len(X), 1))
