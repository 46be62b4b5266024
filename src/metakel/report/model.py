"""The page's part on what was learned."""

from __future__ import annotations

import numpy as np

from metakel.charts import LEARNED, Axis, SvgChart, number, short
from metakel.priors import Prior
from metakel.priors.summary import EFFECT, Curve, draw_effect, effect_axis
from metakel.report.html import bars, figure, figures, paragraph, section, table
from metakel.space import Float

CELLS = 24
SHOWN_EFFECTS = 8
SHOWN_SHARES = 12
SMALLEST_SHARE = 0.005


def model_section(prior: Prior) -> str:
    """Shares of variance, effects, and the common shape as a map."""
    if prior.task_gp is None:
        return section("What was learned", paragraph("No past task varies: there is no shape."))
    explained = prior.explain()
    rows = [
        (name, share, explained.differences.get(name, 0.0))
        for name, share in explained.common.items()
        if max(share, explained.differences.get(name, 0.0)) >= SMALLEST_SHARE
    ]
    rows.sort(key=lambda row: -(row[1] + row[2]))
    names = "common shape", "differences between tasks"
    shown = explained.curves[:SHOWN_EFFECTS]
    ends = [end for c in shown for end in (c.common - c.spread, c.common + c.spread)]
    pictures = [_effect(curve, Axis.covering(EFFECT, *ends)) for curve in shown]
    heat = _map(prior, [name for name, _, _ in rows])
    return section(
        "What was learned",
        paragraph(
            "How much of the variation each parameter explains, alone or together with another: in "
            "what all tasks have in common, and in what sets them apart."
        ),
        bars(rows[:SHOWN_SHARES], names),
        figures(*([heat] if heat else []), *pictures),
        table(
            ["parameter", "range"],
            [
                *([p.name, p.describe()] for p in prior.space.parameters),
                *(["always", str(total)] for total in prior.space.sums),
            ],
            "text",
        ),
    )


def _effect(curve: Curve, size: Axis) -> str:
    chart = SvgChart(effect_axis(curve), size)
    draw_effect(chart, curve)
    description = f"average effect of {curve.name} with the spread between tasks"
    return figure(chart, f"Effect of {curve.name}", description=description)


def _map(prior: Prior, by_share: list[str]) -> str:
    """The mean over the two numbers that matter most, others as in what is tried first."""
    top = prior.optimizer().peek()
    ranked = [name for name in by_share if top.get(name) is not None]
    numbers = [name for name in ranked if isinstance(prior.space[name], Float)][:2]
    if len(numbers) < 2:
        return ""
    across, up = numbers
    middles = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
    xs, ys = (prior.space[name].decode(middles[:, None]) for name in numbers)
    rows = [{**top, across: x, up: y} for y in ys for x in xs]
    values = prior.mean(rows)
    low, high = float(values.min()), float(values.max())
    worst, best = (high, low) if prior.info.minimize else (low, high)
    scaled = (values - worst) / ((best - worst) or 1.0)
    tips = [
        f"{across} {short(row[across])}, {up} {short(row[up])}\n{number(float(value))}"
        for row, value in zip(rows, values, strict=True)
    ]
    chart = SvgChart(_axis(prior, across), _axis(prior, up))
    chart.cells(scaled.reshape(CELLS, CELLS), LEARNED, tips)
    others = [f"{n} = {short(v)}" for n, v in top.items() if n not in numbers]
    caption = f"From {number(worst)} (faint) to {number(best)} (strong, best)." + (
        f" The others as tried first: {', '.join(others)}." if others else ""
    )
    title = f"Typical {prior.info.output} by {across} and {up}"
    return figure(chart, title, caption, f"map of the typical {prior.info.output}")


def _axis(prior: Prior, name: str) -> Axis:
    parameter = prior.space[name]
    assert isinstance(parameter, Float)
    return Axis(name, parameter.low, parameter.high, parameter.log)
