"""Where a value becomes an alarm: it contradicts what past tasks have taught, or a certificate.

For a kernel, the confidence set of a sequence becomes empty (`metakel.confidence.fallback`).
`State.alarm` is the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metakel.confidence.fallback import AlarmEvent
from metakel.gp.factor import Factor

if TYPE_CHECKING:
    from metakel.optimize.mixture import Mixture
    from metakel.optimize.replays import RegretScores
    from metakel.optimize.state import State
    from metakel.optimize.task_prior import TaskPrior

# Below this weight the history is given up. If the learned process is right, its weight ever falls
# from 0.95 to 0.01 with probability below 0.06 % (Ville's inequality).
LOST_TRUST = 0.01


def alarm_after(since: int, factor: Factor, prior: TaskPrior) -> AlarmEvent | None:
    """The first time after ``since`` values at which the task is unlike the past ones."""
    task = factor.task
    times = np.arange(since + 1, factor.values + 1)
    if not prior.learned.any() or not len(times):
        return None
    joint = factor.evidence(times) + task.log_weights  # (P, k, g)
    joint += np.log(prior.weights)[:, None, None]
    weights = np.exp(joint - joint.max(axis=(0, 2), keepdims=True))
    weights /= weights.sum(axis=(0, 2), keepdims=True)
    trust = weights[prior.learned].sum(axis=(0, 2))  # (k,)
    usual = weights[:, :, task.usual].sum(axis=(0, 2))
    lost, elsewhere = prior.guarded & (trust < LOST_TRUST), task is not prior.task
    unlike = np.flatnonzero(lost | (usual < LOST_TRUST) | elsewhere)
    if not len(unlike):
        return None
    first = int(unlike[0])
    if lost[first]:
        found = f"{trust[first]:.1g}"
        reason = f"a cold start predicts the values better: trust in the history is {found}"
    elif elsewhere:
        reason = "the first value is far from those of all past tasks"
    else:
        reason = "the values vary by far less than those of past tasks"
    return AlarmEvent(int(times[first]), reason)


def above_ceiling(model: Mixture, state: State, scores: RegretScores) -> AlarmEvent | None:
    """A value better than replays on past tasks allow.

    On spaces values may be noisy, and there is no ceiling of them.
    """
    found = state.outcomes
    if not scores.points or found.constraints:
        return None
    above = model.trace.above(found.y, scores.factor(model.delta), scores.horizon)
    if above is None:
        return None
    time, high, ceiling = above
    high, ceiling = state.scale.value(high), state.scale.value(ceiling)
    return AlarmEvent(
        time,
        f"{high:.4g} is better than past tasks allow, {ceiling:.4g} at most: the certificate "
        "is disproved, and the task is unlike them",
    )
