"""Limits of an output, given or guessed from its name: no bound on an accuracy is above 1."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from metakel.data import History
from metakel.errors import InputError

PERCENTAGES = ("percent", "percentage", "pct")
CLEARLY_PERCENT = 2.0  # a value above 1, but not of a share of 100
SHARES = (
    "accuracy", "acc", "auc", "auroc", "auprc", "f1", "precision", "recall", "specificity",
    "sensitivity", "share", "iou", "dice",
)  # fmt: skip


@dataclass(frozen=True)
class OutputLimits:
    """``limits`` (low, high) or None where there are none, and what to say about them."""

    limits: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()


def output_limits(history: History, given: tuple[float, float] | None) -> OutputLimits:
    """As given; or 0 to 1, or to 100, where the name and all values suggest a share."""
    report = history.report
    name = "" if report is None else report.output
    sign = -1.0 if report is not None and report.minimize else 1.0
    values = sign * np.concatenate([task.y for task in history])
    found = (float(values.min()), float(values.max()))
    if given is not None:
        low, high = map(float, given)
        if not (low <= found[0] and found[1] <= high):
            raise InputError(
                f"outputs are {(low, high)} but the history holds values from {found[0]:g} to "
                f"{found[1]:g}; expected limits around all of them"
            )
        return OutputLimits((low, high))
    highest = _largest_share(name, found[1])
    if highest is None or not 0 <= found[0] <= found[1] <= highest:
        return OutputLimits()
    note = (
        f"{name} is taken to lie between 0 and {highest:g}; outputs=(low, high) or --bounds low "
        "high says otherwise"
    )
    return OutputLimits((0.0, highest), (note,))


def _largest_share(name: str, found: float) -> float | None:
    """1 or 100, if the name is that of a share; ``found`` is the largest value."""
    words = re.split(r"[^a-z0-9%]+", name.lower())
    if "%" in name or any(word in PERCENTAGES for word in words):
        return 100.0
    if any(word in SHARES for word in words) and not 1 < found < CLEARLY_PERCENT:
        return 1.0 if found <= 1 else 100.0
    return None
