"""``--observed``: runs of this very task, to start from; no row is dropped in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from metakel.cli.console import note
from metakel.cli.values import typed
from metakel.errors import InputError
from metakel.io import csv_columns
from metakel.tuner import Tuner


def take_in(tuner: Tuner, path: Path) -> None:
    """Tell the runs of a CSV file, and say how many were taken and why others were not."""
    columns = csv_columns(path)
    output = tuner.output
    varying = tuner.space.free
    for name in (*varying, output):
        if name not in columns:
            raise InputError(f"{path.name} has no column {name!r}; found {', '.join(columns)}")
    values = _numbers(columns[output], f"{path.name}: output column {output!r}")
    rows, told, lacking = [], [], {"without a finite value": 0, "with a missing input": 0}
    for i, value in enumerate(values):
        cells = {name: columns[name][i] for name in varying}
        if value is None:
            lacking["without a finite value"] += 1
        elif None in cells.values():
            lacking["with a missing input"] += 1
        else:
            rows.append({name: typed(tuner.space, name, v) for name, v in cells.items()})
            told.append(value)
    left_out = _counted(lacking)
    if not rows:
        raise InputError(f"{path.name}: none of the {len(values)} rows can be used: {left_out}")
    new = tuner.observe(rows, told)
    left_out = _counted({"known already": len(rows) - new, **lacking})
    note(f"{new} runs of {path.name} taken in" + (f"; left out: {left_out}" if left_out else ""))


def _numbers(cells: Sequence[Any], where: str) -> list[float | None]:
    """Finite numbers; None for those that are missing or not finite."""
    found: list[float | None] = []
    for cell in cells:
        try:
            number = None if cell is None else float(cell)
        except (TypeError, ValueError):
            raise InputError(f"{where} holds {cell!r}; expected numbers, or nothing") from None
        found.append(number if number is not None and isfinite(number) else None)
    return found


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
