"""The page's part on one run: values, band, certificate, trust, alarm."""

from __future__ import annotations

import numpy as np

from metakel.priors import Prior
from metakel.report.chart import Chart
from metakel.report.parts import cards, figure, figures, paragraph, section, table
from metakel.report.replay import RunStory
from metakel.report.scales import number, span

SHOWN_TRIALS = 10


def ran_section(prior: Prior, story: RunStory) -> str:
    """How the run went."""
    counts = f"{len(story.told)} values, {story.failed} failed, {story.pending} pending"
    if not story.told:
        return section("The run", paragraph(f"{counts}: nothing to show yet."))
    return section(
        "The run",
        cards(_cards(prior, story, counts)),
        _alarm(story),
        figures(_values(prior, story), *_promises(prior, story), _trust(story)),
        _best_trials(prior, story),
    )


def _cards(prior: Prior, story: RunStory, counts: str) -> list[tuple[str, str, str]]:
    entries = [(number(float(story.best[-1])), f"best {prior.info.output} ({counts})", "")]
    if np.isfinite(story.regret[-1]):
        sure = f"{1 - story.delta:.0%}"
        band = f"{number(float(story.lower[-1]))} to {number(float(story.upper[-1]))}"
        entries += [
            (band, f"the surest configuration's true value, {sure} sure", ""),
            (number(float(story.regret[-1])), f"nothing is better by more, {sure} sure", ""),
        ]
    alarm = ("none", "alarm", "good") if story.alarm is None else ("ALARM", "see below", "bad")
    return [*entries, alarm]


def _alarm(story: RunStory) -> str:
    if story.alarm is not None:
        text = f"Alarm after {story.alarm.told} values: {story.alarm.reason}. "
        return paragraph(text + "The history is left out from there on.", "bad")
    return paragraph("No value contradicts the history.", "good")


def _values(prior: Prior, story: RunStory) -> str:
    steps = np.arange(1, len(story.told) + 1)
    values = np.array([trial.value for trial in story.told], dtype=np.float64)
    chart = Chart(
        (1, max(len(steps), 2)), span(values), x_label="values told", y_label=prior.info.output
    )
    tips = [
        f"{trial.number}: {number(float(trial.value or 0.0))}\n"
        + "\n".join(f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}"
                    for k, v in trial.configuration.items())
        for trial in story.told
    ]  # fmt: skip
    chart.line(steps, story.best, "learned").dots(steps, values, "plain", tips, 4)
    _mark(chart, story)
    legend = [("learned", "best so far"), ("random", "each value")]
    return figure(chart.render("values and the best so far"), "Values", legend=legend)


def _promises(prior: Prior, story: RunStory) -> list[str]:
    if not np.isfinite(story.regret).any():
        return [paragraph(f"No band and no certificate: {story.no_band}.", "soft")]
    steps = np.arange(1, len(story.told) + 1)
    sure = f"{1 - story.delta:.0%}"
    across = (1.0, float(max(len(steps), 2)))
    band = Chart(
        across, span(story.lower, story.upper, story.best), x_label="values told",
        y_label=prior.info.output,
    )  # fmt: skip
    band.band(steps, story.lower, story.upper, "learned").line(steps, story.best, "learned")
    _mark(band, story)
    regret = Chart(
        across, (0.0, span(story.regret)[1]), x_label="values told", y_label="can be better by"
    )
    tips = [f"after {t}: {number(float(r))}" for t, r in zip(steps, story.regret, strict=True)]
    regret.line(steps, story.regret, "learned").dots(steps, story.regret, "learned", tips, 3)
    _mark(regret, story)
    return [
        figure(
            band.render("band of the surest configuration"),
            "Band around the surest configuration",
            f"Its value without noise lies in the band, at all times together, {sure} sure.",
            [("learned", "best value told")],
        ),
        figure(
            regret.render("certificate over time"),
            "Certificate",
            "No configuration looked at is better than the surest one by more than this, "
            f"{sure} sure, if the task is like the past ones.",
        ),
    ]


def _trust(story: RunStory) -> str:
    steps = np.arange(1, len(story.told) + 1)
    chart = Chart(
        (1, max(len(steps), 2)), (0, 1), x_label="values told", y_label="trust in the history"
    )
    tips = [f"after {t}: {v:.0%}" for t, v in zip(steps, story.trust, strict=True)]
    chart.line(steps, story.trust, "learned").dots(steps, story.trust, "learned", tips, 3)
    _mark(chart, story)
    caption = "Weight of the history against a cold start, moved by every value."
    return figure(chart.render(caption), "Trust", caption)


def _mark(chart: Chart, story: RunStory) -> None:
    if story.alarm is not None:
        chart.vertical(float(story.alarm.told), "bad", "alarm")


def _best_trials(prior: Prior, story: RunStory) -> str:
    sign = 1.0 if prior.info.minimize else -1.0
    top = sorted(story.told, key=lambda trial: sign * float(trial.value or 0.0))[:SHOWN_TRIALS]
    rows = [
        [str(t.number), number(float(t.value or 0.0))]
        + [f"{v:.5g}" if isinstance(v, float) else str(v) for v in t.configuration.values()]
        for t in top
    ]
    return table(["trial", prior.info.output, *top[0].configuration], rows)
