"""A run as a picture, or as a box in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metakel.charts import card, items, number

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
    return card(f"Tuning {tuner.output}: {record.counts}", items(lines), record._repr_html_())
