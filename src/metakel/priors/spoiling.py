"""Parameters without which past tasks predict each other, where with them they do not.

A column that is no setting, such as a reading of the weather, makes every run look unlike every
other one. If the held-out check fails, it is repeated without each parameter; of all that improve
it the best one is left out, and again, as long as this helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from metakel.errors import typed_list
from metakel.priors.heldout import NEEDED_LOG_SCORE, HeldOut, hold_out
from metakel.priors.principal import featurize
from metakel.priors.standardize import StandardizedTasks
from metakel.space import Space

# Each is a check of its own: of more parameters, or more left out, chance would find one to blame.
MOST_PARAMETERS, MOST_LEFT_OUT = 16, 2
# In nats per value. A smaller gain is no reason to doubt a parameter.
NEEDED_GAIN = 0.1


def spoiling_note(tasks: StandardizedTasks, space: Space, held: HeldOut, *, mean: bool) -> str:
    """Which parameters to leave out for the check to pass; empty where it takes more than that."""
    names = [name for name in space.free if space[name].width]
    if held.helps or not 1 < len(names) <= MOST_PARAMETERS:
        return ""
    left_out, score = list[str](), held.log_score
    for _ in range(min(MOST_LEFT_OUT, len(names) - 1)):
        tried = {
            name: hold_out(featurize(_without(tasks, space, [*left_out, name])), mean=mean)
            for name in names
            if name not in left_out
        }
        best = max(tried, key=lambda name: tried[name].log_score)
        if not tried[best].log_score >= score + NEEDED_GAIN:
            return ""
        left_out, score = [*left_out, best], tried[best].log_score
        if score >= NEEDED_LOG_SCORE:
            return _note(left_out, score)
    return ""


def _note(names: list[str], score: float) -> str:
    one = len(names) == 1
    return (
        f"without {' and '.join(names)} the held-out check passes, with {score:+.2f} nats; if "
        f"{'it is no setting' if one else 'they are no settings'}, leave {'it' if one else 'them'} "
        f"out: exclude={names}, or --exclude {typed_list(tuple(names))}"
    )


def _without(tasks: StandardizedTasks, space: Space, names: Sequence[str]) -> StandardizedTasks:
    """All runs as if these parameters had one value."""
    X = [rows.copy() for rows in tasks.X]
    for rows in X:
        for name in names:
            rows[:, space.columns[name]] = 0.0
    return replace(tasks, X=X)
