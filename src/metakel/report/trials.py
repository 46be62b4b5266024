"""Trials of a run: parallel coordinates, a slice per parameter, tables, and learning curves."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel.charts import ALARM, LEARNED, OBSERVED, Axis, Style, SvgChart, clip, number, short
from metakel.optimize import Record, Trial
from metakel.priors import Prior
from metakel.report.html import downloadable, figure, figures, paragraph, table
from metakel.space import Categorical, Float, Ordinal, Parameter

SHOWN_TRIALS = 10
SHOWN_PARAMETERS = 8
MOST_REASONS = 8
LINES = 150  # of parallel coordinates
DOTS = 300  # of a slice
WIDE, NARROW, HEIGHT, TOP, BOTTOM, LEFT, RIGHT = 860, 420, 284, 34, 54, 92, 60
LETTER = 9  # the width of one, at most, in names of axes
FEW = 4  # axes that fit into the width of any other chart, on a telephone too
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MOST = 60  # curves that are drawn, the last ones


def trial_tip(trial: Trial) -> str:
    """What to say about a trial."""
    settings = (f"{name} = {short(v)}" for name, v in trial.point.items())
    return f"{trial.number}: {number(float(trial.value or 0.0))}\n" + "\n".join(settings)


def slices(prior: Prior, trials: Sequence[Trial]) -> list[str]:
    """Values by each parameter, of the trials that have it."""
    pictures = []
    for parameter in _varying(prior)[:SHOWN_PARAMETERS]:
        having = [trial for trial in trials if parameter.name in trial.point]
        if not having:
            continue
        chosen = [having[i] for i in _some(prior, having, DOTS)]
        values = np.array([trial.value for trial in chosen], dtype=np.float64)
        axis = _axis(parameter)
        places = [_place(parameter, axis, trial.point[parameter.name]) for trial in chosen]
        chart = SvgChart(axis, Axis.covering(prior.info.output, values))
        tips = [f"{t.number}: {number(float(t.value or 0.0))}" for t in chosen]
        chart.dots(places, values, OBSERVED, tips=tips, size=7)
        pictures.append(figure(chart, f"{prior.info.output} by {parameter.name}"))
    return pictures


def parallel(prior: Prior, trials: Sequence[Trial]) -> list[str]:
    """A line per trial through all of its parameters to its value; better ones are stronger."""
    parameters = _varying(prior)[:SHOWN_PARAMETERS]
    if len(parameters) < 2:
        return []
    chosen = [trials[i] for i in _some(prior, trials, LINES)]
    values = np.array([trial.value for trial in chosen], dtype=np.float64)
    sign = -1.0 if prior.info.minimize else 1.0
    ranks = np.argsort(np.argsort(sign * values, kind="stable")) / max(len(values) - 1, 1)
    axes = [*map(_axis, parameters), Axis.covering(prior.info.output, values)]
    heights: list[list[float | None]] = [
        [_height(p, axis, trial) for trial in chosen]
        for p, axis in zip(parameters, axes, strict=False)
    ]
    heights.append([axes[-1].fraction(value) for value in values])
    few = len(axes) <= FEW
    width = NARROW if few else WIDE
    across = np.linspace(LEFT, width - RIGHT, len(axes))
    ends = f'y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
    marks = [f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" {ends}/>' for x in across]
    for i in np.argsort(ranks):
        ups = [(x, column[i]) for x, column in zip(across, heights, strict=True)]
        points = " ".join(f"{x:.0f},{_up(up):.1f}" for x, up in ups if up is not None)
        look = f'class="line {LEARNED.name}" stroke-opacity="{0.12 + 0.8 * ranks[i] ** 2:.2f}"'
        tip = escape(trial_tip(chosen[i]), quote=True)
        marks.append(f'<polyline {look} points="{points}" data-tip="{tip}"/>')
    crowded = max(len(clip(axis.label, 14)) for axis in axes) * LETTER > across[1] - across[0]
    rows = [i % 2 if crowded else 0 for i in range(len(axes))]
    marks += [_scale(*where) for where in zip(axes, across, rows, strict=True)]
    picture = (
        f'<svg class="{"" if few else "wide"}" viewBox="0 0 {width} {HEIGHT}" role="img" '
        f'aria-label="parallel coordinates of all trials">{"".join(marks)}</svg>'
    )
    text = "A line per trial, from its parameters to its value. Stronger lines are better trials."
    title = "<figcaption><h3>All configurations</h3></figcaption>"
    return [f'<figure class="{"" if few else "whole"}">{title}{picture}<p>{text}</p></figure>']


def trial_table(prior: Prior, trials: Sequence[Trial]) -> str:
    """The best trials, and all of them to download."""
    sign = 1.0 if prior.info.minimize else -1.0
    order = sorted(trials, key=lambda trial: sign * float(trial.value or 0.0))
    space = prior.space
    rows = [
        [
            *(str(t.number), number(float(t.value or 0.0))),
            "" if t.note.expected is None else number(t.note.expected[0]),
            *space.cells(t.point),
        ]
        for t in order[:SHOWN_TRIALS]
    ]
    shown = table(["trial", prior.info.output, "expected", *space.names], rows, "whole-width")
    title = f"<h3>The best {len(rows)} of {len(trials)} trials</h3>"
    return title + shown + downloadable("trials.csv", as_csv(prior, trials, space.names))


def failure_table(prior: Prior, failed: Sequence[Trial]) -> str:
    """Runs without a value: how many for which reason, and the last ones."""
    if not failed:
        return ""
    reasons = Counter(trial.note.reason or "no reason was given" for trial in failed)
    counted = "; ".join(
        f"{reason} ({count})" for reason, count in reasons.most_common(MOST_REASONS)
    )
    if len(reasons) > MOST_REASONS:
        counted += f"; {len(reasons) - MOST_REASONS} other reasons"
    space, last = prior.space, failed[-SHOWN_TRIALS:]
    rows = [[str(t.number), t.note.reason, *space.cells(t.point)] for t in last]
    title = f"<h3>{len(failed)} failed</h3>"
    return title + paragraph(f"{counted}.") + table(["trial", "reason", *space.names], rows)


def as_csv(prior: Prior, trials: Sequence[Trial], names: Sequence[str]) -> str:
    """All trials with a value; text that a spreadsheet would take for a formula is quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ["trial", prior.info.output, "expected", "sd", *names]
    writer.writerow([_harmless(cell) for cell in header])
    for trial in trials:
        expected = trial.note.expected or ("", "")
        cells = [trial.number, trial.value, *expected]
        cells += [trial.point.get(name) for name in names]
        writer.writerow([_harmless(cell) for cell in cells])
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def to_draw(count: int, most: int, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Which of so many to draw: all, or the ``first`` of an order and others evenly spaced."""
    if count <= most:
        return np.arange(count)
    spaced = np.linspace(0, count - 1, most // 2).round().astype(np.intp)
    return np.union1d(first[: most // 2], spaced)


def _some(prior: Prior, trials: Sequence[Trial], most: int) -> NDArray[np.intp]:
    """Rows to draw, the best ones among them."""
    sign = 1.0 if prior.info.minimize else -1.0
    values = np.array([trial.value for trial in trials], dtype=np.float64)
    return to_draw(len(trials), most, np.argsort(sign * values, kind="stable"))


def _varying(prior: Prior) -> list[Parameter]:
    return [prior.space[name] for name in prior.space.free]


def _axis(parameter: Parameter) -> Axis:
    if isinstance(parameter, Categorical | Ordinal):
        return Axis.of(parameter.name, [str(value) for value in parameter.values])
    assert isinstance(parameter, Float)  # the others do not vary
    return Axis(parameter.name, float(parameter.low), float(parameter.high), parameter.log)


def _height(parameter: Parameter, axis: Axis, trial: Trial) -> float | None:
    """Where a trial is on an axis; None where it does not have the parameter."""
    if parameter.name not in trial.point:
        return None
    return axis.fraction(_place(parameter, axis, trial.point[parameter.name]))


def _place(parameter: Parameter, axis: Axis, value: Any) -> float:
    if not axis.categories:
        return float(value)
    return float(axis.categories.index(str(value))) if str(value) in axis.categories else 0.0


def _up(fraction: float) -> float:
    return HEIGHT - BOTTOM - fraction * (HEIGHT - BOTTOM - TOP)


def _scale(axis: Axis, x: float, row: int) -> str:
    """The ends or categories of an axis, and its name below, in one of two rows."""
    ticks = axis.names(9, HEIGHT - BOTTOM - TOP)
    if not axis.categories:
        ticks = [(v, number(v)) for v in (axis.low, axis.high)]
    texts = "".join(
        f'<text class="over" x="{x - 5:.0f}" y="{_up(axis.fraction(at)) + 4:.1f}" '
        f'text-anchor="end">{escape(text)}</text>'
        for at, text in ticks
    )
    return (
        f'{texts}<text class="label" x="{x:.0f}" y="{HEIGHT - 26 + 18 * row}" text-anchor="middle">'
        f"{escape(clip(axis.label, 14))}</text>"
    )


# Learning curves: which were ended early, where, why, and what that saved


def curves_part(record: Record, output: str) -> str:
    """Nothing where no run has a curve."""
    drawn = [t for t in record if t.note.curve and t.state in ("complete", "stopped")][-MOST:]
    if not drawn:
        return ""
    return figures(_picture(record, drawn, output)) + _stopped(record)


def _picture(record: Record, drawn: Sequence[Trial], output: str) -> str:
    values = [v for t in drawn for v in t.note.curve.values() if isfinite(v)]
    last = max(max(t.note.curve) for t in drawn)
    chart = SvgChart(Axis("steps", 1, max(last, 2)), Axis.covering(output, np.array(values)))
    for i, trial in enumerate(t for t in drawn if t.state == "complete"):
        _draw(chart, trial, OBSERVED, "" if i else "made to its end")
    stopped = [t for t in drawn if t.state == "stopped"]
    for i, trial in enumerate(stopped):
        _draw(chart, trial, ALARM, "" if i else "ended early")
    ends = [max(t.note.curve) for t in stopped]
    tips = [f"run {t.number}: {t.note.reason}" for t in stopped]
    chart.dots(ends, [t.note.curve[max(t.note.curve)] for t in stopped], ALARM, tips=tips)
    made = sum(max(curve) for curve in record.curves)
    share = record.saved / max(made + record.saved, 1)
    caption = (
        f"Values by step. {len(record.stopped)} runs were ended early, which saved {record.saved} "
        f"steps ({share:.0%} of all). The dots say what was expected of them at best, and the best "
        "value at that time."
    )
    return figure(chart, "Learning curves", caption)


def _draw(chart: SvgChart, trial: Trial, style: Style, label: str) -> None:
    steps = sorted(trial.note.curve)
    chart.line(steps, [trial.note.curve[s] for s in steps], style, label=label)


def _stopped(record: Record) -> str:
    """Which runs were ended early, where, and why."""
    if not record.stopped:
        return paragraph("No run was ended early.")
    rows = [
        (str(t.number), str(max(t.note.curve, default=0)), t.note.reason) for t in record.stopped
    ]
    return table(("stopped early", "after step", "because"), rows)
