"""One run, replayed value by value, and the page's parts on it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel import __version__
from metakel._arrays import Array
from metakel.charts import ALARM, LEARNED, OBSERVED, REFERENCE, Axis, SvgChart, number, short
from metakel.confidence import Alarm, AlarmEvent
from metakel.errors import InputError
from metakel.optimize import Certificate, Expected, Optimizer, Reasons, Record, Trial
from metakel.optimize.outcomes import BLOCK, MOST
from metakel.priors import Prior
from metakel.priors.summary import promise, useful
from metakel.report.html import cards, facts, figure, figures, paragraph, section, table
from metakel.report.trials import (
    curves_part,
    failure_table,
    parallel,
    slices,
    to_draw,
    trial_table,
    trial_tip,
)
from metakel.tuner import Store
from metakel.tuner.source import Candidates, RunOptions, Source, as_source

CROWDED = 200  # more dots than this are small
DOTS = 1000  # of at most so many values the configuration is shown
STEPS = 100  # after at most so many of its values a run is looked at


@dataclass(frozen=True, eq=False)
class RunReplay:
    """What was known after every value, or of many values after some.

    Parameters
    ----------
    record : Record
        All trials, failed, pending and stopped ones as well.
    best : (t,) array
        Best value so far.
    steps : (k,) array of int
        The numbers of values after which the run was looked at.
    regret : (k,) array
        The certificate at these times; inf where nothing was promised.
    trust : (k,) array
        Weight of the history against a cold start.
    alarm : AlarmEvent or None
    certificate : Certificate
        At the end.
    typical : Expected or None
        What a configuration drawn at random gives, by the model at the end; see `Reasons`.
    next : Reasons or None
        What to try next, and why; None where nothing is left to try.
    about : dict
        What run this is: task, command, and when it began and ended, as far as it is known.
    rules : (str, rows)
        How the run kept what its source promises, as text and as a table; see `Source.account`.
    """

    record: Record
    best: Array
    steps: NDArray[np.intp]
    regret: Array
    trust: Array
    alarm: AlarmEvent | None
    certificate: Certificate
    typical: Expected | None
    next: Reasons | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, list[tuple[str, ...]]] = ("", [])

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Those with a value."""
        return self.record.observed


def replay_run(prior: Prior | Source, whole: Record, options: RunOptions) -> RunReplay:
    """Go through a run again, with the optimizer that decided in it."""
    source = as_source(prior)
    optimizer = source.optimizer(options)
    values = np.array([trial.value for trial in whole.observed], dtype=np.float64)
    best = (np.minimum if source.minimize else np.maximum).accumulate(values)
    # Calls with a value; a record is looked at after so many of them.
    calls = [i + 1 for i, (n,) in enumerate(whole.steps) if whole.trials[n].value is not None]
    steps, rows = _looked_at(len(calls)), []
    start = optimizer.domain.start_points(np.random.default_rng(0)).X
    before = optimizer.model
    for t in steps:
        optimizer.record = whole.until(calls[t - 1])
        rows.append((optimizer.certificate().regret, optimizer.trust))
    optimizer.record = whole.until(len(whole.steps))
    regret, trust = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    upcoming = _next(optimizer)
    some = upcoming
    if some is None and len(whole):
        some = optimizer.explain(whole[0].point)
    return RunReplay(
        record=whole,
        best=best,
        steps=steps,
        regret=regret,
        trust=trust,
        alarm=optimizer.alarm,
        certificate=optimizer.certificate(),
        typical=None if some is None else some.typical,
        next=upcoming,
        about=_about(whole, options),
        rules=source.account(whole.observed, (before, optimizer.model), start, options.delta),
    )


def _next(optimizer: Optimizer) -> Reasons | None:
    try:
        return optimizer.explain(optimizer.peek())
    except (InputError, Alarm):  # nothing may be asked for
        return None


def _about(whole: Record, options: RunOptions) -> dict[str, str]:
    times = sorted(trial.note.since for trial in whole if trial.note.since)
    found = {
        "task": options.task.name,
        "command": shlex.join(options.task.command),
        "first suggestion": _minute(times[0]) if times else "",
        "last suggestion": _minute(times[-1]) if times else "",
    }
    return {name: text for name, text in found.items() if text}


def _minute(stamp: str) -> str:
    """A time of a journal, as people read it."""
    return stamp[:16].replace("T", " ")


