"""How far ratios of means (bootstrap) and rates (Wilson) could be off, at 95 %."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metakel.paper.figure import Measured

LEVEL = 0.95
RESAMPLES = 2000
Z = 1.959964  # quantile of the normal distribution for LEVEL


def ratio(
    key: str, over: ArrayLike, under: ArrayLike, clusters: ArrayLike | None = None
) -> dict[str, float]:
    """Mean of ``over`` / mean of ``under`` as ``key``, and its interval as "low" and "high".

    Parameters
    ----------
    over, under : (N,) arrays
        Paired: entry i of both belongs to the same instance.
    clusters : (N,) array, optional
        Labels of what was drawn independently, where several instances share something.
    """
    pairs = np.column_stack([np.asarray(over, dtype=float), np.asarray(under, dtype=float)])
    labels = np.arange(len(pairs)) if clusters is None else np.asarray(clusters)
    names, where = np.unique(labels, return_inverse=True)
    sums = np.zeros((len(names), 2))
    np.add.at(sums, where, pairs)
    total = sums.sum(axis=0)
    value = float(total[0] / total[1]) if total[1] else np.nan
    rng = np.random.default_rng(0)
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES)
    drawn = counts @ sums  # (RESAMPLES, 2)
    drawn = drawn[drawn[:, 1] != 0]  # a resample of zeros says nothing
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    edges = np.quantile(drawn[:, 0] / drawn[:, 1], tails) if len(drawn) else (np.nan, np.nan)
    return {key: value, f"{key} low": float(edges[0]), f"{key} high": float(edges[1])}


def rate(key: str, successes: ArrayLike) -> dict[str, float]:
    """Fraction of successes as ``key``, and its Wilson interval, which is honest at 0 and 1."""
    values = np.asarray(successes, dtype=float)
    n, p, z = len(values), float(values.mean()), Z
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (0.0 if p == 0 else centre - half), (1.0 if p == 1 else centre + half)
    return {key: p, f"{key} low": float(low), f"{key} high": float(high)}


def shown(measured: Measured, key: str) -> str:
    """The number, with its interval where there is one."""
    if np.isnan(measured[key]):
        return "–"
    text = f"{measured[key]:.3g}"
    if f"{key} low" not in measured:
        return text
    return f"{text} ({measured[f'{key} low']:.3g} to {measured[f'{key} high']:.3g})"
