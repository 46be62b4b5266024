"""A history in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from metakel.data.history import History


def summary(history: History) -> str:
    """Sizes, inputs and values of its tasks, and the report of how it was read."""
    X = np.concatenate([task.X for task in history.tasks])
    ranges = "\n".join(f"  x{i}: {span(column, '.4g')}" for i, column in enumerate(X.T))
    means = np.array([task.y.mean() for task in history.tasks])
    spreads = np.array([task.y.std() for task in history.tasks])
    head = (
        f"history of {history.m} task{'s' if history.m > 1 else ''}, {history.total} observations "
        f"({span(history.sizes, 'd')} each), {history.d0} input{'s' if history.d0 > 1 else ''}"
    )
    lines = [
        head,
        ranges if history.space is None else str(history.space),
        f"  task means {span(means, '.4g')}, task standard deviations {span(spreads, '.4g')}",
    ]
    constant = [t.name for t in history.tasks if np.ptp(t.y) == 0]
    if constant:
        lines.append(
            f"  constant values in: {', '.join(constant[:5])}"
            + (f" and {len(constant) - 5} more" if len(constant) > 5 else "")
        )
    if history.report is not None:
        lines.append(str(history.report))
    return "\n".join(lines)


def span(values: NDArray[Any], form: str) -> str:
    """From the smallest to the largest of some numbers."""
    low, high = values.min(), values.max()
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"
