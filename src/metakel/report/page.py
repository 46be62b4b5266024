"""The page: what was learned, how far to trust it, and how a run went.

It takes no file, font or script from elsewhere, so that it works offline.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from metakel import __version__
from metakel._files import write_atomically
from metakel.charts import LEARNED, RANDOM, REFERENCE, Axis, SvgChart, number, short, style_sheet
from metakel.confidence import AlarmEvent
from metakel.errors import first_of
from metakel.optimize import Reasons
from metakel.priors import Prior, Replays
from metakel.priors.principal import NEEDED_LOG_SCORE
from metakel.priors.summary import EFFECT, Curve, draw_effect, effect_axis, promise
from metakel.report.html import (
    bar_widths,
    bars,
    cards,
    facts,
    figure,
    figures,
    paragraph,
    section,
    side_by_side,
    table,
)
from metakel.report.run import RunReplay, run_section
from metakel.space import Float

CELLS = 24
SHOWN_EFFECTS = 8
SHOWN_SHARES = 12
SMALLEST_SHARE = 0.005
FLAT = 1e-6  # a map of values that differ by less, of their size, would be empty
WITH_HISTORY = "with the history"
WORST_SHOWN = -3.0  # some cold starts are far off
FLOOR = 1e-3  # of a logarithmic axis
# Even if something slipped through, a browser would run and fetch nothing: only this very style and
# script are allowed, by their digests.
POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(
    prior: Prior,
    path: str | Path,
    *,
    run: RunReplay | None = None,
    title: str = "",
    sources: Mapping[str, str] | None = None,
) -> Path:
    """Write one self-contained HTML page.

    Parameters
    ----------
    prior : Prior
    path : path
    run : RunReplay, optional
        Of `replay_run`: adds how one run went.
    title : str
        By default what is tuned, and the name of the task.
    sources : dict, optional
        What else to say about where it comes from, such as names of files.
    """
    target = Path(path)
    page = render_report(prior, run=run, title=title, sources=sources)
    write_atomically(target, page)
    return target


@dataclass(frozen=True)
class EmbeddedReport:
    """The page in a frame of its own, so that it changes nothing of the notebook around it."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        look = "width:100%;border:1px solid rgba(128,128,128,.4);border-radius:6px"
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" style="{look}" '
            f'height="{int(self.height)}" title="metakel report" '
            f'srcdoc="{escape(self.page, quote=True)}"></iframe>'
        )


def embed_report(
    prior: Prior, *, run: RunReplay | None = None, title: str = "", height: int = 700
) -> EmbeddedReport:
    """The page for a notebook, which shows what this returns; ``height`` is in pixels."""
    page = render_report(prior, run=run, title=title)
    return EmbeddedReport(page, height)


def render_report(
    prior: Prior,
    *,
    run: RunReplay | None = None,
    title: str = "",
    sources: Mapping[str, str] | None = None,
) -> str:
    """The page as text; see `write_report`."""
    task = "" if run is None else run.about.get("task", "")
    heading = title or f"Tuning {prior.info.output}{f' of {task}' if task else ''}"
    body = "".join(
        [
            f"<h1>{escape(heading)}</h1>",
            _about(prior, run, sources or {}),
            *_top(prior, run),
            run_section(prior, run) if run is not None else "",
            model_section(prior),
            validation_section(prior),
            _notes(prior),
            "<footer>Made by metakel. This page needs no network.</footer>",
        ]
    )
    return _page(heading, body)


def _top(prior: Prior, run: RunReplay | None) -> list[str]:
    """What was found beside what to try next; the numbers stand where there is room."""
    found, after = _headline(prior, run), _next(prior, run)
    summary = _summary(prior, None if run is None else run.alarm)
    if found and after:
        return [side_by_side(found + summary, after)]
    return [side_by_side(found, after), summary]


def _summary(prior: Prior, alarm: AlarmEvent | None) -> str:
    info, held = prior.info, prior.heldout
    better = f"{held.better_than_cold} of {len(held.log_scores)}"
    entries = [
        (str(len(info.tasks)), "past tasks", ""),
        (str(info.runs), "runs of them", ""),
        ("used", "the history", "good") if prior.helps else ("not used", "the history", "bad"),
    ]
    if alarm is not None:
        entries.insert(0, ("ALARM", "see below", "bad"))
    if held.checked:
        entries.append((better, "left-out tasks predicted better than cold", ""))
    return cards(entries)


def _notes(prior: Prior) -> str:
    info = prior.info
    lines = list(info.notes)
    if info.constant:
        lines.append(f"constant values, not learned from: {', '.join(info.constant)}")
    if info.winsorized:
        lines.append(f"{info.winsorized} very bad values were replaced by less extreme ones")
    if not lines:
        return ""
    return section("What was noticed in the data", *(paragraph(line, "soft") for line in lines))


