"""Numbers that are far from all others of their column, as slips are: said, and kept."""

from __future__ import annotations

from math import log

import numpy as np

from metakel._arrays import Array
from metakel.io.cleaning import Place

FEWEST = 10  # values, of which one may be odd
RARE = 0.01  # share of values that may be odd; at least one may
FAR = 10.0  # times the range of all others
FAR_IN_LOGS = 0.75  # the same on a log scale, of which values may be spread


def odd_values(name: str, values: Array, place: Place) -> str:
    """A note on the few values that are far beyond all others; empty where there are none."""
    rows = np.flatnonzero(np.isfinite(values))
    if len(rows) < FEWEST:
        return ""
    order = rows[np.argsort(values[rows], kind="stable")]
    sorted_ = values[order]
    most = max(1, int(RARE * len(rows)))
    for count in range(1, most + 1):
        for odd, others in (
            (order[-count:], sorted_[:-count]),
            (order[:count], sorted_[count:]),
        ):
            near = float(values[odd[0]] if values[odd[0]] > others[-1] else values[odd[-1]])
            if _far(near, float(others[0]), float(others[-1])):
                first = int(odd[0])
                more = f" and {count - 1} more" if count > 1 else ""
                return (
                    f"{name} is {values[first]:g} in {place(first)}{more}, and between "
                    f"{others[0]:g} and {others[-1]:g} in all other rows: is this right?"
                )
    return ""


def _far(value: float, low: float, high: float) -> bool:
    """Whether a value is far beyond a range, on a linear and on a log scale."""
    beyond = max(value - high, low - value)
    if high <= low or beyond <= FAR * (high - low):
        return False
    if low <= 0 or value <= 0:
        return True
    return max(log(value / high), log(low / value)) > FAR_IN_LOGS * log(high / low)
