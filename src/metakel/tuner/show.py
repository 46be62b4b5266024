"""A run as a picture, or as a box in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metakel import _html
from metakel.charts import ALARM, LEARNED, OBSERVED, Axis, Panel, new_axes, number, tidy

if TYPE_CHECKING:
    from metakel.tuner.tuner import Tuner


def tuner_card(tuner: Tuner) -> str:
    """How a run stands, as HTML."""
    record, alarm = tuner.trials, tuner.alarm
    lines = []
    if record.observed:
        best = tuner.best
        lines.append(f"best {number(best.value)} at {tuner.space.show(best.x)}")
    lines += [str(tuner.certificate), f"trust in the history: {tuner.trust:.0%}"]
    if alarm is not None:
        lines.append(f"ALARM after {alarm.time} values: {alarm.reason}")
    return _html.card(
        f"Tuning {tuner.output}: {record.counts}", _html.items(lines), record._repr_html_()
    )


def draw_run(tuner: Tuner, ax: Any = None) -> Any:
    """Values in the order in which they came, and the best so far; on matplotlib axes."""
    done, alarm = tuner.trials.observed, tuner.alarm
    ax = ax or new_axes()[0]
    panel = Panel(ax, Axis("values observed", 0.5, max(len(done), 2) + 0.5))
    values = np.array([trial.value for trial in done], dtype=np.float64)
    steps = np.arange(1, len(values) + 1)
    if len(values):
        best = (np.minimum if tuner.optimizer.minimize else np.maximum).accumulate(values)
        panel.steps(steps, best, LEARNED, label="best so far")
        panel.dots(steps, values, OBSERVED, label="each value")
    if alarm is not None:
        panel.rule(alarm.time, ALARM, "alarm")
    ax.set_ylabel(tuner.output)
    tidy(ax)
    if len(values):
        ax.legend(frameon=False, fontsize="small")
    return ax
