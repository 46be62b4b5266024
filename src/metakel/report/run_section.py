"""The page's part on a run: headline, values, expectations, certificate, trust, and all trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel import __version__
from metakel._arrays import Array
from metakel.charts import ALARM, LEARNED, OBSERVED, REFERENCE, Axis, SvgChart, number
from metakel.optimize import Certificate, Expected, Reasons
from metakel.priors import Prior
from metakel.report.configurations import parallel, slices, trial_table, trial_tip
from metakel.report.html import cards, facts, figure, figures, paragraph, section
from metakel.report.run import RunReplay, limits_part


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
        + paragraph(promise(prior, run.certificate))
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


CROWDED = 200  # more dots than this are small
DOTS = 1000  # of at most so many values the configuration is shown
USEFUL = 2.0  # a certificate above so many scales of a task says nothing


def run_section(prior: Prior, run: RunReplay) -> str:
    """How the run went."""
    counts = f"{len(run.trials)} values, {run.failed} failed, {run.pending} pending"
    if not run.trials:
        return section("The run", paragraph(f"{counts}: nothing to show yet."))
    pictures = [_values(prior, run), *_expectations(prior, run), *_certificate(prior, run)]
    return section(
        "The run",
        paragraph(f"{counts}."),
        _alarm(run),
        limits_part(prior.info.output, run.trials, run.safe, run.delta),
        figures(*pictures, _trust(run)),
        figures(*parallel(prior, run.trials), *slices(prior, run.trials)),
        trial_table(prior, run.trials),
    )


def promise(prior: Prior, found: Certificate) -> str:
    """The certificate in one sentence."""
    if found.reason:
        return f"Nothing is promised about the best configuration: {found.reason}."
    if found.regret > USEFUL * prior.model.scale:
        return "Nothing useful can be promised yet of how much better another one could be."
    text = str(found)
    return f"{text[:1].upper()}{text[1:]}."


def _alarm(run: RunReplay) -> str:
    if run.alarm is not None:
        text = f"Alarm after {run.alarm.time} values: {run.alarm.reason}. "
        return paragraph(
            text + "The certificate ends there; decisions go on by the evidence of the values.",
            "bad",
        )
    return paragraph("No value contradicts the history.", "good")


def _chart(run: RunReplay, y: Axis) -> SvgChart:
    chart = SvgChart(Axis("values observed", 1, max(len(run.trials), 2)), y)
    if run.alarm is not None:
        chart.rule(float(run.alarm.time), ALARM, "alarm")
    return chart


def _values(prior: Prior, run: RunReplay) -> str:
    values = np.array([trial.value for trial in run.trials], dtype=np.float64)
    shown, improved = _shown(run), _changes(run.best)
    tips = [trial_tip(run.trials[i]) for i in shown]
    chart = _chart(run, Axis.covering(prior.info.output, values))
    chart.steps(improved + 1, run.best[improved], LEARNED, label="best so far")
    size = 8 if len(shown) <= CROWDED else 4
    chart.dots(shown + 1, values[shown], OBSERVED, label="each value", tips=tips, size=size)
    left_out = len(values) - len(shown)
    caption = "Every value in the order in which it came."
    if left_out:
        caption = f"{left_out} of {len(values)} values are not drawn."
    return figure(chart, "Values", caption, "values and the best so far")


def _shown(run: RunReplay) -> NDArray[np.intp]:
    """Rows of values to draw: all, or those that improved and others evenly spaced."""
    t = len(run.trials)
    if t <= DOTS:
        return np.arange(t)
    spaced = np.linspace(0, t - 1, DOTS // 2).round().astype(np.intp)
    return np.union1d(spaced, _changes(run.best)[-DOTS // 2 :])


def _changes(best: Array) -> NDArray[np.intp]:
    """Rows at which the best value changes, the first and the last one included."""
    changed = np.flatnonzero(np.diff(best)) + 1
    return np.unique(np.concatenate([[0], changed, [len(best) - 1]])).astype(np.intp)


def _expectations(prior: Prior, run: RunReplay) -> list[str]:
    """What was expected of every suggestion, against what was measured."""
    noted = [trial for trial in run.trials if trial.expected is not None]
    if not noted:
        return []
    limits = prior.output_limits
    expected = [Expected.within(limits, None, *(t.expected or (0.0, 0.0))) for t in noted]
    measured = np.array([trial.value for trial in noted], dtype=np.float64)
    inside = sum(e.low <= y <= e.high for e, y in zip(expected, measured, strict=True))
    few = np.linspace(0, len(noted) - 1, min(len(noted), DOTS // 2)).round().astype(np.intp)
    means = np.array([e.value for e in expected])
    axis = Axis.covering("measured", measured, means)
    chart = SvgChart(Axis("expected", axis.low, axis.high), axis)
    chart.line([axis.low, axis.high], [axis.low, axis.high], REFERENCE, label="as expected")
    tips = [f"{trial_tip(noted[i])}\nexpected {expected[i]}" for i in few]
    size = 8 if len(few) <= CROWDED else 4
    chart.dots(means[few], measured[few], LEARNED, label="each suggestion", tips=tips, size=size)
    better = "below" if prior.info.minimize else "above"
    caption = (
        f"{inside} of {len(noted)} values are within one standard deviation of what was expected "
        f"when they were suggested; about two thirds are usual. Dots {better} the line are better "
        "than expected."
    )
    return [figure(chart, "Expected against measured", caption)]


def _certificate(prior: Prior, run: RunReplay) -> list[str]:
    useful = np.where(run.regret <= USEFUL * prior.model.scale, run.regret, np.inf)
    if not np.isfinite(useful).any():
        return []
    sure = f"{1 - run.certificate.delta:.0%}"
    top = Axis.covering("", useful).high
    chart = _followed(run, Axis("can be better by", 0, top), useful, number)
    caption = (
        f"Nothing is better than the best value by more than this, {sure} sure, if the task is "
        "like the past ones."
    )
    return [figure(chart, "Certificate", caption, "certificate over time")]


def _trust(run: RunReplay) -> str:
    chart = _followed(run, Axis("trust in the history", 0, 1), run.trust, "{:.0%}".format)
    return figure(
        chart, "Trust", "Weight of the history against a cold start, moved by every value."
    )


def _followed(run: RunReplay, y: Axis, values: Array, text: Callable[[float], str]) -> SvgChart:
    """A number after every value that was looked at."""
    tips = [f"after {t}: {text(float(v))}" for t, v in zip(run.steps, values, strict=True)]
    chart = _chart(run, y)
    return chart.line(run.steps, values, LEARNED).dots(
        run.steps, values, LEARNED, tips=tips, size=6
    )