def _looked_at(t: int) -> NDArray[np.intp]:
    """Numbers of values: all up to `STEPS`; of more, closer together at the beginning.

    Those of a long record are where a model selects its values anew, which is fast.
    """
    if t <= STEPS:
        return np.arange(1, t + 1)
    steps = np.geomspace(1, t, STEPS).round().astype(np.intp)
    return np.append(np.unique(np.where(steps > MOST, steps // BLOCK * BLOCK, steps)[:-1]), t)


def replay_journal(prior: Prior | Source, path: str | Path, candidates: Any = None) -> RunReplay:
    """Go through a journal; it must have been begun with this prior.

    The candidates of a run are not in its journal: without them, nothing is said of what comes
    next, and there is no certificate.
    """
    source, record = as_source(prior), Store.open(path)
    head = record.header
    listed = None if candidates is None else Candidates.of(candidates, source.space)
    options = RunOptions.of_journal(head, listed)
    lacking = listed is None and head.get("candidates") is not None
    known = {**head, "candidates": None} if lacking else head
    options.refuse_another(source, known, str(path))
    found = replay_run(source, record.run.record, options)
    if not lacking:
        return found
    reason = "the candidates of the run are not in its journal; --candidates names their file"
    return replace(
        found,
        next=None,
        regret=np.full_like(found.regret, inf),
        certificate=Certificate(inf, delta=options.delta, reason=reason),
    )


# On the page


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
        + configuration_card(best.point)
        + paragraph(" ".join(_worth(prior, run, value)))
        + paragraph(promise(prior, run.certificate))
    )


def _worth(prior: Prior, run: RunReplay, value: float) -> list[str]:
    """Against what a typical configuration gives, and against the best of past tasks."""
    sign, said = -1.0 if prior.info.minimize else 1.0, []
    if run.typical is not None:
        gain = sign * (value - run.typical.value)
        side = "better" if gain >= 0 else "worse"
        typical = f"A typical configuration is expected to give {run.typical} here"
        said.append(f"{typical}, so that it is {side} by {number(abs(gain))}.")
    if prior.best_runs is not None:
        tops: dict[str, float] = {}
        for task, top in zip(prior.best_runs.tasks, prior.best_runs.values.tolist(), strict=True):
            tops[task] = max(tops.get(task, -np.inf), sign * top)
        below = sum(top < sign * value for top in tops.values())
        behind = f"The best runs of {below} of {len(tops)} past tasks are behind it"
        if not below:
            behind = f"All {len(tops)} past tasks had a run that is as good or better"
        said.append(f"{behind}; tasks may differ in what can be reached.")
    return said


def next_section(prior: Prior, run: RunReplay | None) -> str:
    """What to try next, and why."""
    if run is None:
        optimizer = prior.optimizer()
        why: Reasons | None = optimizer.explain(optimizer.peek())
    else:
        why = run.next
    if why is None:
        return ""
    runs = "".join(f"<li>{escape(str(neighbor))}</li>" for neighbor in why.neighbors)
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
    return cards([(short(v), name, "") for name, v in configuration.items()], "configuration")


def about(prior: Prior, run: RunReplay | None, sources: Mapping[str, str]) -> str:
    """What run this is, and what the page was made from."""
    info = prior.info
    verb = "minimise" if info.minimize else "maximise"
    entries = {
        "goal": f"{verb} {info.output}",
        **({} if run is None else dict(run.about)),
        "past": info.origin,
        **{name: text for name, text in sources.items() if text},
        "made by": f"metakel {__version__}",
    }
    return facts(entries)


def run_section(prior: Prior, run: RunReplay) -> str:
    """How the run went."""
    counts = run.record.counts
    failures = failure_table(prior, run.record.failed)
    if not run.trials:
        return section("The run", paragraph(f"{counts}: nothing to show yet."), failures)
    pictures = [_values(prior, run), *_expectations(prior, run), *_certificate(prior, run)]
    return section(
        "The run",
        paragraph(f"{counts}."),
        _alarm(run),
        _rules(run),
        figures(*pictures, _trust(run)),
        curves_part(run.record, prior.info.output),
        figures(*parallel(prior, run.trials), *slices(prior, run.trials)),
        trial_table(prior, run.trials),
        failures,
    )


def _rules(run: RunReplay) -> str:
    """What the source promised, and how it was kept; nothing where it promised nothing."""
    text, rows = run.rules
    return paragraph(text) + table(rows[0], rows[1:]) if rows else ""


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
    improved = _changes(run.best)
    shown = to_draw(len(values), DOTS, improved[::-1])
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


def _changes(best: Array) -> NDArray[np.intp]:
    """Rows at which the best value changes, the first and the last one included."""
    changed = np.flatnonzero(np.diff(best)) + 1
    return np.unique(np.concatenate([[0], changed, [len(best) - 1]])).astype(np.intp)


def _expectations(prior: Prior, run: RunReplay) -> list[str]:
    """What was expected of every suggestion, against what was measured."""
    noted = [trial for trial in run.trials if trial.note.expected is not None]
    if not noted:
        return []
    ends = prior.output_range
    expected = [Expected.within(ends, None, *(t.note.expected or (0.0, 0.0))) for t in noted]
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
    shown = np.where(useful(prior, run.certificate, run.regret), run.regret, np.inf)
    if not np.isfinite(shown).any():
        return []
    sure = f"{1 - run.certificate.delta:.0%}"
    top = Axis.covering("", shown).high
    chart = _followed(run, Axis("can be better by", 0, top), shown, number)
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
