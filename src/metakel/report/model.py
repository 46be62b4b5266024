"""The page's part on what was learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from metakel.priors import Prior
from metakel.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart
from metakel.report.parts import bars, figure, figures, paragraph, section, table
from metakel.report.scales import number, span
from metakel.space import Float

CELLS = 24
SHOWN_EFFECTS = 8
SHOWN_SHARES = 12
SMALLEST_SHARE = 0.005


def learned_section(prior: Prior) -> str:
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
    pictures = [_effect(curve) for curve in explained.curves[:SHOWN_EFFECTS]]
    heat = _map(prior, [name for name, _, _ in rows])
    return section(
        "What was learned",
        paragraph(
            "How much of the variation each parameter explains, alone or together with another: in "
            "what all tasks have in common, and in what sets them apart."
        ),
        '<p><span class="key learned">common shape</span>'
        '<span class="key cold">differences between tasks</span></p>',
        bars(rows[:SHOWN_SHARES], names),
        figures(*([heat] if heat else []), *pictures),
        table(["parameter", "range"], [[p.name, p.describe()] for p in prior.space.parameters]),
    )


def _effect(curve: Any) -> str:
    middle, spread = np.asarray(curve.common), np.asarray(curve.spread)
    lower, upper = middle - spread, middle + spread
    if curve.numeric:
        xs = [float(value) for value in curve.values]
        chart = Chart(
            (xs[0], xs[-1]),
            span(lower, upper),
            x_label=curve.name,
            y_label="effect, in spreads of a task",
            x_log=curve.log,
        )
        chart.band(xs, lower, upper, "cold").line(xs, middle, "learned")
    else:
        xs = [float(i) for i in range(len(curve.values))]
        chart = Chart(
            (-0.5, len(xs) - 0.5),
            span(lower, upper),
            x_label=curve.name,
            y_label="effect, in spreads of a task",
            categories=[str(value) for value in curve.values],
        )
        for x, low, high in zip(xs, lower, upper, strict=True):
            chart.band([x - 0.06, x + 0.06], [low] * 2, [high] * 2, "cold")
        chart.dots(xs, middle, "learned", [str(value) for value in curve.values], 5)
    description = f"average effect of {curve.name} with the spread between tasks"
    legend = [("learned", "common"), ("cold", "± between tasks")]
    return figure(chart.render(description), f"Effect of {curve.name}", legend=legend)


def _map(prior: Prior, by_share: list[str]) -> str:
    """The mean over the two numbers that matter most, others at the best known place."""
    assert prior.task_gp is not None
    ranked = [name for name in by_share if name in prior.space.names]
    numbers = [name for name in ranked if isinstance(prior.space[name], Float)][:2]
    if len(numbers) < 2:
        return ""
    across, up = numbers
    points = prior.task_gp.basis.landmarks
    top = prior.space.decode(np.clip(points[[int(np.argmax(prior.task_gp.mean(points)))]], -1, 1))[
        0
    ]
    middles = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
    xs, ys = (prior.space[name].decode(middles[:, None]) for name in numbers)
    rows = [{**top, across: x, up: y} for y in ys for x in xs]
    values = prior.mean(rows)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / ((high - low) or 1.0)
    x_parameter, y_parameter = (_as_number(prior, name) for name in numbers)
    chart = Chart(
        (x_parameter.low, x_parameter.high),
        (y_parameter.low, y_parameter.high),
        x_label=across,
        y_label=up,
        x_log=x_parameter.log,
        y_log=y_parameter.log,
    )
    width, height = (WIDTH - RIGHT - LEFT) / CELLS, (HEIGHT - BOTTOM - TOP) / CELLS
    for k, row in enumerate(rows):
        i, j = k % CELLS, k // CELLS
        tip = f"{across} {_short(row[across])}, {up} {_short(row[up])}\n{number(float(values[k]))}"
        y = HEIGHT - BOTTOM - (j + 1) * height
        chart.cell(LEFT + i * width, y, width + 0.4, height + 0.4, float(scaled[k]), tip)
    others = [f"{n} = {_short(v)}" for n, v in top.items() if n not in numbers]
    caption = f"From {number(low)} (pale) to {number(high)} (full)." + (
        f" Elsewhere: {', '.join(others)}." if others else ""
    )
    title = f"Typical {prior.info.output} by {across} and {up}"
    return figure(chart.render(f"map of the typical {prior.info.output}"), title, caption)


def _as_number(prior: Prior, name: str) -> Float:
    parameter = prior.space[name]
    assert isinstance(parameter, Float)
    return parameter


def _short(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)
