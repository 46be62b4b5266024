"""A confidence sequence as JSON, exact to the last bit: it goes on as it would have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from metakel._arrays import Array
from metakel._json import VERSION
from metakel.confidence.fallback import AlarmEvent
from metakel.confidence.observation_log import ObservationLog
from metakel.confidence.state import State
from metakel.errors import InputError

FORMAT = "metakel.ConfidenceSequence"


def stored(state: State) -> dict[str, Any]:
    """Exact JSON form."""
    if callable(state.settings.norm_bound):
        raise InputError("a norm_bound that is a function cannot be stored; store the data")
    kept = state.intersection
    return {
        "format": FORMAT,
        "version": VERSION,
        "settings": {**asdict(state.settings), "remember": kept.remember},
        "points": None if kept.points is None else kept.points.tolist(),
        "told": state.told.to_list(),
        "stage": state.stage,
        "alarms": [asdict(event) for event in state.alarms],
        "past": [time for time, _, _ in kept.past],
        "running": kept.running and [_finite(bound) for bound in kept.running],
    }


def restored(first: State, data: Mapping[str, Any]) -> State:
    """From the state before anything was told to the one that was stored."""
    alarms = tuple(AlarmEvent(**event) for event in data["alarms"])
    stage, last = int(data["stage"]), len(first.hypotheses)
    if not first.stage <= stage <= last:  # below the first: an empty kernel, by an older version
        raise InputError(
            f"stored sequence is at stage {stage}; expected {first.stage} to {last}. Tell its data "
            "to a new one"
        )
    state = replace(first, stage=stage, alarms=alarms)
    kept = first.intersection
    for batch in ObservationLog.from_list(data["told"], first.hypotheses[0].kernel).batches:
        state = state.with_observations(batch)
        if state.t in data["past"]:
            past = state.assessed().now.set
            kept = kept.keeping(state.t, state.told.t_before_last, past)
    if data["running"] is not None:
        lower, upper = (np.array(bound, dtype=np.float64) for bound in data["running"])
        running = np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf)
        kept = replace(kept, running=running)
    return replace(state.assessed(), intersection=kept)


def _finite(bound: Array) -> list[float | None]:
    return [float(b) if np.isfinite(b) else None for b in bound]
