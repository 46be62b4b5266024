"""What a person should know about a prior, in a few lines."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from metakel.priors.heldout import NEEDED_LOG_SCORE
from metakel.priors.principal import LEADING

if TYPE_CHECKING:
    from metakel.priors.prior import Prior

SHOWN = 8
LEVEL = 0.1


def summary(prior: Prior) -> str:
    """Several lines: where from, how far to trust it, what is common, what differs."""
    info = prior.info
    verb = "minimise" if info.minimize else "maximise"
    inputs = _some(prior.space.names)
    lines = [
        f"Prior from {len(info.tasks)} tasks, {info.runs} runs: {verb} {info.output}; {inputs}.",
        *_trust(prior),
        *_common_shape(prior),
        *_differences(prior),
        _new_task(prior),
        _certificate(prior),
        _norm_bound(prior),
        *_findings(prior),
    ]
    return "\n  ".join(lines)


def _trust(prior: Prior) -> list[str]:
    held = prior.heldout
    if prior.task_gp is None:
        return ["No past task varies, so nothing was learned: decisions are those of a cold start."]
    started = _cold_start(prior)
    if not held.checked:
        return [f"No held-out check: one task cannot be checked against others. {started}"]
    verdict = "passed" if prior.helps else "FAILED"
    score = f"{held.log_score:+.2f} nats per observation over white noise"
    better = f"{held.better_than_cold} of {len(held.log_scores)}"
    return [
        f"Held-out check {verdict}: {score} (threshold {NEEDED_LOG_SCORE}).",
        f"Better than a cold start on {better} held-out tasks.",
        started if prior.helps else "The history is NOT used: decisions are those of a cold start.",
    ]


def _cold_start(prior: Prior) -> str:
    if prior.cold_weight == 0:
        return "The history is used alone, without a cold start beside it."
    return (
        f"The history is used; a cold start beside it has weight {prior.cold_weight:g} at first, "
        "and more when it predicts better."
    )


def _common_shape(prior: Prior) -> list[str]:
    if prior.task_gp is None or not prior.info.mean:
        return []
    top = prior.optimizer().suggest()
    where = _some(tuple(f"{name} = {_short(value)}" for name, value in top.items()))
    if not prior.helps:
        return [f"Tried first: {where}, the middle of the space."]
    return [f"Common shape: best near {where}, which is tried first."]


def _differences(prior: Prior) -> list[str]:
    if prior.task_gp is None:
        return []
    kept, count = prior.task_gp.eta.size, min(LEADING, prior.task_gp.basis.r)
    text = f"Differences between tasks: {kept} of {count} principal functions are needed"
    largest = sorted(prior.explain().differences.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.01)
    return [f"{text}; their variance is due to {shown}." if kept and shown else f"{text}."]


def _new_task(prior: Prior) -> str:
    model = prior.model
    level = -model.level if prior.info.minimize else model.level
    level_sd = float(model.scale * np.sqrt(model.level_variance))
    low, high = np.clip([level - level_sd, level + level_sd], *prior.output_limits)
    clipped = high - low < 2 * level_sd * (1 - 1e-9)
    spread = f"({low:.3g} to {high:.3g})" if clipped else f"+- {level_sd:.2g}"
    return (
        f"A new task has level {level:.3g} {spread} and scale {model.scale:.2g} within a "
        f"factor of {np.exp(model.spread):.2g} (one standard deviation)."
    )


def _certificate(prior: Prior) -> str:
    found = prior.certificate
    if found is None:
        return "Certificates: none, as the optimizer was not replayed on past tasks."
    if isinstance(found.table, str):
        return f"Certificates: none, {found.table}."
    return (
        f"Certificates of the regret rest on replays of {found.table.tasks} past tasks, up to "
        f"{found.table.horizon} values each."
    )


def _norm_bound(prior: Prior) -> str:
    if prior.calibration is None:
        return "Norm bound: none, it takes at least 4 tasks that vary."
    bound, count = prior.norm_bound(LEVEL), len(prior.calibration.norms)
    if isinf(bound):
        return f"Norm bound: none at {1 - LEVEL:.0%} confidence, only {count} tasks were held out."
    return (
        f"Norm bound: {bound:.3g} at {1 - LEVEL:.0%} confidence, for a task exchangeable with "
        f"these ({count} held-out tasks)."
    )


def _findings(prior: Prior) -> list[str]:
    info = prior.info
    lines = []
    if prior.outliers:
        lines.append(f"Not explained by the other tasks: {_some(prior.outliers)}.")
    if info.constant:
        lines.append(f"Not learned from, as all values are equal: {_some(info.constant)}.")
    if info.winsorized:
        lines.append(
            f"{info.winsorized} very bad values were raised to Tukey's fence of their task."
        )
    return [*lines, *(f"Note: {note}" for note in info.notes)]


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