def _page(title: str, body: str) -> str:
    here = files("metakel.report")
    style = style_sheet() + bar_widths() + (here / "page.css").read_text(encoding="utf-8")
    script = (here / "page.js").read_text(encoding="utf-8")
    policy = POLICY.format(style=_digest(style), script=_digest(script))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f'<style>{style}</style></head><body>{body}<div id="tip" role="tooltip"></div>'
        f"<script>{script}</script></body></html>\n"
    )


def _digest(content: str) -> str:
    """As a policy names what may stand in the page."""
    found = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(found).decode()}"


# The best configuration, and the next one


def _headline(prior: Prior, run: RunReplay | None) -> str:
    """The best configuration and what it is worth; without a run, where to begin."""
    if run is None or not run.trials:
        return ""
    value, runs = float(run.best[-1]), len(run.trials)
    best = next(trial for trial in run.trials if trial.value == value)
    counted = f"{runs} run{'s' if runs > 1 else ''}"
    return (
        f'<p class="headline">The best {escape(prior.info.output)} after {counted} is '
        f"<b>{escape(number(value))}</b>, in trial {best.number}.</p>"
        + _card(best.point)
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


def _next(prior: Prior, run: RunReplay | None) -> str:
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
        _card(why.expected.x),
        paragraph(why.sentence),
        paragraph(why.support) if why.support else "",
        f"<ul>{runs}</ul>" if runs else "",
        paragraph(why.alternative),
    )


def _card(configuration: Mapping[str, Any]) -> str:
    """A configuration to read at a glance."""
    return cards([(short(v), name, "") for name, v in configuration.items()], "configuration")


def _about(prior: Prior, run: RunReplay | None, sources: Mapping[str, str]) -> str:
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


# What was learned, and how far to trust it


def model_section(prior: Prior) -> str:
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
    shown = explained.curves[:SHOWN_EFFECTS]
    ends = [end for c in shown for end in (c.common - c.spread, c.common + c.spread)]
    pictures = [_effect(curve, Axis.covering(EFFECT, *ends)) for curve in shown]
    heat = _map(prior, [name for name, _, _ in rows])
    return section(
        "What was learned",
        paragraph(
            "How much of the variation each parameter explains, alone or together with another: in "
            "what all tasks have in common, and in what sets them apart."
        ),
        bars(rows[:SHOWN_SHARES], names),
        figures(*([heat] if heat else []), *pictures),
        table(
            ["parameter", "range"],
            [
                *([p.name, p.describe()] for p in prior.space.parameters),
                *(["always", str(total)] for total in prior.space.sums),
            ],
            "text",
        ),
    )


def _effect(curve: Curve, size: Axis) -> str:
    chart = SvgChart(effect_axis(curve), size)
    draw_effect(chart, curve)
    description = f"average effect of {curve.name} with the spread between tasks"
    return figure(chart, f"Effect of {curve.name}", description=description)


def _map(prior: Prior, by_share: list[str]) -> str:
    """The mean over the two numbers that matter most, others as in what is tried first."""
    top = prior.optimizer().peek()
    ranked = [name for name in by_share if top.get(name) is not None]
    numbers = [name for name in ranked if isinstance(prior.space[name], Float)][:2]
    if len(numbers) < 2:
        return ""
    across, up = numbers
    middles = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
    xs, ys = (prior.space[name].decode(middles[:, None]) for name in numbers)
    rows = [{**top, across: x, up: y} for y in ys for x in xs]
    values = prior.mean(rows)
    strength = prior.scale.to_model(values)
    low, high = strength.min(), strength.max()
    if not high - low > FLAT * np.abs(strength).max():
        return ""
    worst, best = (float(values[i]) for i in (strength.argmin(), strength.argmax()))
    tips = [
        f"{across} {short(row[across])}, {up} {short(row[up])}\n{number(float(value))}"
        for row, value in zip(rows, values, strict=True)
    ]
    chart = SvgChart(_axis(prior, across), _axis(prior, up))
    chart.cells(((strength - low) / (high - low)).reshape(CELLS, CELLS), LEARNED, tips)
    others = [f"{n} = {short(v)}" for n, v in top.items() if n not in numbers]
    caption = f"From {number(worst)} (faint) to {number(best)} (strong, best)." + (
        f" The others as tried first: {', '.join(others)}." if others else ""
    )
    title = f"Typical {prior.info.output} by {across} and {up}"
    return figure(chart, title, caption, f"map of the typical {prior.info.output}")


def _axis(prior: Prior, name: str) -> Axis:
    parameter = prior.space[name]
    assert isinstance(parameter, Float)
    return Axis(name, parameter.low, parameter.high, parameter.log)


