"""What a user gives, in the form that is meant, or an error that says what to give instead."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metakel.errors import InputError
from metakel.kernels.base import KernelDictionary
from metakel.kernels.sum import KernelSum

# What people call it in their programs.
_VARIABLE = {"LearnedKernel": "learned"}


def as_kernel(name: str, value: Any) -> KernelSum:
    """A kernel; what has one or could become one is refused with a word on how."""
    if isinstance(value, KernelSum):
        return value
    kind = type(value).__name__
    if isinstance(getattr(value, "kernel", None), KernelSum):  # what was learned, a prior
        advice = f"give {_VARIABLE.get(kind, kind.lower())}.kernel"
    elif isinstance(value, KernelDictionary):
        advice = "give KernelSum.uniform(base, weight=1.0) for all of its base kernels"
    else:
        advice = "expected a KernelSum, such as learned.kernel or KernelSum.uniform(base)"
    raise InputError(f"{name} is a {kind}; {advice}")


def as_batch(kernel: KernelSum, X: ArrayLike, y: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Points and values as rows, where one point may be a number or a vector of d0 numbers."""
    try:
        if np.ndim(X) == 0 or (np.ndim(X) == 1 and kernel.d0 not in (None, 1)):
            X = np.reshape(X, (1, -1))
        return X, np.atleast_1d(y)
    except ValueError:  # no array at all, which whoever reads them says better
        return X, y
