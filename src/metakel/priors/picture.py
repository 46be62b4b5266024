"""Pictures of a prior: arrays in, axes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metakel.priors.explain import Curve


def draw_effects(curves: Sequence[Curve], axes: Sequence[Any] | None = None) -> Sequence[Any]:
    """One panel per parameter: the common effect, with one standard deviation between tasks."""
    if axes is None:
        import matplotlib.pyplot as plt

        size = (3.2 * len(curves), 2.8)
        _, grid = plt.subplots(1, len(curves), figsize=size, sharey=True, layout="constrained")
        axes = list(np.atleast_1d(np.asarray(grid, dtype=object)))
    for curve, ax in zip(curves, axes, strict=True):
        low, high = curve.common - curve.spread, curve.common + curve.spread
        if curve.numeric:
            ax.fill_between(curve.values, low, high, color="C0", alpha=0.2, lw=0)
            ax.plot(curve.values, curve.common, color="C0")
            ax.set_xscale("log" if curve.log else "linear")
        else:
            places = np.arange(len(curve.values))
            ax.errorbar(places, curve.common, curve.spread, fmt="o", color="C0")
            ax.set_xticks(places, [str(value) for value in curve.values])
        ax.axhline(0, color="0.7", lw=0.8, zorder=0)
        ax.set_xlabel(curve.name)
    axes[0].set_ylabel("effect (scale of a task)")
    return axes