def validation_section(prior: Prior) -> str:
    """What tasks say that were left out."""
    parts = []
    if not prior.heldout.checked:
        parts.append(paragraph("There are too few tasks to leave any out: nothing is vouched for."))
    else:
        pictures = [_gains(prior)]
        if prior.replays is not None:
            pictures.append(_regret(prior.replays))
        parts += [_verdict(prior), figures(*pictures), _harm(prior)]
    if prior.outliers:
        names = first_of(prior.outliers)
        parts.append(
            paragraph(f"Predicted worse than white noise by the other tasks: {names}.", "soft")
        )
    return section("How far it can be trusted", *parts)


def _verdict(prior: Prior) -> str:
    held = prior.heldout
    better, count = held.better_than_cold, len(held.log_scores)
    if prior.helps:
        text = (
            f"The history helps: learned from the others, it predicts {better} of {count} "
            "left-out tasks better than a cold start."
        )
        return paragraph(text, "good")
    text = (
        "The history is not used: learned from the others, it predicts the typical left-out task "
        f"hardly better than guessing: its score is {held.log_score:.2f} and has to be "
        f"{NEEDED_LOG_SCORE} or more. Decisions are those of a cold start."
    )
    return paragraph(text, "bad")


def _gains(prior: Prior) -> str:
    """Every left-out task: cold start across, history up; above the diagonal it helped."""
    held = prior.heldout
    names = prior.heldout_names
    covering = Axis.covering("", held.log_scores, held.cold_log_scores)
    low, high = max(covering.low, WORST_SHOWN), max(covering.high, WORST_SHOWN + 1)
    chart = SvgChart(
        Axis("score of a cold start", low, high), Axis("score with the history", low, high)
    )
    tips = [
        f"{name}\nhistory {g:.2f}, cold {c:.2f}"
        for name, g, c in zip(names, held.log_scores, held.cold_log_scores, strict=True)
    ]
    chart.line([low, high], [low, high], REFERENCE)
    chart.dots(held.cold_log_scores, held.log_scores, LEARNED, tips=tips, size=8)
    caption = (
        "One dot per left-out task; above the line the history predicts better. A score of 0 is "
        "as good as guessing by level and spread alone, and 1 makes what was measured e = 2.7 "
        f"times as likely. Scores below {WORST_SHOWN:g} are drawn there."
    )
    return figure(chart, "Prediction of left-out tasks", caption)


def _regret(replays: Replays) -> str:
    """Replays of the optimizer on past tasks, each with a prior learned from others."""
    last = replays.evaluations
    steps = np.arange(1, last + 1)
    means = {
        name: values[:, :last].mean(axis=0)
        for name, values in (("random search", replays.random), (WITH_HISTORY, replays.regret))
    }
    highest = max(float(max(mean.max() for mean in means.values())) * 1.2, 10 * FLOOR)
    chart = SvgChart(
        Axis("evaluations", 1, max(last, 2)), Axis("distance to the best", FLOOR, highest, log=True)
    )
    for (label, mean), style in zip(means.items(), (RANDOM, LEARNED), strict=True):
        tips = [
            f"{label}, {t} evaluations: {number(float(v))}"
            for t, v in zip(steps, mean, strict=True)
        ]
        drawn = np.maximum(mean, FLOOR)
        chart.line(steps, drawn, style, label=label)
        chart.dots(steps, drawn, style, tips=tips, size=6)
    distance = replays.within(0.9, last)
    reached = f"are within {distance:.2g} spreads of" if distance > 0 else "have found"
    caption = (
        f"Mean over {len(replays.tasks)} left-out tasks. With the history, 9 of 10 tasks "
        f"{reached} the best of their recorded rows after {last}."
    )
    if last < replays.regret.shape[1]:
        caption += f" The axis stops at {last}: a task has no more recorded rows to choose from."
    return figure(chart, "Tuning left-out tasks", caption)


def _harm(prior: Prior) -> str:
    """Left-out tasks for which the history is no good."""
    held = prior.heldout
    pairs = zip(prior.heldout_names, held.log_scores, held.cold_log_scores, strict=True)
    worse = [name for name, learned, cold in pairs if learned < cold]
    slower = () if prior.replays is None else prior.replays.worse_than_random
    if not worse and not slower:
        text = f"No negative transfer on any of {len(held.tasks)} left-out tasks."
        return paragraph(text, "good")
    texts = []
    if worse:
        texts.append(f"a cold start predicts {len(worse)} better ({first_of(worse)})")
    if slower:
        texts.append(f"random search was faster on {len(slower)} ({first_of(slower)})")
    return paragraph(f"Negative transfer: of the left-out tasks, {', and '.join(texts)}.")
