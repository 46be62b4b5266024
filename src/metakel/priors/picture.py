"""Pictures of a prior: the effect of every parameter, on any kind of chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metakel.charts import LEARNED, REFERENCE, Axis, Chart, Panel, new_axes
from metakel.priors.explain import Curve

EFFECT = "effect, in spreads of a task"


def draw_effects(curves: Sequence[Curve], axes: Sequence[Any] | None = None) -> Sequence[Any]:
    """One matplotlib panel per parameter."""
    if axes is None:
        axes = new_axes(len(curves), size=(3.2 * len(curves), 2.8), sharey=True)
    for curve, ax in zip(curves, axes, strict=True):
        draw_effect(Panel(ax, effect_axis(curve)), curve)
        ax.axhline(0, color=REFERENCE.colour, linewidth=0.6, zorder=0)
    axes[0].set_ylabel(EFFECT)
    return axes


def draw_effect(chart: Chart, curve: Curve) -> None:
    """The common effect of a parameter, with one standard deviation between tasks."""
    lower, upper = curve.common - curve.spread, curve.common + curve.spread
    names = {"common": "common", "between": "± between tasks"}
    if curve.numeric:
        chart.band(curve.values, lower, upper, LEARNED, label=names["between"])
        chart.line(curve.values, curve.common, LEARNED, label=names["common"])
        return
    places = np.arange(len(curve.values))
    for place, low, high in zip(places, lower, upper, strict=True):
        label = "" if place else names["between"]
        chart.band([place - 0.06, place + 0.06], [low] * 2, [high] * 2, LEARNED, label=label)
    tips = [str(value) for value in curve.values]
    chart.dots(places, curve.common, LEARNED, label=names["common"], tips=tips, size=10)


def effect_axis(curve: Curve) -> Axis:
    """The values of a parameter from end to end."""
    if not curve.numeric:
        return Axis.of(curve.name, [str(value) for value in curve.values])
    return Axis(curve.name, float(curve.values[0]), float(curve.values[-1]), log=curve.log)
