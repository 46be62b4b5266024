"""Text that people type, as values of a space; tables of runs, as configurations."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.prior import Prior
from metakel.readers import csv_columns
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Space


def typed(space: Space, name: str, value: Any) -> Any:
    """The value of a parameter that some text or number stands for."""
    parameter = space[name]
    if isinstance(parameter, Categorical | Ordinal | Fixed):
        known = (parameter.value,) if isinstance(parameter, Fixed) else parameter.values
        return next((v for v in known if v == value or str(v) == str(value)), value)
    assert isinstance(parameter, Float)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"parameter {name!r} is {value!r}; expected {parameter.describe()}"
        ) from None
    whole = isinstance(parameter, Integer) and isfinite(number) and number == round(number)
    return round(number) if whole else number


def assignments(space: Space, texts: Sequence[str]) -> dict[str, Any]:
    """Parameters from ``name=value``."""
    found = {}
    for text in texts:
        # Names may hold "=" themselves, so the longest name that fits is meant.
        names = [name for name in space.names if text.startswith(f"{name}=")]
        if not names:
            known = ", ".join(space.names)
            raise InputError(f"found {text!r}; expected name=value with a name among {known}")
        name = max(names, key=len)
        found[name] = typed(space, name, text[len(name) + 1 :])
    return found


def observed_runs(prior: Prior, path: Path) -> tuple[list[dict[str, Any]], list[float]]:
    """Configurations and values of a CSV file of runs; rows without a value are left out."""
    columns = csv_columns(path)
    varying = [p.name for p in prior.space.parameters if not isinstance(p, Fixed)]
    for name in (*varying, prior.facts.output):
        if name not in columns:
            raise InputError(f"{path.name} has no column {name!r}; found {', '.join(columns)}")
    rows, values = [], []
    for i, value in enumerate(columns[prior.facts.output]):
        cells = {name: columns[name][i] for name in varying}
        if isinstance(value, int | float) and isfinite(value) and None not in cells.values():
            rows.append({name: typed(prior.space, name, cell) for name, cell in cells.items()})
            values.append(float(value))
    return rows, values
