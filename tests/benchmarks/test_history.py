"""The history of the benchmarks: what is read from a section, and when a run warns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import history
from benchmarks.docs import TABLES
from benchmarks.history import Measurement, Run, falls, measurements

SECTION = """
| problem | against | ours | measured | floor | verdict |
| ------- | ------- | ---- | -------- | ----- | ------- |
| paper | adelie | 2 ms | 2.42x | 2x | met |
| c | gram | 3 ms | 1.77x | <= 4x | met |
| b-low | - | 3 ms | - | - | converged |

| goal | measured | floor |     |
| ---- | -------- | ----- | --- |
| slowest ask | 4.4 ms | <= 5 ms | met |
| far ask | 6.2 ms (97 ms at once) | <= 10 s | met |

| other | value |
| ----- | ----- |
| x | 3 |
"""


def test_numbers_with_a_floor_are_read_with_their_direction_and_unit():
    found = measurements(SECTION)
    assert found["paper adelie"] == Measurement(2.42, 2.0, lower=False)
    assert found["c gram"] == Measurement(1.77, 4.0, lower=True)
    assert found["slowest ask"].value == pytest.approx(0.0044)
    assert found["far ask"].over_floor == pytest.approx(10 / 0.0062)
    assert set(found) == {"paper adelie", "c gram", "slowest ask", "far ask"}


def test_the_kept_runs_agree_with_their_pages_on_what_is_better():
    printed = measurements(TABLES.read_text(encoding="utf-8"))
    latest = {name: kept for run in history.read() for name, kept in run.measured.items()}
    both = printed.keys() & latest.keys()
    assert both
    assert [name for name in both if printed[name].lower != latest[name].lower] == []


def run(value: float, *, lower: bool = False, machine: str = "A, 2 cores") -> Run:
    return Run("2026-01-01T00:00", "c", machine, "s", {"n": Measurement(value, 10.0, lower)})


def test_a_fall_beyond_the_noise_of_earlier_runs_is_named_and_noise_is_not():
    quiet = [run(20.0), run(21.0), run(20.5)]
    assert falls(quiet, run(19.0)) == []
    (warning,) = falls(quiet, run(14.0))
    assert "n is 14" in warning
    noisy = [run(10.0), run(20.0), run(30.0)]
    assert falls(noisy, run(14.0)) == []


def test_runs_are_kept_one_per_line(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "RUNS", tmp_path / "history.jsonl")
    assert history.record("solver", SECTION) == []
    assert history.record("solver", SECTION) == []
    slower = SECTION.replace("2.42x", "1.01x")
    (warning,) = history.record("solver", slower)
    assert "paper adelie" in warning
    runs = history.read()
    assert [replace(r, date="", commit="") for r in runs[:1]] == [
        replace(r, date="", commit="") for r in runs[1:2]
    ]
    assert history.record("other", "no table") == []
