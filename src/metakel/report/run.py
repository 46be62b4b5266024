"""One run, replayed value by value, and its section of the page."""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from html import escape
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.charts import (
    ALARM,
    LEARNED,
    OBSERVED,
    REFERENCE,
    Axis,
    SvgChart,
    clip,
    number,
    short,
)
from metakel.confidence import Alarm, AlarmEvent
from metakel.errors import InputError
from metakel.optimize import Certificate, Expected, Optimizer, Reasons, Record, Trial
from metakel.optimize.outcomes import BLOCK, MOST
from metakel.priors import Prior
from metakel.priors.summary import useful
from metakel.report.html import downloadable, figure, figures, paragraph, section, table
from metakel.space import Categorical, Float, Ordinal, Parameter
from metakel.tuner import Store
from metakel.tuner.source import Candidates, RunOptions, Source, as_source

CROWDED = 200  # more dots than this are small
STEPS = 100  # after at most so many of its values a run is looked at
SHOWN_TRIALS = 10
SHOWN_PARAMETERS = 8
MOST_REASONS = 8
LINES = 150  # of parallel coordinates
DOTS = 1000  # of at most so many values the configuration is shown
DOTS_OF_SLICE = 300
WIDE, NARROW, HEIGHT, TOP, BOTTOM, LEFT, RIGHT = 860, 420, 284, 34, 54, 92, 60
LETTER = 9  # the width of one, at most, in names of axes
FEW = 4  # axes that fit into the width of any other chart, on a telephone too
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MOST_CURVES = 60  # curves that are drawn, the last ones


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
    values, improved = _measured(run.trials), _changes(run.best)
    shown = to_draw(len(values), DOTS, improved[::-1])
    tips = [trial_tip(run.trials[i]) for i in shown]
    chart = _chart(run, Axis.covering(prior.info.output, values))
    chart.steps(improved + 1, run.best[improved], LEARNED, label="best so far")
    chart.dots(shown + 1, values[shown], OBSERVED, label="each value", tips=tips, **_size(shown))
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
    ends, measured = prior.output_range, _measured(noted)
    expected = [Expected.within(ends, None, *(t.note.expected or (0.0, 0.0))) for t in noted]
    inside = sum(e.low <= y <= e.high for e, y in zip(expected, measured, strict=True))
    few = np.linspace(0, len(noted) - 1, min(len(noted), DOTS // 2)).round().astype(np.intp)
    means = np.array([e.value for e in expected])
    axis = Axis.covering("measured", measured, means)
    chart = SvgChart(Axis("expected", axis.low, axis.high), axis)
    chart.line([axis.low, axis.high], [axis.low, axis.high], REFERENCE, label="as expected")
    tips = [f"{trial_tip(noted[i])}\nexpected {expected[i]}" for i in few]
    dots = means[few], measured[few]
    chart.dots(*dots, LEARNED, label="each suggestion", tips=tips, **_size(few))
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


# Trials: parallel coordinates, a slice per parameter, tables


def trial_tip(trial: Trial) -> str:
    """What to say about a trial."""
    settings = (f"{name} = {short(v)}" for name, v in trial.point.items())
    return "\n".join((_in_short(trial), *settings))


def _in_short(trial: Trial) -> str:
    return f"{trial.number}: {number(float(trial.value or 0.0))}"


def _measured(trials: Sequence[Trial]) -> Array:
    return np.array([trial.value for trial in trials], dtype=np.float64)


def _best_first(prior: Prior, trials: Sequence[Trial]) -> NDArray[np.intp]:
    sign = 1.0 if prior.info.minimize else -1.0
    return np.argsort(sign * _measured(trials), kind="stable")


def to_draw(count: int, most: int, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Which of so many to draw: all, or the ``first`` of an order and others evenly spaced."""
    if count <= most:
        return np.arange(count)
    spaced = np.linspace(0, count - 1, most // 2).round().astype(np.intp)
    return np.union1d(first[: most // 2], spaced)


def _some(prior: Prior, trials: Sequence[Trial], most: int) -> list[Trial]:
    """Those to draw, the best ones among them."""
    return [trials[i] for i in to_draw(len(trials), most, _best_first(prior, trials))]


def _size(dots: Sized) -> dict[str, float]:
    return {"size": 8 if len(dots) <= CROWDED else 4}


def slices(prior: Prior, trials: Sequence[Trial]) -> list[str]:
    """Values by each parameter, of the trials that have it."""
    pictures = []
    for parameter in _varying(prior):
        having = [trial for trial in trials if parameter.name in trial.point]
        if not having:
            continue
        chosen, axis = _some(prior, having, DOTS_OF_SLICE), _axis(parameter)
        values, tips = _measured(chosen), [*map(_in_short, chosen)]
        chart = SvgChart(axis, Axis.covering(prior.info.output, values))
        places = [_place(parameter, axis, trial) for trial in chosen]
        chart.dots(places, values, OBSERVED, tips=tips, size=7)
        pictures.append(figure(chart, f"{prior.info.output} by {parameter.name}"))
    return pictures


def parallel(prior: Prior, trials: Sequence[Trial]) -> list[str]:
    """A line per trial through all of its parameters to its value; better ones are stronger."""
    parameters = _varying(prior)
    if len(parameters) < 2:
        return []
    chosen = _some(prior, trials, LINES)
    values, order = _measured(chosen), _best_first(prior, chosen)
    axes = [*map(_axis, parameters), Axis.covering(prior.info.output, values)]
    few = len(axes) <= FEW
    width = NARROW if few else WIDE
    across = np.linspace(LEFT, width - RIGHT, len(axes))
    ends = f'y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
    marks = [f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" {ends}/>' for x in across]
    for rank, i in reversed([*enumerate(order)]):
        trial, strength = chosen[i], 1 - rank / max(len(order) - 1, 1)
        places = [
            (x, axis, _place(p, axis, trial))
            for x, p, axis in zip(across, parameters, axes, strict=False)
            if p.name in trial.point
        ]
        places.append((across[-1], axes[-1], float(values[i])))
        points = " ".join(f"{x:.0f},{_up(axis.fraction(at)):.1f}" for x, axis, at in places)
        look = f'class="line {LEARNED.name}" stroke-opacity="{0.12 + 0.8 * strength**2:.2f}"'
        tip = escape(trial_tip(trial), quote=True)
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
    space = prior.space
    rows = [
        [
            *(str(t.number), number(float(t.value or 0.0))),
            "" if t.note.expected is None else number(t.note.expected[0]),
            *space.cells(t.point),
        ]
        for t in (trials[i] for i in _best_first(prior, trials)[:SHOWN_TRIALS])
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


def _varying(prior: Prior) -> list[Parameter]:
    return [prior.space[name] for name in prior.space.free[:SHOWN_PARAMETERS]]


def _axis(parameter: Parameter) -> Axis:
    if isinstance(parameter, Categorical | Ordinal):
        return Axis.of(parameter.name, [str(value) for value in parameter.values])
    assert isinstance(parameter, Float)  # the others do not vary
    return Axis(parameter.name, float(parameter.low), float(parameter.high), parameter.log)


def _place(parameter: Parameter, axis: Axis, trial: Trial) -> float:
    value = trial.point[parameter.name]
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
    drawn = [t for t in record if t.note.curve and t.state in ("complete", "stopped")]
    drawn = drawn[-MOST_CURVES:]
    if not drawn:
        return ""
    rows = [
        (str(t.number), str(max(t.note.curve, default=0)), t.note.reason) for t in record.stopped
    ]
    listed = table(("stopped early", "after step", "because"), rows)
    picture = figures(_curves(record, drawn, output))
    return picture + (listed if rows else paragraph("No run was ended early."))


def _curves(record: Record, drawn: Sequence[Trial], output: str) -> str:
    values = [v for t in drawn for v in t.note.curve.values() if isfinite(v)]
    last = max(max(t.note.curve) for t in drawn)
    chart = SvgChart(Axis("steps", 1, max(last, 2)), Axis.covering(output, np.array(values)))
    looks = ("complete", OBSERVED, "made to its end"), ("stopped", ALARM, "ended early")
    for state, style, label in looks:
        for i, trial in enumerate(t for t in drawn if t.state == state):
            steps = sorted(trial.note.curve)
            values = [trial.note.curve[step] for step in steps]
            chart.line(steps, values, style, label="" if i else label)
    stopped = [(t, max(t.note.curve)) for t in drawn if t.state == "stopped"]
    tips = [f"run {t.number}: {t.note.reason}" for t, _ in stopped]
    ends = [t.note.curve[end] for t, end in stopped]
    chart.dots([end for _, end in stopped], ends, ALARM, tips=tips)
    made = sum(max(curve) for curve in record.curves)
    share = record.saved / max(made + record.saved, 1)
    caption = (
        f"Values by step. {len(record.stopped)} runs were ended early, which saved {record.saved} "
        f"steps ({share:.0%} of all). The dots say what was expected of them at best, and the best "
        "value at that time."
    )
    return figure(chart, "Learning curves", caption)
