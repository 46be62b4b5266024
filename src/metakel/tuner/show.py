"""Trials as a table, and a run as a picture or a box in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metakel import _html
from metakel.charts import ALARM, LEARNED, OBSERVED, Axis, Panel, new_axes, number, tidy
from metakel.tuner.trials import JournalTrial, Trials

if TYPE_CHECKING:
    from metakel.tuner.tuner import Tuner

SHOWN = 10  # trials in a box; the last ones
FACTS = ("number", "state", "value", "expected", "sd")


def trial_columns(trials: Sequence[JournalTrial]) -> dict[str, list[Any]]:
    """One column per fact and per parameter; a parameter with the name of a fact is "its_name_"."""
    columns: dict[str, list[Any]] = {
        "number": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "value": [trial.value for trial in trials],
        "expected": [None if t.expected is None else t.expected[0] for t in trials],
        "sd": [None if t.expected is None else t.expected[1] for t in trials],
    }
    names = dict.fromkeys(name for trial in trials for name in trial.configuration)
    for name in names:
        cells = [trial.configuration.get(name) for trial in trials]
        columns[f"{name}_" if name in FACTS else name] = cells
    return columns


def trials_table(trials: Trials) -> str:
    """The last trials as HTML."""
    last = trials.all[-SHOWN:]
    if not last:
        return _html.paragraph("no trials yet")
    columns = trial_columns(last)
    cells = [[_cell(value) for value in column] for column in columns.values()]
    more = f"the last {len(last)} of {len(trials)} trials" if len(trials) > len(last) else ""
    return _html.table(list(columns), list(zip(*cells, strict=True)), more)


def tuner_card(tuner: Tuner) -> str:
    """How a run stands, as HTML."""
    trials = tuner.trials
    lines = []
    if trials.complete:
        best = tuner.best
        where = ", ".join(f"{name} = {_cell(value)}" for name, value in best.x.items())
        lines.append(f"best {number(best.value)} at {where}")
    lines += [str(tuner.certificate), f"trust in the history: {tuner.trust:.0%}"]
    if trials.alarm is not None:
        lines.append(f"ALARM after {trials.alarm.time} values: {trials.alarm.reason}")
    return _html.card(
        f"Tuning {tuner.output}: {trials.counts}", _html.items(lines), trials_table(trials)
    )


def draw_run(tuner: Tuner, ax: Any = None) -> Any:
    """Values in the order in which they came, and the best so far; on matplotlib axes."""
    done, alarm = tuner.trials.complete, tuner.trials.alarm
    ax = ax or new_axes()[0]
    panel = Panel(ax, Axis("values observed", 0.5, max(len(done), 2) + 0.5))
    values = np.array([trial.value for trial in done], dtype=np.float64)
    steps = np.arange(1, len(values) + 1)
    if len(values):
        best = (np.maximum if tuner.optimizer.maximize else np.minimum).accumulate(values)
        panel.steps(steps, best, LEARNED, label="best so far")
        panel.dots(steps, values, OBSERVED, label="each value")
    if alarm is not None:
        panel.rule(alarm.time, ALARM, "alarm")
    ax.set_ylabel(tuner.output)
    tidy(ax)
    if len(values):
        ax.legend(frameon=False, fontsize="small")
    return ax


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else str(value)
