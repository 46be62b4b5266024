"""Learning curves of a run: which were ended early, where, why, and what that saved."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from metakel.charts import ALARM, OBSERVED, Axis, Style, SvgChart
from metakel.optimize import Record, Trial
from metakel.report.html import figure, figures, paragraph, table

MOST = 60  # curves that are drawn, the last ones


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
