"""Runs on tasks that are over. Nobody is to be warned of their alarms, which `tell` would log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metakel._arrays import Array
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.record import Trial


def rehearse(optimizer: Optimizer, value: Callable[[Trial], float]) -> float:
    """Ask for one point and give it the value that was recorded there, which is returned."""
    optimizer.ask()
    (asked,) = optimizer.record.pending
    found = value(asked)
    optimizer.record = optimizer.record.with_results([asked.with_result(found)])
    return found


def give(optimizer: Optimizer, points: Sequence[Any], values: Array) -> None:
    """Give recorded values at several points at once."""
    optimizer.add_pending(points)
    asked = optimizer.record.pending
    results = [trial.with_result(float(v)) for trial, v in zip(asked, values, strict=True)]
    optimizer.record = optimizer.record.with_results(results)
