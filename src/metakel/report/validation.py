"""The page's part on held-out tasks: does the history help, and are its predictions honest."""

from __future__ import annotations

import numpy as np

from metakel.priors import Prior
from metakel.priors.heldout import NEEDED_LOG_SCORE
from metakel.report.chart import Chart
from metakel.report.check import EVALUATIONS, LEVELS, SEEN, Check
from metakel.report.parts import figure, figures, paragraph, section
from metakel.report.scales import number, span

LEGEND = [("learned", "with the history"), ("cold", "cold start")]
SHOWN_NAMES = 8
WORST_SHOWN = -3.0


def trusted_section(prior: Prior, check: Check | None) -> str:
    """What tasks say that were left out."""
    held = prior.heldout
    parts = []
    if not held.checked:
        parts.append(paragraph("There are too few tasks to leave any out: nothing is vouched for."))
    else:
        parts += [_verdict(prior), figures(_gains(prior), *_played(check))]
        parts += [] if check is None else [_harm(check)]
    if prior.outliers:
        names = ", ".join(prior.outliers[:SHOWN_NAMES])
        parts.append(paragraph(f"Not explained by the other tasks: {names}.", "soft"))
    if check is None and held.checked:
        hint = "metakel report --history adds calibration and runs on tasks that were left out."
        parts.append(paragraph(hint, "soft"))
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
        "The history is not used: learned from the others, it explains the typical left-out task "
        f"by {held.log_score:.2f} nats per value, and {NEEDED_LOG_SCORE} are needed. Decisions are "
        "those of a cold start."
    )
    return paragraph(text, "bad")


def _gains(prior: Prior) -> str:
    """Every left-out task: cold start across, history up; above the diagonal it helped."""
    held = prior.heldout
    varying = [name for name in prior.info.tasks if name not in prior.info.constant]
    names = [varying[s] for s in held.tasks]
    low, high = span(held.log_scores, held.cold_log_scores)
    both = max(low, WORST_SHOWN), max(high, WORST_SHOWN + 1)  # some cold starts are far off
    chart = Chart(both, both, x_label="cold start, nats per value", y_label="with the history")
    tips = [
        f"{name}\nhistory {g:.2f}, cold {c:.2f}"
        for name, g, c in zip(names, held.log_scores, held.cold_log_scores, strict=True)
    ]
    chart.line(both, both, "even").dots(held.cold_log_scores, held.log_scores, "learned", tips, 4)
    caption = (
        "One dot per left-out task; above the line the history predicts better. Numbers below "
        f"{WORST_SHOWN:g} are drawn there."
    )
    return figure(chart.render(caption), "Prediction of left-out tasks", caption)


def _played(check: Check | None) -> list[str]:
    if check is None:
        return []
    return [_regret(check), _calibration(check)]


def _regret(check: Check) -> str:
    curves = check.curves
    steps = np.arange(1, EVALUATIONS + 1)
    floor = 1e-3
    chart = Chart(
        (1, EVALUATIONS),
        (floor, max(float(max(c.max() for c in curves.values())) * 1.2, 10 * floor)),
        x_label="evaluations",
        y_label="distance to the best",
        y_log=True,
    )
    for name in ("random", "cold", "learned"):
        chart.line(steps, np.maximum(curves[name], floor), name)
    for name in ("cold", "learned"):
        tips = [
            f"{name}, {t} evaluations: {number(float(v))}"
            for t, v in zip(steps, curves[name], strict=True)
        ]
        chart.dots(steps, np.maximum(curves[name], floor), name, tips, 3)
    caption = (
        f"Mean over {len(check.names)} left-out tasks. With the history, 9 of 10 tasks are within "
        f"{check.within(0.9, EVALUATIONS):.2g} spreads of their best after {EVALUATIONS}."
    )
    legend = [*LEGEND, ("random", "random search")]
    return figure(chart.render(caption), "Tuning left-out tasks", caption, legend)


def _calibration(check: Check) -> str:
    learned, cold = check.covered
    chart = Chart((0, 1), (0, 1), x_label="promised share", y_label="share found inside")
    chart.line([0, 1], [0, 1], "even")
    for style, found in (("cold", cold), ("learned", learned)):
        tips = [f"promised {p:.0%}, found {f:.0%}" for p, f in zip(LEVELS, found, strict=True)]
        chart.line(LEVELS, found, style).dots(LEVELS, found, style, tips, 4)
    sharp, dull = check.sharpness
    caption = (
        f"Intervals for the other values of a left-out task after {SEEN} were told. On the line is "
        f"honest, above it careful. Width: {sharp:.2g} spreads with the history, "
        f"{dull:.2g} without."
    )
    return figure(chart.render(caption), "Calibration and sharpness", caption, LEGEND)


def _harm(check: Check) -> str:
    harmed = check.harmed
    if not harmed:
        text = f"No negative transfer on any of {len(check.names)} left-out tasks that were tuned."
        return paragraph(text, "good")
    names = ", ".join(harmed[:SHOWN_NAMES]) + (" …" if len(harmed) > SHOWN_NAMES else "")
    return paragraph(
        f"Negative transfer on {len(harmed)} of {len(check.names)} left-out tasks: there a cold "
        f"start found better values sooner ({names})."
    )
