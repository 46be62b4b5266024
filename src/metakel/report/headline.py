"""The top of the page, for the person who decides: what was found, what it is worth, what next."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from metakel import __version__
from metakel.charts import number
from metakel.optimize import Reasons
from metakel.priors import Prior
from metakel.report.html import cards, facts, paragraph, section
from metakel.report.run import RunReplay
from metakel.report.run_section import promise


def headline(prior: Prior, run: RunReplay | None) -> str:
    """The best configuration and what it is worth; without a run, where to begin."""
    if run is None or not run.trials:
        return ""
    sign = -1.0 if prior.info.minimize else 1.0
    values = np.array([trial.value for trial in run.trials], dtype=np.float64)
    best = run.trials[int(np.argmax(sign * values))]
    value, runs = float(best.value or 0.0), len(run.trials)
    counted = f"{runs} run{'s' if runs > 1 else ''}"
    return (
        f'<p class="headline">The best {escape(prior.info.output)} after {counted} is '
        f"<b>{escape(number(value))}</b>, in trial {best.number}.</p>"
        + configuration_card(best.configuration)
        + paragraph(" ".join(_worth(prior, run, value)))
        + paragraph(promise(prior, run))
    )


def _worth(prior: Prior, run: RunReplay, value: float) -> list[str]:
    """Against what a typical configuration gives, and against the best of past tasks."""
    sign = -1.0 if prior.info.minimize else 1.0
    gain = sign * (value - run.typical)
    side = "better" if gain >= 0 else "worse"
    typical = f"A typical configuration is expected to give {number(run.typical)} here"
    said = [f"{typical}, so that it is {side} by {number(abs(gain))}."]
    if prior.best_runs is not None:
        tops: dict[str, float] = {}
        for task, top in zip(prior.best_runs.tasks, prior.best_runs.values.tolist(), strict=True):
            tops[task] = max(tops.get(task, -np.inf), sign * top)
        below = sum(top < sign * value for top in tops.values())
        said.append(
            f"The best runs of {below} of {len(tops)} past tasks are behind it; tasks may differ "
            "in what can be reached."
        )
    return said


def next_section(prior: Prior, run: RunReplay | None) -> str:
    """What to try next, and why."""
    if run is None:
        optimizer = prior.optimizer()
        why: Reasons | None = optimizer.explain(optimizer.suggest())
    else:
        why = run.next
    if why is None:
        return ""
    runs = "".join(f"<li>{escape(str(neighbour))}</li>" for neighbour in why.neighbours)
    return section(
        "Try this next, because" if run is not None and run.trials else "Try this first, because",
        configuration_card(why.expected.x),
        paragraph(why.sentence),
        paragraph(why.support) if why.support else "",
        f"<ul>{runs}</ul>" if runs else "",
        paragraph(why.alternative),
    )


def configuration_card(configuration: Mapping[str, Any]) -> str:
    """A configuration to read at a glance."""
    entries = [
        (f"{v:.5g}" if isinstance(v, float) else str(v), name, "")
        for name, v in configuration.items()
    ]
    return cards(entries, "configuration")


def about(prior: Prior, run: RunReplay | None, sources: Mapping[str, str]) -> str:
    """What run this is, and what the page was made from."""
    info = prior.info
    verb = "minimise" if info.minimize else "maximise"
    entries = {
        "goal": f"{verb} {info.output}",
        **({} if run is None else dict(run.about)),
        "past": f"{len(info.tasks)} tasks, {info.runs} runs",
        **{name: text for name, text in sources.items() if text},
        "made by": f"metakel {__version__}",
    }
    return facts(entries)
