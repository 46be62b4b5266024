"""Rows of a table: whose they are, and whether they lie where something is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length

from metakel._arrays import Array
from metakel.errors import InputError


def as_labels(task: Any, rows: Any) -> list[Any]:
    """Checked labels, one for every row; a single label, or None, is that of all of them."""
    if task is None:
        return [None] * len(rows)
    labels = np.asarray(task, dtype=object)
    if labels.ndim == 0:
        labels = np.full(len(rows), labels)
    if labels.ndim != 1:
        raise InputError(
            f"task has shape {labels.shape}; expected one label for every row, or one for all"
        )
    check_consistent_length(rows, labels)
    for i, label in enumerate(labels):
        if _missing(label):
            raise InputError(f"row {i} has no task label (found {label})")
    return list(labels)


def _missing(label: Any) -> bool:
    if label is None:
        return True
    same = label == label  # not for NaN and NaT; NA of pandas gives no answer
    return not (isinstance(same, bool | np.bool_) and same)


def rows_by_label(labels: Sequence[Any]) -> dict[Any, list[int]]:
    """The rows of every task, in the order in which tasks appear."""
    rows: dict[Any, list[int]] = {}
    for i, label in enumerate(labels):
        rows.setdefault(label, []).append(i)
    return rows


def check_within(X: Array, low: Array, high: Array, where: str, names: Sequence[object]) -> None:
    """Refuse rows outside of the box that was fitted."""
    outside = (low > X) | (high < X)
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"{where}: feature {names[column]} is {X[row, column]:.6g} in row {row}; fit has seen "
            f"[{low[column]:.6g}, {high[column]:.6g}], and nothing is known outside"
        )
