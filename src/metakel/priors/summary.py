"""What a person should know about a prior, in a few lines."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from metakel.priors.heldout import NEEDED_GAIN
from metakel.priors.selection import LEADING

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
        f"prior from {len(info.tasks)} tasks, {info.runs} runs: {verb} {info.output}; {inputs}",
        *_trust(prior),
        *_shape(prior),
        _new_task(prior),
        *_bound(prior),
        *_noticed(prior),
    ]
    return "\n".join(lines)


def _trust(prior: Prior) -> list[str]:
    held = prior.heldout
    if prior.shape is None:
        return ["  no past task varies: decisions are those of a cold start"]
    if not held.checked:
        return [
            "  one task cannot be checked against others: used beside a cold start, not vouched for"
        ]
    better = int((held.gains > held.cold).sum())
    verdict = (
        f"used, beside a cold start that starts with weight {prior.cold_weight:g}"
        if prior.helps
        else "NOT used: decisions are those of a cold start"
    )
    gain = f"{held.gain:.2f} nats per value better than without structure (median task;"
    against = f"better than a cold start on {better} of {len(held.gains)}"
    return [
        f"  held-out tasks: {gain} {NEEDED_GAIN} needed), {against}",
        f"  the history is {verdict}",
    ]


def _shape(prior: Prior) -> list[str]:
    if prior.shape is None:
        return []
    lines = []
    shape = prior.shape
    if prior.info.mean:
        points = shape.basis.landmarks
        top = prior.space.decode(points[[int(np.argmax(shape.mean(points)))]])[0]
        where = _some(tuple(f"{name} = {_short(value)}" for name, value in top.items()))
        lines.append(f"  common shape: best near {where}")
    count = min(LEADING, shape.basis.r)
    explained = prior.explain()
    leading = sorted(explained.differences.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in leading if share >= 0.01)
    kept = shape.eta.size
    lines.append(
        f"  differences between tasks: {kept} of {count} principal functions kept"
        + (f"; by parameter: {shown}" if kept and shown else "")
    )
    return lines


def _bound(prior: Prior) -> list[str]:
    if prior.calibration is None:
        return ["  norm bound: none, fewer than 4 tasks vary"]
    bound, count = prior.norm_bound(LEVEL), len(prior.calibration.norms)
    if isinf(bound):
        return [f"  norm bound: none at level {1 - LEVEL:g}, only {count} tasks were held out"]
    meaning = f"for a task exchangeable with these, with probability {1 - LEVEL:g}"
    return [f"  norm bound {bound:.3g}: {meaning} ({count} held-out tasks)"]


def _noticed(prior: Prior) -> list[str]:
    info = prior.info
    lines = []
    if prior.outliers:
        lines.append(f"  not explained by the others: {_some(prior.outliers)}")
    if info.constant:
        lines.append(f"  constant values, not learned from: {_some(info.constant)}")
    if info.winsorized:
        lines.append(f"  {info.winsorized} very bad values drawn in to Tukey's fence of their task")
    return [*lines, *(f"  note: {note}" for note in info.notes)]


def _new_task(prior: Prior) -> str:
    model = prior.model
    return (
        f"  a new task: level {_level(prior):.3g} +- {_level_spread(prior):.2g}, scale "
        f"{model.scale:.2g} within a factor {np.exp(model.spread):.2g} (one standard deviation)"
    )


def _level(prior: Prior) -> float:
    return -prior.model.level if prior.info.minimize else prior.model.level


def _level_spread(prior: Prior) -> float:
    return float(prior.model.scale * np.sqrt(prior.model.level_variance))


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
