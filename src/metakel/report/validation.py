"""How far a prior can be trusted: what past tasks say that were left out of learning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metakel.charts import LEARNED, RANDOM, REFERENCE, Axis, SvgChart, number
from metakel.priors import Prior, Replays
from metakel.priors.heldout import NEEDED_LOG_SCORE
from metakel.report.html import figure, figures, paragraph, section

WITH_HISTORY = "with the history"
SHOWN_NAMES = 8
WORST_SHOWN = -3.0  # some cold starts are far off
FLOOR = 1e-3  # of a logarithmic axis


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
        names = _some(prior.outliers)
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
        texts.append(f"a cold start predicts {len(worse)} better ({_some(worse)})")
    if slower:
        texts.append(f"random search was faster on {len(slower)} ({_some(slower)})")
    return paragraph(f"Negative transfer: of the left-out tasks, {', and '.join(texts)}.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (" …" if len(names) > SHOWN_NAMES else "")
