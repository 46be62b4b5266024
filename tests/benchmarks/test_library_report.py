"""The tables of the library's benchmark say what was measured, and which floors were met."""

from __future__ import annotations

from typing import Any

from benchmarks.library_report import FITS, sections

METHODS = (
    "metakel", "portfolio of our runs", "Optuna TPE", "Optuna GPSampler", "FLAML zero-shot",
)  # fmt: skip


def method(share: float, fits: int) -> dict[str, Any]:
    shown = {str(t): share for t in (*FITS, 50) if t <= fits}
    return {"cv": [share] * fits, "test": shown, "seconds": shown, "overhead": 0.01}


def records(share: float) -> list[dict[str, Any]]:
    """Two data sets on which metakel has this share of the loss of all others."""
    found: list[dict[str, Any]] = [
        {"set": "", "model": "", "kind": "own", "loading": 0.05, "per_fit": [0.005]}
    ]
    for kind in ("classification", "regression"):
        losses = {name: method(share if name == "metakel" else 1.0, 50) for name in METHODS}
        base = {"cv": 1.0, "test": 1.0, "seconds": 0.1}
        found.append(
            {"set": kind, "model": "lightgbm", "kind": kind, "defaults": base, "methods": losses}
        )
    unlike = {"metakel": method(share, 20), "cold start": method(1.0, 20)}
    base = {"cv": 1.0, "test": 1.0, "seconds": 0.1}
    strange = {"set": "6 rows: a", "model": "lightgbm", "kind": "unlike", "defaults": base}
    return [*found, {**strange, "methods": unlike}]


def test_half_the_loss_meets_every_goal():
    page = sections(records(0.5))
    assert "floor missed" not in page
    assert page.count("goal met") == 15
    assert "0.500" in page


def test_twice_the_loss_misses_every_floor_but_time():
    page = sections(records(2.0))
    assert page.count("goal met") == 2  # overhead and loading
    assert page.count("floor missed") == 12
    assert "2 data sets (1 classification, 1 regression); lightgbm on 2." in page


def test_a_data_set_that_is_missing_a_method_has_no_mean():
    found = records(0.5)
    found[1]["methods"]["Optuna TPE"]["cv"] = [None] * 50
    row = next(line for line in sections(found).splitlines() if line.startswith("| Optuna TPE"))
    assert "1.000" not in row
